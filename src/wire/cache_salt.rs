//! The `cache_salt` of a request to vLLM or SGLang: prompts are found in the cache only under the same one.
//!
//! Says only what to write. Whatever the body holds besides stays as it is (L9).

use serde::de::{DeserializeSeed, MapAccess};
use serde_json::value::RawValue;

use super::edit::Edit;
use super::value::{Skip, Take, Taker, key};

/// What makes the body say the salt that `salt` makes of the client's own, which may be none. One of a kind that
/// is no salt is the engine's to judge; one that is there twice is made the same in both places.
pub fn edits(bytes: &[u8], salt: impl Fn(&str) -> String) -> Vec<Edit> {
    let said = Take(Salts).deserialize(&mut serde_json::Deserializer::from_slice(bytes)).unwrap_or_default();
    if said.is_empty() {
        // The object has a model in it, so that something follows.
        let brace = bytes.iter().position(|&b| b == b'{');
        let member = || format!(r#""cache_salt":{},"#, quoted(&salt(""))).into_bytes();
        return brace.map(|brace| Edit::insert(brace + 1, member())).into_iter().collect();
    }
    let edit = |raw: &RawValue| {
        let clients: Option<String> = serde_json::from_str(raw.get()).ok()?;
        let made = quoted(&salt(clients.as_deref().unwrap_or_default()));
        Some(Edit::replace(super::peek::span(bytes, raw), made.into_bytes()))
    };
    said.into_iter().filter_map(edit).collect()
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

struct Salts;

impl<'de> Taker<'de> for Salts {
    type Out = Vec<&'de RawValue>;

    fn fields<A: MapAccess<'de>>(self, mut fields: A) -> Result<Vec<&'de RawValue>, A::Error> {
        let mut said = Vec::new();
        while let Some(is_salt) = fields.next_key_seed(key(|name| name == "cache_salt"))? {
            if is_salt {
                said.push(fields.next_value()?);
            } else {
                fields.next_value_seed(Take(Skip))?;
            }
        }
        Ok(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::edit::edited;

    #[track_caller]
    fn check(body: &str, expected: &str) {
        let edits = edits(body.as_bytes(), |clients| format!("S+{clients}"));
        assert_eq!(String::from_utf8(edited(body.as_bytes(), edits).unwrap()).unwrap(), expected);
    }

    #[test]
    fn a_body_says_the_salt_and_is_otherwise_as_it_was() {
        check(r#" {"model":"m", "x":1e400}"#, r#" {"cache_salt":"S+","model":"m", "x":1e400}"#);
        check(r#"{"model":"m","cache_salt" : "mine","a":1}"#, r#"{"model":"m","cache_salt" : "S+mine","a":1}"#);
        check(r#"{"model":"m","cache_salt":null}"#, r#"{"model":"m","cache_salt":"S+"}"#);
        check(r#"{"cache\u005fsalt":"\u0061","model":"m"}"#, r#"{"cache\u005fsalt":"S+a","model":"m"}"#);
        check(r#"{"cache_salt":"a","cache_salt":"b"}"#, r#"{"cache_salt":"S+a","cache_salt":"S+b"}"#);
        check(r#"{"model":"m","x":{"cache_salt":"a"}}"#, r#"{"cache_salt":"S+","model":"m","x":{"cache_salt":"a"}}"#);
        check(r#"{"model":"m","cache_salt":7}"#, r#"{"model":"m","cache_salt":7}"#);
    }
}
