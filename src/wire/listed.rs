//! The members of a JSON object as they are listed there: in their order, those that come twice as well.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::key::folded;

#[derive(Debug, Default)]
pub struct Listed<'a>(pub Vec<(String, &'a RawValue)>);

impl<'a> Listed<'a> {
    /// What is said under this name, in whatever case.
    pub fn named(&self, name: &str) -> impl Iterator<Item = &'a RawValue> {
        self.0.iter().filter(move |(held, _)| folded(held) == name).map(|(_, raw)| *raw)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Listed<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Listed<'a>, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
                let mut listed = Vec::new();
                while let Some(member) = members.next_entry()? {
                    listed.push(member);
                }
                Ok(listed)
            }
        }
        from.deserialize_map(Reader).map(Listed)
    }
}
