//! A list as clients get it, of which some may see a part only.

use std::ops::Range;

use bytes::Bytes;
use serde_json::Value;

/// The bytes of all of it, and where in them each entry stands.
#[derive(Clone, Default)]
pub struct List {
    whole: Bytes,
    entries: Vec<(String, Range<usize>)>,
    after: &'static str,
}

impl List {
    /// Of these entries, each under its name, between what stands before and after them.
    pub fn of<'a>(
        before: &'static str,
        entries: impl Iterator<Item = &'a Value>,
        name: &str,
        after: &'static str,
    ) -> List {
        let mut text = String::from(before);
        let mut places = Vec::new();
        for entry in entries {
            if !places.is_empty() {
                text.push(',');
            }
            let start = text.len();
            text += &entry.to_string();
            places.push((entry[name].as_str().unwrap_or_default().to_owned(), start..text.len()));
        }
        text += after;
        List { whole: text.into(), entries: places, after }
    }

    pub fn whole(&self) -> Bytes {
        self.whole.clone()
    }

    /// Only the entries of such names.
    pub fn only(&self, may_see: impl Fn(&str) -> bool) -> Bytes {
        let head = self.entries.first().map_or(self.whole.len() - self.after.len(), |(_, place)| place.start);
        let mut part = self.whole.get(..head).unwrap_or_default().to_vec();
        for (_, place) in self.entries.iter().filter(|(name, _)| may_see(name)) {
            if part.len() > head {
                part.push(b',');
            }
            part.extend_from_slice(self.whole.get(place.clone()).unwrap_or_default());
        }
        part.extend_from_slice(self.after.as_bytes());
        part.into()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_part_is_a_list_too() {
        let entries = ["a", "b", "c"].map(|name| json!({"id": name}));
        let list = List::of(r#"{"data":["#, entries.iter(), "id", r#"],"object":"list"}"#);
        let check = |names: &str, expected: &str| {
            let part = list.only(|name| names.contains(name));
            assert_eq!(part, format!(r#"{{"data":[{expected}],"object":"list"}}"#), "{names}");
        };
        check("abc", r#"{"id":"a"},{"id":"b"},{"id":"c"}"#);
        check("ac", r#"{"id":"a"},{"id":"c"}"#);
        check("b", r#"{"id":"b"}"#);
        check("", "");
        assert_eq!(list.whole(), list.only(|_| true));
        let empty = List::of("[", [].iter(), "id", "]");
        assert_eq!((empty.whole(), empty.only(|_| true)), (Bytes::from("[]"), Bytes::from("[]")));
    }
}
