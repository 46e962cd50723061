//! A JSON object taken apart, its values left as they were written.
//!
//! Values are lent from the body and not parsed: a text of a megabyte or a schema whose order matters goes
//! through byte for byte. What is taken is gone, so what is left in the end is what nobody here knows. Of a
//! name that comes twice the last counts, as it does for Ollama.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::raw;

/// Most members of one object. The richest request known has some sixty.
pub(super) const MEMBERS_MAX: usize = 256;

pub(super) const UNREADABLE: &str = "it is not a JSON object with at most 256 members";

const BOM: &[u8] = b"\xef\xbb\xbf";

#[derive(Debug, Default)]
pub(super) struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Fields<'a> {
    pub fn read(json: &'a [u8]) -> Option<Fields<'a>> {
        serde_json::from_slice(json.strip_prefix(BOM).unwrap_or(json)).ok()
    }

    pub fn of(raw: &'a RawValue) -> Option<Fields<'a>> {
        serde_json::from_str(raw.get()).ok()
    }

    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| *value)
    }

    /// Takes a member out; null is as good as absent.
    pub fn take(&mut self, name: &str) -> Option<&'a RawValue> {
        let at = self.0.iter().position(|(key, _)| key == name)?;
        let (_, value) = self.0.swap_remove(at);
        (value.get() != "null").then_some(value)
    }

    /// Takes a member out; `None` unless it says something.
    pub fn take_filled(&mut self, name: &str) -> Option<&'a RawValue> {
        self.take(name).filter(|value| raw::is_filled(value))
    }

    /// An object within this one; empty if there is none.
    pub fn take_fields(&mut self, name: &str) -> Fields<'a> {
        self.take(name).and_then(Fields::of).unwrap_or_default()
    }

    pub fn into_members(mut self) -> Vec<(Cow<'a, str>, &'a RawValue)> {
        // Taking others out has shuffled what is left; a prompt cache likes the same bytes each time.
        self.0.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.0
    }

    fn add(&mut self, name: Cow<'a, str>, value: &'a RawValue) {
        match self.0.iter_mut().find(|(key, _)| *key == name) {
            Some((_, earlier)) => *earlier = value,
            None => self.0.push((name, value)),
        }
    }
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Fields<'de>, D::Error> {
        from.deserialize_map(Reader)
    }
}

struct Reader;

/// A name, lent from the JSON unless an escape is in it.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Visitor<'de> for Reader {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Fields<'de>, A::Error> {
        let mut fields = Fields::default();
        while let Some((Name(name), value)) = members.next_entry()? {
            if fields.0.len() == MEMBERS_MAX {
                return Err(A::Error::custom("too many members"));
            }
            fields.add(name, value);
        }
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_taken_once_and_as_they_were_written() {
        let mut fields = Fields::read(br#"{"a":1,"b":{"z": 1, "y":"\ud83d"},"a":2,"c":null,"d":[ ]}"#).unwrap();
        assert_eq!(fields.take("a").unwrap().get(), "2");
        assert!(fields.take("a").is_none());
        assert_eq!(fields.take("b").unwrap().get(), r#"{"z": 1, "y":"\ud83d"}"#);
        assert!(fields.take("c").is_none());
        assert!(fields.take_filled("d").is_none());
        assert!(fields.into_members().is_empty());
    }

    #[test]
    fn only_objects_of_a_bounded_size_are_read() {
        for json in ["", "[]", "1", "{", "{} {}", "{\"a\":\"\u{1}\"}"] {
            assert!(Fields::read(json.as_bytes()).is_none(), "{json}");
        }
        assert!(Fields::read(b"\xef\xbb\xbf{}").is_some());
        let members = |n: usize| (0..n).map(|at| format!("\"{at}\":0")).collect::<Vec<_>>().join(",");
        assert!(Fields::read(format!("{{{}}}", members(MEMBERS_MAX)).as_bytes()).is_some());
        assert!(Fields::read(format!("{{{}}}", members(MEMBERS_MAX + 1)).as_bytes()).is_none());
    }
}
