//! Messages of a stream that differ in nothing but what they say.
//!
//! One token after the other comes in the same JSON, with another text and another time in it. Once such a
//! message was read, the next is compared with it instead: whatever stands around the texts must be the same
//! to the byte, and the texts must be whole and as empty or filled as they were. Then reading it would tell
//! the same, since of these texts a reader only asks whether they are empty. Anything else is not alike.

use memchr::{memchr, memchr2};

/// Longer messages are read each time; an open stream should cost little.
const LENGTH_MAX: usize = 2 * 1024;

/// Texts and numbers in one message that may differ.
const HOLES_MAX: usize = 8;

/// Keys of texts of which no reader asks more than whether they are empty.
const TEXTS: [&[u8]; 11] = [
    b"content",
    b"text",
    b"response",
    b"delta",
    b"thinking",
    b"reasoning",
    b"reasoning_content",
    b"partial_json",
    b"arguments",
    b"created_at",
    b"obfuscation",
];

/// Keys of whole numbers that no reader asks for.
const NUMBERS: [&[u8]; 2] = [b"created", b"sequence_number"];

/// Longer numbers could be none that JSON's readers take.
const DIGITS_MAX: usize = 18;

/// A message that was read, and where others may differ from it.
#[derive(Debug)]
pub(super) struct Pattern {
    message: Vec<u8>,
    /// In order.
    holes: Vec<Hole>,
}

#[derive(Clone, Copy, Debug)]
struct Hole {
    from: usize,
    to: usize,
    is_number: bool,
}

impl Pattern {
    /// Of a message that is known to be JSON to its end; `None`: it is not one to compare others with.
    pub fn of(message: &[u8]) -> Option<Pattern> {
        if message.len() > LENGTH_MAX {
            return None;
        }
        let holes = holes(message)?;
        Some(Pattern { message: message.to_vec(), holes })
    }

    /// Whether reading that message would tell the same.
    pub fn fits(&self, message: &[u8]) -> bool {
        let (mut rest, mut from) = (message, 0);
        for hole in &self.holes {
            let Some(after) = self.message.get(from..hole.from).and_then(|around| rest.strip_prefix(around)) else {
                return false;
            };
            let filling = if hole.is_number { digits(after) } else { text(after) };
            let was_empty = hole.from == hole.to;
            let Some(length) = filling.filter(|length| (*length == 0) == was_empty) else { return false };
            (rest, from) = (&after[length..], hole.to);
        }
        self.message.get(from..) == Some(rest)
    }
}

/// Where a message may differ; `None`: nowhere, or in too many places.
fn holes(message: &[u8]) -> Option<Vec<Hole>> {
    let mut holes = Vec::with_capacity(HOLES_MAX);
    let mut at = 0;
    while let Some(quote) = message.get(at..).and_then(|rest| memchr(b'"', rest)) {
        let key_at = at + quote + 1;
        let key = message.get(key_at..key_at + text(message.get(key_at..)?)?)?;
        at = key_at + key.len() + 1;
        // Written with blanks around the colon, it is read each time.
        let Some(value) = message.get(at..).and_then(|rest| rest.strip_prefix(b":")) else { continue };
        let from = at + 1;
        if let Some(said) = value.strip_prefix(b"\"").filter(|_| TEXTS.contains(&key)) {
            let length = text(said)?;
            holes.push(Hole { from: from + 1, to: from + 1 + length, is_number: false });
            at = from + 1 + length + 1;
        } else if NUMBERS.contains(&key)
            && let Some(length) = digits(value)
        {
            holes.push(Hole { from, to: from + length, is_number: true });
        }
    }
    (1..=HOLES_MAX).contains(&holes.len()).then_some(holes)
}

/// The length of the text that ends at the next quote; `None`: there is none, or a reader may not take it.
fn text(rest: &[u8]) -> Option<usize> {
    let mut end = 0;
    loop {
        end += memchr2(b'"', b'\\', rest.get(end..)?)?;
        if rest[end] == b'"' {
            break;
        }
        // Escapes by number may be halves of a character.
        if !matches!(rest.get(end + 1)?, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') {
            return None;
        }
        end += 2;
    }
    let text = &rest[..end];
    let is_clean = !text.iter().fold(false, |any, byte| any | (*byte < b' '));
    (is_clean && (text.is_ascii() || std::str::from_utf8(text).is_ok())).then_some(end)
}

/// How many digits a whole number begins with that is told in digits alone.
fn digits(rest: &[u8]) -> Option<usize> {
    let length = rest.iter().take(DIGITS_MAX + 1).take_while(|byte| byte.is_ascii_digit()).count();
    let is_whole = matches!(rest.get(length), Some(b',' | b'}'));
    ((1..=DIGITS_MAX).contains(&length) && rest[0] != b'0' && is_whole).then_some(length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::event;

    const OPENAI: &str = r#"{"id":"c1","object":"chat.completion.chunk","created":17,"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}"#;
    const OLLAMA: &str = r#"{"model":"m","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":"a"},"done":false}"#;

    #[track_caller]
    fn check(before: &str, message: &str, expected: bool) {
        let pattern = Pattern::of(before.as_bytes()).expect("a pattern");
        assert_eq!(pattern.fits(message.as_bytes()), expected, "{message}");
        if expected {
            assert_eq!(event::read(message.as_bytes()), event::read(before.as_bytes()), "{message}");
        }
    }

    #[test]
    fn the_next_word_is_alike() {
        for word in ["b", " and more", r"\n", r#"{\"k\": \"v\"}"#, "é🦀"] {
            check(OPENAI, &OPENAI.replace(r#""a""#, &format!(r#""{word}""#)).replace("17", "18"), true);
            check(OLLAMA, &OLLAMA.replace(r#""a""#, &format!(r#""{word}""#)).replace("00Z", "01.5Z"), true);
        }
    }

    #[test]
    fn what_tells_something_else_is_not() {
        for (from, to) in [
            (r#""a""#, r#""""#),
            (r#""a""#, "null"),
            (r#""a""#, r#""\ud83e""#),
            (r#""a""#, "\"a\tb\""),
            (r#""a""#, r#""a","tool_calls":[]"#),
            (r#""a""#, r#""\x""#),
            ("17", "017"),
            ("17", "17e9"),
            ("17", r#""17""#),
            ("null}", r#""stop"}"#),
            ("]}", r#"],"usage":{"prompt_tokens":1}}"#),
            ("]}", "]"),
            ("c1", "c2"),
        ] {
            let message = OPENAI.replacen(from, to, 1);
            assert_ne!(message, OPENAI);
            check(OPENAI, &message, false);
        }
        check(OLLAMA, &OLLAMA.replace("false", "true"), false);
        let bytes = [OPENAI.as_bytes(), b"x"].concat();
        assert!(!Pattern::of(OPENAI.as_bytes()).unwrap().fits(&bytes));
    }

    #[test]
    fn some_are_no_pattern() {
        assert!(Pattern::of(br#"{"done":true}"#).is_none());
        assert!(Pattern::of(OPENAI.replace('a', &"a".repeat(LENGTH_MAX)).as_bytes()).is_none());
        let many = (0..=HOLES_MAX).map(|_| r#"{"text":"a"}"#).collect::<Vec<_>>().join(",");
        assert!(Pattern::of(format!("[{many}]").as_bytes()).is_none());
    }

    proptest! {
        /// A message that fits tells what the pattern did, whatever came of it on the way.
        #[test]
        fn what_fits_reads_the_same(
            of in prop::sample::select(vec![OPENAI, OLLAMA]),
            at in 0usize..130,
            cut in 0usize..3,
            put in r#"["\\a-c{}:,0-9\n é]{0,4}"#,
        ) {
            let pattern = Pattern::of(of.as_bytes()).unwrap();
            let (at, until) = (at.min(of.len()), (at + cut).min(of.len()));
            let message = [&of.as_bytes()[..at], put.as_bytes(), &of.as_bytes()[until..]].concat();
            if pattern.fits(&message) {
                prop_assert_eq!(event::read(&message), event::read(of.as_bytes()));
            }
        }
    }
}
