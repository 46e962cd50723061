//! What a JSON value that was left as written is.
//!
//! Each question is answered from the value's own text, and only when it is asked.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Most items of one list: messages, images, tool calls, vectors.
pub(super) const ITEMS_MAX: usize = 65_536;

/// Whether it says something: not null, false, empty.
pub(super) fn is_filled(raw: &RawValue) -> bool {
    let text = raw.get();
    let inside = text.strip_prefix(['[', '{']).and_then(|text| text.strip_suffix([']', '}']));
    !matches!(text, "null" | "false" | "\"\"") && inside.is_none_or(|inside| !inside.trim_ascii().is_empty())
}

pub(super) fn is_text(raw: &RawValue) -> bool {
    raw.get().starts_with('"')
}

pub(super) fn is_object(raw: &RawValue) -> bool {
    raw.get().starts_with('{')
}

pub(super) fn is_list(raw: &RawValue) -> bool {
    raw.get().starts_with('[')
}

/// A text, escapes undone; lent unless it has some.
pub(super) fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(serde::Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str(raw.get()).ok().map(|Text(text)| text)
}

pub(super) fn flag(raw: &RawValue) -> Option<bool> {
    match raw.get() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

pub(super) fn number(raw: &RawValue) -> Option<f64> {
    serde_json::from_str(raw.get()).ok()
}

/// A number that is zero or more, its fraction cut off.
pub(super) fn count(raw: &RawValue) -> Option<u64> {
    number(raw).filter(|&n| n >= 0.0).map(|n| n as u64)
}

/// The items of a list; `None` for anything else, and for a list that is too long.
pub(super) fn items(raw: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::from_str(raw.get()).ok().map(|Items(items)| items)
}

struct Items<'a>(Vec<&'a RawValue>);

impl<'de> Deserialize<'de> for Items<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Items<'de>, D::Error> {
        from.deserialize_seq(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Items<'de>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Items<'de>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = from.next_element()? {
            if items.len() == ITEMS_MAX {
                return Err(A::Error::custom("too many items"));
            }
            items.push(item);
        }
        Ok(Items(items))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emptiness_has_many_spellings() {
        for (json, filled) in [
            ("null", false),
            ("false", false),
            ("\"\"", false),
            ("[ ]", false),
            ("{\n}", false),
            ("0", true),
            ("true", true),
            ("\"a\"", true),
            ("[0]", true),
            ("[[]]", true),
        ] {
            assert_eq!(is_filled(serde_json::from_str(json).unwrap()), filled, "{json}");
        }
    }

    #[test]
    fn a_list_is_bounded() {
        let list = |n: usize| RawValue::from_string(format!("[{}]", vec!["0"; n].join(","))).unwrap();
        assert_eq!(items(&list(ITEMS_MAX)).unwrap().len(), ITEMS_MAX);
        assert!(items(&list(ITEMS_MAX + 1)).is_none());
        assert!(items(&RawValue::from_string("{}".into()).unwrap()).is_none());
    }
}
