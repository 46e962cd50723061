//! Numbers that no machine's float can hold, such as `1e999`.
//!
//! Engines written in Python read them as infinite and most never look at them; serde_json refuses the
//! body. Here each becomes `9e99`, told with as many digits as it takes to be just as long.

use std::borrow::Cow;

/// serde_json rounds near the largest float, so what is judged too large begins a little below.
const TOO_LARGE: f64 = 1e308;

/// Makes every number of the body readable; one that was so already is not copied.
pub(super) fn mend(json: &mut Cow<'_, [u8]>) {
    let mut at = 0;
    while let Some(&byte) = json.get(at) {
        at = match byte {
            b'"' => after_text(json, at),
            b'-' | b'0'..=b'9' => {
                let end = after_number(json, at);
                if is_too_large(&json[at..end]) {
                    lessen(&mut json.to_mut()[at..end]);
                }
                end
            }
            _ => at + 1,
        };
    }
}

/// Where the string that begins here is over.
fn after_text(json: &[u8], quote: usize) -> usize {
    let mut at = quote + 1;
    while let Some(next) = json.get(at..).and_then(|rest| rest.iter().position(|&b| b == b'"' || b == b'\\')) {
        at += next;
        if json[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    json.len()
}

fn after_number(json: &[u8], at: usize) -> usize {
    let digits = json[at..].iter().take_while(|b| matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'));
    at + digits.count()
}

fn is_too_large(number: &[u8]) -> bool {
    let parsed = std::str::from_utf8(number).ok().and_then(|number| number.parse::<f64>().ok());
    parsed.is_some_and(|value| value.abs() >= TOO_LARGE)
}

/// The shortest spelling of a number so large is `1e308`: five bytes after the sign.
fn lessen(number: &mut [u8]) {
    let sign = usize::from(number.starts_with(b"-"));
    if let Some([first, mark, exponent @ .., tens, ones]) = number.get_mut(sign..) {
        exponent.fill(b'0');
        (*first, *mark, *tens, *ones) = (b'9', b'e', b'9', b'9');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: &str) {
        let mut mended = Cow::Borrowed(json.as_bytes());
        mend(&mut mended);
        assert_eq!(std::str::from_utf8(&mended), Ok(expected));
        assert_eq!(matches!(mended, Cow::Owned(_)), json != expected, "copied only if changed");
    }

    #[test]
    fn only_numbers_out_of_range_change() {
        check(r#"{"a":[1,-2.5e3,0e999,1e-999]}"#, r#"{"a":[1,-2.5e3,0e999,1e-999]}"#);
        check(r#"{"a":"1e999","b\"1e999":1}"#, r#"{"a":"1e999","b\"1e999":1}"#);
        check("[1e999]", "[9e099]");
        check("[-1E+9999,7]", "[-9e00099,7]");
        check("[1.7976931348623157e308]", "[9e00000000000000000099]");
        let long = "7".repeat(400);
        check(&long, &format!("9e{}99", "0".repeat(396)));
        assert_eq!(serde_json::from_str::<f64>("-9e00099").unwrap(), -9e99);
    }

    #[test]
    fn what_is_no_json_is_left_alone() {
        for json in ["\"", "\"\\", "-", "1e", "--1e999", "1e9991e999", "e"] {
            check(json, json);
        }
    }
}
