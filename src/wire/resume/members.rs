//! The members of a JSON object as they stand there, and what is said by their values.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::super::key::folded;
use super::super::listed::Listed;

/// Members of one object. Requests have some twenty.
const MEMBERS_MAX: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Members<'a>(Listed<'a>);

impl<'a> Members<'a> {
    /// `None`: no object, one with too many members, or one whose members two readers may take for two things.
    pub fn read(json: &'a str) -> Option<Members<'a>> {
        let members: Listed = serde_json::from_str(json).ok()?;
        if members.0.len() > MEMBERS_MAX {
            return None;
        }
        let mut names = HashSet::new();
        let is_clear = members.0.iter().all(|(name, _)| names.insert(folded(name)));
        drop(names);
        is_clear.then_some(Members(members))
    }

    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.named(name).next()
    }

    /// The same, if it says anything.
    pub fn filled(&self, name: &str) -> Option<&'a RawValue> {
        self.get(name).filter(|raw| is_filled(raw))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.0.iter().map(|(name, raw)| (name.as_str(), *raw))
    }

    pub fn count(&self, name: &str) -> Option<u32> {
        self.get(name)?.get().parse().ok()
    }
}

/// The last of a list's items, the others passed over; `None`: no list, or an empty one.
pub(super) fn last_item(json: &str) -> Option<&RawValue> {
    struct Reader;
    impl<'de> Visitor<'de> for Reader {
        type Value = Option<&'de RawValue>;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut last = None;
            while let Some(item) = items.next_element::<&'de RawValue>()? {
                last = Some(item);
            }
            Ok(last)
        }
    }
    serde_json::Deserializer::from_str(json).deserialize_seq(Reader).ok()?
}

/// How many items a list has, up to two.
pub(super) fn one_item(json: &str) -> Option<Option<&RawValue>> {
    let items: Vec<IgnoredAny> = serde_json::from_str(json).ok()?;
    match items.len() {
        0 => Some(None),
        1 => Some(last_item(json)),
        _ => None,
    }
}

/// Anything but null, false, zero or empty.
pub(super) fn is_filled(raw: &RawValue) -> bool {
    let text = raw.get();
    let inner = text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
    let is_empty = matches!(text.as_bytes().first(), Some(b'{' | b'[' | b'"')) && inner.trim().is_empty();
    !is_empty && !matches!(text, "null" | "false" | "0")
}

/// A text; `None`: the value is another thing, or no valid text. Nothing said is an empty one.
pub(super) fn text(raw: Option<&RawValue>) -> Option<String> {
    match raw.map(RawValue::get) {
        None | Some("null") => Some(String::new()),
        Some(json) => serde_json::from_str(json).ok(),
    }
}

/// Where a value stands in the bytes that it was read from.
pub(super) fn span(bytes: &[u8], raw: &RawValue) -> Range<usize> {
    super::super::peek::span(bytes, raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_filled(json: &str, expected: bool) {
        let raw: &RawValue = serde_json::from_str(json).unwrap();
        assert_eq!(is_filled(raw), expected, "{json}");
    }

    #[test]
    fn what_says_nothing_is_not_filled() {
        for json in ["null", "false", "0", "\"\"", "[]", "{ }"] {
            check_filled(json, false);
        }
        for json in ["true", "1", "\"x\"", "[0]", "{\"a\":null}"] {
            check_filled(json, true);
        }
    }

    #[test]
    fn objects_that_two_readers_read_differently_are_not_read() {
        assert!(Members::read(r#"{"a":1,"b":2}"#).is_some());
        assert!(Members::read(r#"{"a":1,"A":2}"#).is_none());
        assert!(Members::read("[1]").is_none());
        let many: Vec<String> = (0..=MEMBERS_MAX).map(|n| format!("\"m{n}\":1")).collect();
        assert!(Members::read(&format!("{{{}}}", many.join(","))).is_none());
    }

    #[test]
    fn lists_are_read_for_what_stands_last_in_them() {
        assert_eq!(last_item("[1,[2,3]]").map(RawValue::get), Some("[2,3]"));
        assert!(last_item("[]").is_none() && last_item("{}").is_none());
        assert!(one_item("[1,2]").is_none() && one_item("[]").is_some_and(|item| item.is_none()));
    }
}
