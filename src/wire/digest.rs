//! A digest of arbitrary JSON that does not see how it was spelled.
//!
//! Key order, white space and escapes do not enter; `1.0` equals `1`. Marks for the engine's cache
//! (`cache_control`) are not content and are left out at any depth. On the way it counts the characters
//! of the compact spelling, base64 payloads excepted, because the size estimate needs them.

use serde::de::{MapAccess, SeqAccess};

use super::value::{Scalar, Skip, Take, Taker, key};
use crate::routing::chain::{hash_text, mix};

/// Largest integer below which every `f64` without a fraction is exact.
const EXACT_FLOAT: f64 = 9_007_199_254_740_992.0;

/// A float's usual length; floats are rare and the estimate rough.
const FLOAT_CHARS: u64 = 4;

/// What a value comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Digest {
    pub hash: u64,
    /// Characters of the compact spelling; payloads count as nothing.
    pub chars: u64,
    /// An empty list or object, null, false or an empty text.
    pub empty: bool,
}

impl Digest {
    /// Nothing at all if the value was empty, so that an empty field equals an absent one.
    pub fn unless_empty(self) -> Digest {
        if self.empty { Digest::default() } else { self }
    }
}

/// Takes a value's digest.
#[derive(Clone, Copy, Default)]
pub(super) struct Digester {
    payload: bool,
}

impl<'de> Taker<'de> for Digester {
    type Out = Digest;

    fn scalar(self, scalar: Scalar<'_>) -> Digest {
        let (kind, value, chars) = match plain(scalar) {
            Scalar::Null => (Kind::Null, 0, 4),
            Scalar::Bool(b) => (Kind::Bool, u64::from(b), 5 - u64::from(b)),
            Scalar::Unsigned(n) => (Kind::Integer, n, digits(n)),
            Scalar::Signed(n) => (Kind::Integer, n.cast_unsigned(), 1 + digits(n.unsigned_abs())),
            Scalar::Float(f) => (Kind::Float, f.to_bits(), FLOAT_CHARS),
            Scalar::Text(text) => (Kind::Text, hash_text(text), 2 + self.text_chars(text)),
        };
        Digest { hash: mix(kind as u64, value), chars, empty: !scalar.is_filled() }
    }

    fn items<A: SeqAccess<'de>>(self, mut items: A) -> Result<Digest, A::Error> {
        let (mut hash, mut chars, mut count) = (Kind::List as u64, 2, 0);
        while let Some(item) = items.next_element_seed(Take(self))? {
            hash = mix(hash, item.hash);
            chars += item.chars + u64::from(count > 0);
            count += 1;
        }
        Ok(Digest { hash: mix(hash, count), chars, empty: count == 0 })
    }

    fn fields<A: MapAccess<'de>>(self, mut fields: A) -> Result<Digest, A::Error> {
        let (mut sum, mut chars, mut count) = (0u64, 2, 0u64);
        while let Some(name) = fields.next_key_seed(key(Key::of))? {
            if name.is_cache_mark {
                fields.next_value_seed(Take(Skip))?;
                continue;
            }
            let value = fields.next_value_seed(Take(Digester { payload: name.is_payload }))?;
            // A sum does not depend on the order of what is added.
            sum = sum.wrapping_add(mix(name.hash, value.hash));
            chars += name.chars + value.chars + u64::from(count > 0);
            count += 1;
        }
        Ok(Digest { hash: mix(Kind::Object as u64, sum), chars, empty: count == 0 })
    }
}

impl Digester {
    fn text_chars(self, text: &str) -> u64 {
        if self.payload || payload(text).is_some() { 0 } else { count_chars(text) }
    }
}

/// The base64 part of a `data:` URL.
pub(super) fn payload(text: &str) -> Option<&str> {
    /// A media type with its parameters is shorter than this.
    const HEAD: usize = 256;
    let head = text.strip_prefix("data:")?;
    let comma = head.bytes().take(HEAD).position(|b| b == b',')?;
    head.get(comma + 1..)
}

/// Characters of a text, counted by the bytes that begin one.
pub(super) fn count_chars(text: &str) -> u64 {
    text.chars().count() as u64
}

/// Keeps values of different types apart.
#[derive(Clone, Copy)]
enum Kind {
    Null = 1,
    Bool,
    Integer,
    Float,
    Text,
    List,
    Object,
}

struct Key {
    hash: u64,
    chars: u64,
    is_cache_mark: bool,
    is_payload: bool,
}

impl Key {
    fn of(key: &str) -> Key {
        Key {
            hash: hash_text(key),
            chars: count_chars(key) + 3,
            is_cache_mark: key == "cache_control",
            is_payload: matches!(key, "data" | "file_data" | "b64_json"),
        }
    }
}

/// An integer spelled as a float becomes one again.
fn plain(scalar: Scalar<'_>) -> Scalar<'_> {
    match scalar {
        Scalar::Float(f) if f.fract() != 0.0 || f.abs() >= EXACT_FLOAT => scalar,
        Scalar::Float(f) if f < 0.0 => Scalar::Signed(f as i64),
        Scalar::Float(f) => Scalar::Unsigned(f as u64),
        _ => scalar,
    }
}

fn digits(n: u64) -> u64 {
    u64::from(n.checked_ilog10().unwrap_or(0)) + 1
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeSeed;

    use super::*;

    fn digest(json: &str) -> Digest {
        let mut from = serde_json::Deserializer::from_str(json);
        Take(Digester::default()).deserialize(&mut from).unwrap()
    }

    #[track_caller]
    fn check_same(a: &str, b: &str) {
        assert_eq!(digest(a), digest(b));
    }

    #[track_caller]
    fn check_differ(a: &str, b: &str) {
        assert_ne!(digest(a).hash, digest(b).hash);
    }

    #[test]
    fn spelling_does_not_enter() {
        check_same(r#"{"a":1,"b":[true,null]}"#, "{ \"b\" : [ true , null ],\n\"a\":1.0 }");
        check_same(r#"{"k":"é"}"#, r#"{"\u006b":"\u00e9"}"#);
        check_same(r#"{"k":{"v":2}}"#, r#"{"k":{"cache_control":{"type":"ephemeral"},"v":2}}"#);
        check_same("[-0.0,-2.0,2e1]", "[0,-2,20]");
    }

    #[test]
    fn meaning_does() {
        check_differ(r#"{"a":1,"b":2}"#, r#"{"a":2,"b":1}"#);
        check_differ("[1,2]", "[2,1]");
        check_differ("[1,[2]]", "[[1],2]");
        check_differ("[]", "{}");
        check_differ("1", r#""1""#);
        check_differ("0", "false");
        check_differ("9007199254740993", "9007199254740992");
        check_differ("0.1", "0.2");
        check_differ("-1", "1");
    }

    #[test]
    fn characters_are_those_of_the_compact_spelling() {
        for json in ["null", "true", "false", "0", "-10", "[]", "{}", r#"{"a":[1,22,"é"],"bc":{}}"#] {
            assert_eq!(digest(json).chars, json.chars().count() as u64, "{json}");
        }
    }

    #[test]
    fn payloads_are_no_text() {
        assert_eq!(digest(r#"{"data":"AAAAAAAA"}"#).chars, digest(r#"{"data":""}"#).chars);
        assert_eq!(digest(r#""data:image/png;base64,AAAAAAAA""#).chars, 2);
        check_differ(r#"{"data":"AAAAAAAA"}"#, r#"{"data":"BBBBBBBB"}"#);
    }
}
