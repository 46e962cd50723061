//! Where each key of a YAML text stands.
//!
//! The values come from serde_yaml, which does not tell lines; this second reading tells nothing else.
//! It is used only for messages, so it never fails: past a place that it cannot read, or under a key
//! that is not in the text, a line is that of the nearest enclosing key.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser};

use super::read::join;

/// A longer path is no key's; the keys under it are not told apart. Else a long key with many others in it
/// would be copied for each of them.
const PATH_BYTES_MAX: usize = 512;

/// Lines, from 1, by key path.
pub struct Lines {
    by_path: HashMap<String, Occurrences>,
    /// Lines of the text; no answer is beyond it.
    count: usize,
}

#[derive(Clone, Copy)]
struct Occurrences {
    first: usize,
    last: usize,
}

impl Lines {
    pub fn of(text: &str) -> Lines {
        let mut walk = Walk { by_path: HashMap::new(), open: Vec::new() };
        for event in Parser::new_from_str(text) {
            let Ok((event, span)) = event else { break };
            walk.step(event, span.start.line());
        }
        Lines { by_path: walk.by_path, count: text.lines().count().max(1) }
    }

    /// The line of the key, or of the nearest key around it.
    pub fn first(&self, path: &str) -> Option<usize> {
        self.nearest(path).map(|found| found.first.clamp(1, self.count))
    }

    /// The same for a key that stands in the text more than once: its last place.
    pub fn last(&self, path: &str) -> Option<usize> {
        self.nearest(path).map(|found| found.last.clamp(1, self.count))
    }

    fn nearest(&self, path: &str) -> Option<Occurrences> {
        let mut path = path;
        loop {
            if let Some(found) = self.by_path.get(path) {
                return Some(*found);
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }
}

/// The reading under way: the collections that are open, outermost first.
struct Walk {
    by_path: HashMap<String, Occurrences>,
    open: Vec<Open>,
}

enum Open {
    /// `key` is set between a key and its value.
    Map {
        path: String,
        key: Option<String>,
    },
    List {
        path: String,
        next: usize,
    },
}

impl Walk {
    fn step(&mut self, event: Event, line: usize) {
        match event {
            Event::Scalar(text, ..) => {
                self.enter(&text, line);
            }
            Event::Alias(_) => {
                self.enter("?", line);
            }
            Event::SequenceStart(..) => {
                let path = self.enter("?", line);
                self.open.push(Open::List { path, next: 0 });
            }
            Event::MappingStart(..) => {
                let path = self.enter("?", line);
                self.open.push(Open::Map { path, key: None });
            }
            Event::SequenceEnd | Event::MappingEnd => {
                self.open.pop();
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {}
        }
    }

    /// A node begins. Its path: as a key that of the value to come, as a value its own.
    fn enter(&mut self, text: &str, line: usize) -> String {
        let path = match self.open.last_mut() {
            None => return String::new(),
            Some(Open::Map { path, key }) => match key.take() {
                Some(key) => return bounded(join(path, &key)),
                None => {
                    *key = Some(text.to_owned());
                    join(path, text)
                }
            },
            Some(Open::List { path, next }) => {
                *next += 1;
                format!("{path}[{}]", *next - 1)
            }
        };
        let path = bounded(path);
        let seen = Occurrences { first: line, last: line };
        self.by_path.entry(path.clone()).and_modify(|known| known.last = line).or_insert(seen);
        path
    }
}

fn bounded(path: String) -> String {
    if path.len() > PATH_BYTES_MAX { "?".to_owned() } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_key_is_not_copied_for_each_key_in_it() {
        let lines =
            Lines::of(&format!("a: 1\n? {}\n:\n  a: 2\n  listen: 3\nlisten: 4\n", "k".repeat(PATH_BYTES_MAX + 1)));
        assert!(lines.by_path.keys().all(|path| path.len() <= PATH_BYTES_MAX));
        assert_eq!((lines.first("a"), lines.last("a"), lines.first("listen")), (Some(1), Some(1), Some(6)));
    }

    const TEXT: &str = "\
# a comment
listen:
  - address: a
  - address: b
admin: {address: c,
  token: d}
log:
  access: json
  access: text
? [complex, key]
: value
base: &base {x: 1}
copy: *base
after: 1
";

    #[track_caller]
    fn check(path: &str, first: Option<usize>, last: Option<usize>) {
        let lines = Lines::of(TEXT);
        assert_eq!((lines.first(path), lines.last(path)), (first, last), "{path}");
    }

    #[test]
    fn keys_and_items() {
        check("listen", Some(2), Some(2));
        check("listen[0]", Some(3), Some(3));
        check("listen[1].address", Some(4), Some(4));
        check("admin.address", Some(5), Some(5));
        check("admin.token", Some(6), Some(6));
        check("log.access", Some(8), Some(9));
        check("after", Some(14), Some(14));
    }

    #[test]
    fn what_is_not_there_is_near_its_parent() {
        check("listen[1].tls.cert", Some(4), Some(4));
        check("copy.x", Some(13), Some(13));
        check("nowhere", None, None);
        check("", None, None);
    }

    #[test]
    fn an_unreadable_rest_keeps_what_came_before() {
        assert_eq!(Lines::of("a: 1\nb: [\n").first("a"), Some(1));
    }
}
