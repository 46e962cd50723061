//! Half characters in JSON escapes.
//!
//! A client that cuts a text in the middle of an emoji sends `\ud83e` without its other half. Engines
//! read it as U+FFFD; serde_json refuses the body. `mended` makes a copy to be read, in which such an
//! escape is U+FFFD. It is just as long, so every place in it is the same place in the body.

use std::ops::RangeInclusive;

const HIGH: RangeInclusive<u16> = 0xd800..=0xdbff;
const LOW: RangeInclusive<u16> = 0xdc00..=0xdfff;
const REPLACEMENT: &[u8] = br"\ufffd";

/// A copy without half characters; `None` if there are none.
pub(super) fn mended(json: &[u8]) -> Option<Vec<u8>> {
    let (mut at, mut copy) = (0, None);
    while let Some(next) = json.get(at..).and_then(|rest| rest.iter().position(|&b| b == b'\\')) {
        at += next;
        at += match (unit(json, at), unit(json, at + REPLACEMENT.len())) {
            (Some(first), Some(second)) if HIGH.contains(&first) && LOW.contains(&second) => 2 * REPLACEMENT.len(),
            (Some(half), _) if HIGH.contains(&half) || LOW.contains(&half) => {
                let copy = copy.get_or_insert_with(|| json.to_vec());
                copy[at..at + REPLACEMENT.len()].copy_from_slice(REPLACEMENT);
                REPLACEMENT.len()
            }
            (Some(_), _) => REPLACEMENT.len(),
            // Another escape: whatever follows the backslash belongs to it.
            (None, _) => 2,
        };
    }
    copy
}

/// The UTF-16 unit of a `\u` escape that stands here.
fn unit(json: &[u8], at: usize) -> Option<u16> {
    let digits = json.get(at..at + REPLACEMENT.len())?.strip_prefix(br"\u")?;
    digits.iter().try_fold(0, |unit, &digit| Some(unit << 4 | char::from(digit).to_digit(16)? as u16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: Option<&str>) {
        let copy = mended(json.as_bytes()).map(|copy| String::from_utf8(copy).unwrap());
        assert_eq!(copy.as_deref(), expected);
    }

    #[test]
    fn bal_07_only_half_characters_are_mended() {
        check(r#""plain""#, None);
        check(r#""\ud83e\udd80 \u00e9""#, None);
        check(r#""\\ud83e""#, None);
        check(r#""\ud83e""#, Some(r#""\ufffd""#));
        check(r#""\udd80\ud83e""#, Some(r#""\ufffd\ufffd""#));
        check(r#""\ud83e\ud83e\udd80""#, Some(r#""\ufffd\ud83e\udd80""#));
        check(r#""\\\uD83E\n""#, Some(r#""\\\ufffd\n""#));
    }

    #[test]
    fn cut_escapes_are_left_alone() {
        for json in [r"\", r"\u", r"\ud83", r"\ud83x", r"\u+d83"] {
            check(json, None);
        }
    }
}
