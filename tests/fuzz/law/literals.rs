//! The texts in a piece of JSON, as they are spelled and as they are meant.

/// Every string of the JSON, quotes included, names of members too.
pub fn literals(json: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(begin) = json[at..].iter().position(|byte| *byte == b'"').map(|begin| at + begin) {
        let mut end = begin + 1;
        while end < json.len() && json[end] != b'"' {
            end += if json[end] == b'\\' { 2 } else { 1 };
        }
        at = json.len().min(end + 1);
        found.push(&json[begin..at]);
    }
    found
}

/// What a string means; what serde_json cannot say stays as it is spelled.
pub fn meant(literal: &[u8]) -> String {
    serde_json::from_slice(literal).unwrap_or_else(|_| String::from_utf8_lossy(literal).into_owned())
}

pub fn contains(bytes: &[u8], part: &[u8]) -> bool {
    part.is_empty() || bytes.windows(part.len()).any(|window| window == part)
}
