//! From nodes to typed values, collecting problems instead of stopping.
//!
//! A value that cannot be read is `None` and leaves its reason in the report; the caller goes on with
//! the next key. A key with nothing behind it counts as not written, so that a section whose lines
//! are all commented out is the default.

use std::collections::HashMap;
use std::net::SocketAddr;

use http::HeaderName;

use super::nearest::nearest;
use super::node::Node;
use super::problem::Report;
use crate::units::{Bandwidth, ByteSize, Span};

/// A value and where it stands.
#[derive(Clone, Copy)]
pub struct Spot<'a> {
    pub path: &'a str,
    pub node: &'a Node,
}

/// Something that can be written as the value of a key.
pub trait Read: Sized {
    /// `None`: it cannot be read, and `report` says why.
    fn read(at: Spot, report: &mut Report) -> Option<Self>;

    /// The key paths under which values of this kind may stand; `[]` stands for any item.
    fn schema(path: &str, paths: &mut Vec<String>) {
        paths.push(path.to_owned());
    }
}

/// The path of a key in the section at `path`.
pub fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The keys of one section while it is being read.
pub struct Keys<'a> {
    path: &'a str,
    pairs: &'a [(String, Node)],
}

impl<'a> Keys<'a> {
    pub fn of(at: Spot<'a>, report: &mut Report) -> Option<Keys<'a>> {
        let pairs = match at.node {
            Node::Map(pairs) => pairs.as_slice(),
            Node::Null => &[],
            other => {
                expected("a section with keys", other, at.path, report);
                return None;
            }
        };
        Some(Keys { path: at.path, pairs })
    }

    /// The value of a key; `None` where it is absent, empty or unreadable.
    pub fn value<T: Read>(&self, key: &str, report: &mut Report) -> Option<T> {
        let node = self.node(key)?;
        T::read(Spot { path: &join(self.path, key), node }, report)
    }

    /// What stands behind a key; `None` where it is absent or empty.
    pub fn node(&self, key: &str) -> Option<&'a Node> {
        let (_, node) = self.pairs.iter().find(|(written, _)| written == key)?;
        (*node != Node::Null).then_some(node)
    }

    /// Reports the keys that nobody asks for, and those that are there twice.
    pub fn refuse_others(&self, known: &[&str], report: &mut Report) {
        let mut times = HashMap::new();
        for (key, _) in self.pairs {
            let times = times.entry(key.as_str()).or_insert(0);
            *times += 1;
            match *times {
                1 if known.contains(&key.as_str()) => {}
                1 => {
                    let hint = hint_for_key(key, known, report);
                    report.add(join(self.path, key), "unknown key", hint);
                }
                2 => report.add_repeated(join(self.path, key)),
                _ => {}
            }
        }
    }
}

fn hint_for_key(key: &str, known: &[&str], report: &Report) -> String {
    let places = report.places_of(key);
    if places.is_empty() || nearest(key, known).is_some() {
        return hint_for(key, known);
    }
    format!("it belongs at {}", places.join(" or "))
}

/// What to do about a word that is not among the known ones.
pub fn hint_for(key: &str, known: &[&str]) -> String {
    match nearest(key, known) {
        Some(guess) => format!("did you mean {guess}?"),
        None => format!("known here: {}", known.join(", ")),
    }
}

/// Reads one of a few names.
pub fn one_of<T: Copy>(at: Spot, names: &[(&str, T)], report: &mut Report) -> Option<T> {
    let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    let Some(written) = at.node.scalar() else {
        expected(&format!("one of {}", known.join(", ")), at.node, at.path, report);
        return None;
    };
    let found = names.iter().find(|(name, _)| *name == written).map(|(_, value)| *value);
    if found.is_none() {
        report.add(at.path, format!("`{written}` is not known"), hint_for(&written, &known));
    }
    found
}

/// Reports a value of the wrong kind.
pub fn expected(kind: &str, found: &Node, path: &str, report: &mut Report) {
    report.add(path, format!("expected {kind}, found {}", found.kind()), "");
}

/// A list; an item that cannot be read keeps its place, so that the others keep their paths.
impl<T: Read> Read for Vec<Option<T>> {
    fn read(at: Spot, report: &mut Report) -> Option<Vec<Option<T>>> {
        let Node::List(items) = at.node else {
            expected("a list", at.node, at.path, report);
            return None;
        };
        let read = |(index, node)| T::read(Spot { path: &format!("{}[{index}]", at.path), node }, report);
        Some(items.iter().enumerate().map(read).collect())
    }

    fn schema(path: &str, paths: &mut Vec<String>) {
        T::schema(&format!("{path}[]"), paths);
    }
}

impl Read for String {
    fn read(at: Spot, report: &mut Report) -> Option<String> {
        match at.node {
            Node::Text(text) => Some(text.clone()),
            Node::Bool(_) | Node::Whole(_) | Node::Real(_) => {
                report.add(at.path, format!("expected text, found {}", at.node.kind()), "put it in quotes");
                None
            }
            other => {
                expected("text", other, at.path, report);
                None
            }
        }
    }
}

impl Read for bool {
    fn read(at: Spot, report: &mut Report) -> Option<bool> {
        match at.node {
            Node::Bool(value) => Some(*value),
            other => {
                expected("true or false", other, at.path, report);
                None
            }
        }
    }
}

impl Read for u32 {
    fn read(at: Spot, report: &mut Report) -> Option<u32> {
        let value = match at.node {
            Node::Whole(value) => u32::try_from(*value).ok(),
            _ => None,
        };
        if value.is_none() {
            let written = at.node.scalar().map_or(at.node.kind().to_owned(), |text| format!("`{text}`"));
            report.add(at.path, format!("{written} is not a whole number from 0 to {}", u32::MAX), "");
        }
        value
    }
}

impl Read for f64 {
    fn read(at: Spot, report: &mut Report) -> Option<f64> {
        match at.node {
            Node::Whole(value) => Some(*value as f64),
            Node::Real(value) if value.is_finite() => Some(*value),
            Node::Real(_) => {
                report.add(at.path, "must be a finite number", "");
                None
            }
            other => {
                expected("a number", other, at.path, report);
                None
            }
        }
    }
}

impl Read for SocketAddr {
    fn read(at: Spot, report: &mut Report) -> Option<SocketAddr> {
        let written = at.node.scalar().unwrap_or_default();
        let address = written.parse().ok();
        if address.is_none() {
            let hint = "write an IP address and a port, like 127.0.0.1:11435 or [::1]:11435";
            report.add(at.path, format!("`{written}` is not an address to listen on"), hint);
        }
        address
    }
}

impl Read for HeaderName {
    fn read(at: Spot, report: &mut Report) -> Option<HeaderName> {
        let written = at.node.scalar().unwrap_or_default();
        let name = written.parse().ok();
        if name.is_none() {
            report.add(at.path, format!("`{written}` is not a header name"), "write it like X-Session-Id");
        }
        name
    }
}

macro_rules! read_as_text {
    ($($unit:ty: $example:literal),*) => { $(
        impl Read for $unit {
            fn read(at: Spot, report: &mut Report) -> Option<$unit> {
                let Some(text) = at.node.scalar() else {
                    expected(concat!("a value like ", $example), at.node, at.path, report);
                    return None;
                };
                text.parse().map_err(|why: String| report.add(at.path, why, "")).ok()
            }
        }
    )* };
}

read_as_text!(Span: "30s", ByteSize: "64MiB", Bandwidth: "400GB/s");

/// Declares a section: a struct of what was written, its reader and its schema.
macro_rules! section {
    ($(#[$doc:meta])* $name:ident { $($key:ident: $kind:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub struct $name {
            $(pub $key: Option<$kind>,)*
        }

        impl $crate::config::read::Read for $name {
            fn read(at: $crate::config::read::Spot, report: &mut $crate::config::problem::Report) -> Option<$name> {
                let keys = $crate::config::read::Keys::of(at, report)?;
                keys.refuse_others(&[$(stringify!($key)),*], report);
                Some($name { $($key: keys.value(stringify!($key), report),)* })
            }

            fn schema(path: &str, paths: &mut Vec<String>) {
                $(<$kind as $crate::config::read::Read>::schema(
                    &$crate::config::read::join(path, stringify!($key)),
                    paths,
                );)*
            }
        }
    };
}

pub(crate) use section;
