//! Text from outside in lines of the log, where it must neither end a line nor look like another.
//!
//! What is escaped is what some reader takes for the end of a line, what a terminal obeys, and what turns the order
//! of letters round: controls (C0, DEL, C1), U+2028 and U+2029, marks and overrides of direction. All else stays as it
//! is, so that names remain readable. Every line passes here: events by `Line`, fields of access lines by `Word`,
//! JSON by `Json`.

use std::fmt::{self, Write as _};
use std::io;

use serde_json::ser::{CompactFormatter, Formatter};

/// Of an event: one line.
pub struct Line<'a>(pub &'a str);

/// Of a text line with fields between blanks: one field. A dash where there is nothing.
pub struct Word<'a>(pub &'a str);

/// Writes JSON that is one line for every reader.
#[derive(Default)]
pub struct Json(CompactFormatter);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        escape(self.0, may_mislead, f)
    }
}

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.0 {
            "" => f.write_char('-'),
            text => escape(text, |c| c.is_whitespace() || may_mislead(c), f),
        }
    }
}

impl Formatter for Json {
    /// Of a string, what `serde_json` has found no need to escape.
    fn write_string_fragment<W: io::Write + ?Sized>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        for (plain, sought) in pieces(fragment, may_mislead) {
            self.0.write_string_fragment(writer, plain)?;
            if let Some(c) = sought {
                // All of them are of the first plane.
                write!(writer, "\\u{:04x}", u32::from(c))?;
            }
        }
        Ok(())
    }
}

fn escape(text: &str, is_escaped: impl Fn(char) -> bool, f: &mut fmt::Formatter) -> fmt::Result {
    for (plain, sought) in pieces(text, is_escaped) {
        f.write_str(plain)?;
        if let Some(c) = sought {
            write!(f, "{}", c.escape_unicode())?;
        }
    }
    Ok(())
}

/// The text in pieces, each with the character that is sought and ends it; the last ends with the text.
fn pieces(text: &str, is_sought: impl Fn(char) -> bool) -> impl Iterator<Item = (&str, Option<char>)> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        // Most texts are plain, and this is asked of each.
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        let found = if is_plain { None } else { text.char_indices().find(|(_, c)| is_sought(*c)) };
        let Some((at, c)) = found else { return Some((text, None)) };
        rest = text.get(at + c.len_utf8()..);
        Some((text.get(..at)?, Some(c)))
    })
}

fn may_mislead(c: char) -> bool {
    // Controls are C0, DEL and C1.
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{feff}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use serde::Serialize as _;
    use serde_json::{Serializer, Value};

    use super::*;

    #[track_caller]
    fn check(text: &str, line: &str, word: &str) {
        assert_eq!(Line(text).to_string(), line);
        assert_eq!(Word(text).to_string(), word);
        let mut json = Vec::new();
        text.serialize(&mut Serializer::with_formatter(&mut json, Json::default())).expect("memory");
        let json = String::from_utf8(json).expect("text");
        assert!(!json.chars().any(may_mislead), "{json:?}");
        assert_eq!(serde_json::from_str::<Value>(&json).expect("JSON"), text, "{json}");
    }

    #[test]
    fn nothing_ends_a_line_or_turns_it_round() {
        check("qwen3:8b", "qwen3:8b", "qwen3:8b");
        check("größer 模型", "größer 模型", "größer\\u{20}模型");
        check("a\nb\r", "a\\u{a}b\\u{d}", "a\\u{a}b\\u{d}");
        check("a\u{2028}b\u{2029}", "a\\u{2028}b\\u{2029}", "a\\u{2028}b\\u{2029}");
        check(
            "\u{85}\u{9b}31m\u{1b}[2J\u{7f}",
            "\\u{85}\\u{9b}31m\\u{1b}[2J\\u{7f}",
            "\\u{85}\\u{9b}31m\\u{1b}[2J\\u{7f}",
        );
        check("\u{202e}ko\u{2069}\u{61c}", "\\u{202e}ko\\u{2069}\\u{61c}", "\\u{202e}ko\\u{2069}\\u{61c}");
        check("say \"a\\b\"", "say \"a\\b\"", "say\\u{20}\"a\\b\"");
        check("", "", "-");
    }
}
