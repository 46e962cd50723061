//! Keys of JSON as Go reads them, in which Ollama is written: in any case.
//!
//! Who looks into a body for what it names has to find what Ollama will find, whatever the spelling.

use std::borrow::Cow;

/// The key in small letters. Two letters beyond ASCII are Latin ones in another case, too: the long s and the sign for
/// kelvin (Go, `encoding/json/fold.go`).
pub(super) fn folded(key: &str) -> Cow<'_, str> {
    if key.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return Cow::Borrowed(key);
    }
    let small = |letter: char| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        _ => letter.to_ascii_lowercase(),
    };
    Cow::Owned(key.chars().map(small).collect())
}

#[cfg(test)]
mod tests {
    use super::folded;

    #[test]
    fn keys_are_read_in_any_case() {
        for (written, read) in [
            ("model", "model"),
            ("Num_Ctx", "num_ctx"),
            ("\u{17f}ource", "source"),
            ("\u{212a}eep_alive", "keep_alive"),
            ("\u{130}", "\u{130}"),
            ("", ""),
        ] {
            assert_eq!(folded(written), read);
        }
    }
}
