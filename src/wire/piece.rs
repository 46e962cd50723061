//! Texts cut into pieces of `PIECE_CHARS` characters.
//!
//! Characters, not bytes: a cut never falls inside one, so no text can make it panic. Cutting costs a
//! count of bytes that begin a character, which is cheap in any script.

use crate::routing::chain::PIECE_CHARS;

/// The first full piece and what follows it; `None` if the text is shorter than a piece.
pub(super) fn split(text: &str) -> Option<(&str, &str)> {
    text.split_at_checked(piece_end(text)?)
}

/// The byte after the first `PIECE_CHARS` characters.
fn piece_end(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut end, mut missing) = (0, PIECE_CHARS);
    // As many bytes as characters are missing never go too far; in ASCII the first stride arrives.
    while missing > 0 {
        let stride = bytes.get(end..end + missing)?;
        end += missing;
        missing -= chars(stride);
    }
    let inside = bytes[end..].iter().take_while(|&&b| !begins_char(b)).count();
    Some(end + inside)
}

/// How many characters begin among these bytes.
fn chars(bytes: &[u8]) -> usize {
    if bytes.is_ascii() {
        return bytes.len();
    }
    // Counted in bytes, many of them are counted at once.
    let few = |bytes: &[u8]| usize::from(bytes.iter().map(|&b| u8::from(begins_char(b))).sum::<u8>());
    bytes.chunks(COUNTED_IN_A_BYTE).map(few).sum()
}

/// So many at most fit into the count.
const COUNTED_IN_A_BYTE: usize = 128;

fn begins_char(byte: u8) -> bool {
    byte & 0b1100_0000 != 0b1000_0000
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pieces(mut text: &str) -> Vec<&str> {
        let mut found = vec![];
        while let Some((piece, rest)) = split(text) {
            found.push(piece);
            text = rest;
        }
        found.push(text);
        found
    }

    #[track_caller]
    fn check(text: &str, chars: &[usize]) {
        let found = pieces(text);
        assert_eq!(found.iter().map(|p| p.chars().count()).collect::<Vec<_>>(), chars);
        assert_eq!(found.concat(), text);
    }

    #[test]
    fn only_full_pieces_are_cut_off() {
        check("", &[0]);
        check(&"a".repeat(PIECE_CHARS - 1), &[PIECE_CHARS - 1]);
        check(&"a".repeat(PIECE_CHARS), &[PIECE_CHARS, 0]);
        check(&"a".repeat(2 * PIECE_CHARS + 5), &[PIECE_CHARS, PIECE_CHARS, 5]);
    }

    #[test]
    fn bal_07_cuts_fall_between_characters_of_any_width() {
        for wide in ["a", "é", "語", "🦀"] {
            for shift in 0..=300 {
                let text = "a".repeat(shift) + &wide.repeat(PIECE_CHARS);
                check(&text, &[PIECE_CHARS, shift]);
            }
        }
    }

    proptest! {
        #[test]
        fn every_piece_is_full_and_nothing_is_lost(text in "[a-cé語🦀]{0,5000}") {
            let found = pieces(&text);
            let (last, full) = found.split_last().unwrap();
            prop_assert!(full.iter().all(|p| p.chars().count() == PIECE_CHARS));
            prop_assert!(last.chars().count() < PIECE_CHARS);
            prop_assert_eq!(found.concat(), text);
        }
    }
}
