//! Half characters in JSON escapes.
//!
//! A client that cuts a text in the middle of an emoji sends `\ud83e` without its other half. Engines
//! read it as U+FFFD; serde_json refuses the body. Here such an escape becomes U+FFFD too. It is just as
//! long, so every place in the copy is the same place in the body.

use std::borrow::Cow;
use std::ops::RangeInclusive;

const HIGH: RangeInclusive<u16> = 0xd800..=0xdbff;
const LOW: RangeInclusive<u16> = 0xdc00..=0xdfff;
const REPLACEMENT: &[u8] = br"\ufffd";

/// Makes every half character whole; a body without any is not copied.
pub(super) fn mend(json: &mut Cow<'_, [u8]>) {
    let mut at = 0;
    while let Some(next) = json.get(at..).and_then(|rest| rest.iter().position(|&b| b == b'\\')) {
        at += next;
        at += match (unit(json, at), unit(json, at + REPLACEMENT.len())) {
            (Some(first), Some(second)) if HIGH.contains(&first) && LOW.contains(&second) => 2 * REPLACEMENT.len(),
            (Some(half), _) if HIGH.contains(&half) || LOW.contains(&half) => {
                json.to_mut()[at..at + REPLACEMENT.len()].copy_from_slice(REPLACEMENT);
                REPLACEMENT.len()
            }
            (Some(_), _) => REPLACEMENT.len(),
            // Another escape: whatever follows the backslash belongs to it.
            (None, _) => 2,
        };
    }
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
        let mut mended = Cow::Borrowed(json.as_bytes());
        mend(&mut mended);
        let copy = matches!(mended, Cow::Owned(_)).then(|| std::str::from_utf8(&mended).unwrap());
        assert_eq!(copy, expected);
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
