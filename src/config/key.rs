//! Clients' keys: only their hashes are ever known here.
//!
//! A key is random and long, so one round of SHA-256 is enough to keep it. What looks like a key where a
//! hash belongs is never quoted. Keys that the whole world knows, from examples and tutorials, are refused.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use once_cell::sync::Lazy;
use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The SHA-256 of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash([u8; 32]);

/// A key that is shorter can be tried out.
pub const KEY_CHARS_MIN: usize = 20;

/// Longer than any key, shorter than what would fill a header.
pub const KEY_CHARS_MAX: usize = 1024;

const PREFIX: &str = "sha256:";

/// Stand in examples, tutorials and defaults, and are tried first by whoever tries.
const WELL_KNOWN: [&str; 36] = [
    "",
    "sk-1234",
    "sk-12345",
    "sk-123456",
    "sk-1234567890",
    "sk-anything",
    "sk-test",
    "sk-no-key-required",
    "sk-no-key",
    "sk-xxx",
    "sk-xxxx",
    "no-key",
    "no-key-required",
    "nokey",
    "none",
    "null",
    "empty",
    "EMPTY",
    "dummy",
    "fake",
    "fake-key",
    "test",
    "test-key",
    "token-abc123",
    "ollama",
    "vllm",
    "sglang",
    "litellm",
    "lm-studio",
    "changeme",
    "change-me",
    "secret",
    "password",
    "admin",
    "your-api-key",
    "YOUR_API_KEY",
];

static WELL_KNOWN_HASHES: Lazy<HashSet<KeyHash>> = Lazy::new(|| WELL_KNOWN.map(KeyHash::of).into());

impl KeyHash {
    pub fn of(key: &str) -> KeyHash {
        KeyHash(Sha256::digest(key.as_bytes()).into())
    }

    /// Takes the same time wherever the two differ.
    pub fn is(&self, other: &KeyHash) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    pub fn is_well_known(&self) -> bool {
        WELL_KNOWN_HASHES.contains(self)
    }

    /// By which it is found among others; tells nothing of the key.
    pub fn beginning(&self) -> [u8; 8] {
        let mut beginning = [0; 8];
        beginning.iter_mut().zip(self.0).for_each(|(to, from)| *to = from);
        beginning
    }

    /// As it is written in a configuration.
    pub fn written(&self) -> String {
        let digits = self.0.iter().map(|byte| format!("{byte:02x}"));
        PREFIX.chars().map(String::from).chain(digits).collect()
    }
}

/// Why nobody should use a key, if so.
pub fn unfit(key: &str) -> Option<&'static str> {
    match key.chars().count() {
        _ if KeyHash::of(key).is_well_known() => Some("this key stands in examples everywhere, and is tried first"),
        0..KEY_CHARS_MIN => Some("this key is too short, and can be found by trying"),
        KEY_CHARS_MAX.. => Some("this key is too long for a header"),
        _ if !key.bytes().all(|byte| byte.is_ascii_graphic()) => Some("this key has characters that no header carries"),
        _ => None,
    }
}

impl FromStr for KeyHash {
    type Err = ();

    fn from_str(text: &str) -> Result<KeyHash, ()> {
        let digits = text.strip_prefix(PREFIX).ok_or(())?;
        if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(());
        }
        let mut hash = [0; 32];
        for (byte, at) in hash.iter_mut().zip((0..64).step_by(2)) {
            let digits = digits.get(at..at + 2).ok_or(())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| ())?;
        }
        Ok(KeyHash(hash))
    }
}

const HIDDEN: &str = "(hidden)";

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for KeyHash {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(HIDDEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_written_as_it_is_read() {
        // The digest of "abc" in FIPS 180-2.
        let written = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(KeyHash::of("abc").written(), written);
        assert_eq!(written.parse(), Ok(KeyHash::of("abc")));
        assert_eq!(written.to_uppercase().replace("SHA256", "sha256").parse(), Ok(KeyHash::of("abc")));
        for odd in ["", "sha256:", "abc", &written[..70], &format!("{written}0"), &written.replace("ba78", "bé7")] {
            assert_eq!(odd.parse::<KeyHash>(), Err(()), "{odd}");
        }
    }

    #[test]
    fn a_hash_is_not_shown() {
        let hash = KeyHash::of("abc");
        assert_eq!(
            (format!("{hash:?}"), serde_json::to_string(&hash).unwrap()),
            ("(hidden)".into(), "\"(hidden)\"".into())
        );
    }

    #[test]
    fn keys_that_anybody_could_guess_are_unfit() {
        let check = |key: &str, expected: bool| assert_eq!(unfit(key).is_none(), expected, "{key}");
        check("sk-1234", false);
        check("changeme", false);
        check("", false);
        check("nineteen-characters", false);
        check("twenty-characters-xx", true);
        check(&"x".repeat(KEY_CHARS_MAX), false);
        check("spaces in a key are unfit", false);
        assert!(KeyHash::of("sk-1234").is_well_known() && !KeyHash::of("sk-12340").is_well_known());
    }
}
