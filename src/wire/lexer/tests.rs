//! Beside serde_json: what is read, and what is declined.

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::*;

/// What is read here, unless it is declined.
fn read<'a, T: Deserialize<'a>>(json: &'a str) -> Option<T> {
    let mut lexer = Lexer::new(json);
    let value = T::deserialize(&mut lexer).ok()?;
    lexer.end().ok().map(|()| value)
}

#[track_caller]
fn check(json: &str) {
    let expected: Value = serde_json::from_str(json).unwrap();
    assert_eq!(read(json), Some(expected), "{json}");
}

#[track_caller]
fn check_declined(json: &str) {
    assert_eq!(read::<Value>(json), None, "{json}");
}

#[test]
fn what_is_json_is_read_as_serde_json_reads_it() {
    for json in ["null", "true", " false\r\n", "[]", "{}", "[ ]", "{ \n}", r#"{"a":{"b":[[],{}]},"a":1}"#] {
        check(json);
    }
    for number in ["0", "-0", "7", "-7", "10", "9999999999999999999", "18446744073709551615", "18446744073709551616"] {
        check(number);
        check(&format!("[{number},{number}]"));
    }
    for number in
        ["-9223372036854775808", "-9223372036854775809", "0.1", "1.0", "1e3", "-2.5E-3", "0e9", "123456789012"]
    {
        check(number);
        check(&format!("{{\"a\":{number} }}"));
    }
    for text in
        ["", "a", r#"\""#, r"\\", r"\/\b\f\n\r\t", r"\u00e9\u8a9e", r"\ud83e\udd80", "é語🦀", "\u{7f}", r"\u0000"]
    {
        check(&format!("\"{text}\""));
        check(&format!("{{\"{text}\":\"{text}{text}\"}}"));
    }
}

#[test]
fn texts_end_where_they_end_however_long_they_are() {
    for length in (0..150).chain([255, 256, 257, 319, 320, 321, 1000]) {
        for wide in ["a", "é", "語"] {
            let text = wide.repeat(length);
            check(&format!("[\"{text}\",\"{text}\"]"));
            check(&format!("\"{text}\\n{text}\\\"{text}\""));
            check_declined(&format!("\"{text}\n\""));
            check_declined(&format!("\"{text}\\n{text}\u{1f}{text}\""));
            check_declined(&format!("\"{text}"));
            check_declined(&format!("\"{text}\\"));
        }
    }
}

#[test]
fn what_is_no_json_is_declined() {
    for json in
        ["", " ", "nul", "nulls", "truefalse", "[", "]", "{", "[,]", "[1,]", "[1 2]", "[1,,2]", "{,}", "{\"a\"}"]
    {
        check_declined(json);
    }
    for json in
        ["{\"a\":}", "{\"a\":1,}", "{\"a\" 1}", "{a:1}", "{1:2}", "[1}", "{\"a\":1]", "1 2", "{}{}", "\u{a0}1", "'a'"]
    {
        check_declined(json);
    }
    for number in ["01", "-", "-a", "1.", ".5", "1e", "1e+", "+1", "1-2", "1e999", "0x1", "1_0", "--1", "00", "1.e3"] {
        check_declined(number);
        check_declined(&format!("[{number}]"));
    }
    for escape in
        [r"\", r"\u", r"\u12", r"\u12g4", r"\u+123", r"\x41", r"\ud83e", r"\udd80", r"\ud83e\ud83e", r"\ud83e\n"]
    {
        check_declined(&format!("\"{escape}\""));
        assert!(serde_json::from_str::<Value>(&format!("\"{escape}\"")).is_err());
    }
}

#[test]
fn it_goes_as_deep_as_serde_json() {
    for (depth, is_read) in [(127, true), (128, false), (100_000, false)] {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let json = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            assert_eq!(read::<Value>(&json).is_some(), is_read);
            assert_eq!(serde_json::from_str::<Value>(&json).is_ok(), is_read);
        }
    }
    check(&format!("[{}1]", "[[]],".repeat(300)));
}

#[test]
fn a_raw_value_is_lent_from_the_body() {
    let json = r#" { "a" : [1, {"b":"\n"}] , "c":"d" } "#;
    let raw: std::collections::BTreeMap<String, &RawValue> = read(json).unwrap();
    assert_eq!((raw["a"].get(), raw["c"].get()), (r#"[1, {"b":"\n"}]"#, "\"d\""));
    assert!(json.as_bytes().as_ptr_range().contains(&raw["c"].get().as_ptr()));
}

/// Any value, written without blanks.
fn value() -> impl Strategy<Value = Value> {
    let text = prop_oneof!["[ a\"\\\\/\u{1}-\u{1f}é語🦀]{0,20}", ".{0,300}", "[a-z ]{60,80}"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((text.clone(), inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn every_value_is_read_as_serde_json_reads_it(value in value()) {
        for json in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            prop_assert_eq!(read::<Value>(&json), Some(serde_json::from_str(&json).unwrap()));
        }
    }

    #[test]
    fn nothing_is_read_that_serde_json_reads_otherwise(
        value in value(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), "[\\[\\]{}:,\"\\\\ue0-9.+n \u{1}é-]{0,2}"), 1..4),
    ) {
        let mut json: Vec<char> = value.to_string().chars().collect();
        for (at, put) in changes {
            let at = at.index(json.len() + 1);
            json.splice(at..(at + 1).min(json.len()), put.chars());
        }
        let json: String = json.into_iter().collect();
        if let Some(found) = read::<Value>(&json) {
            prop_assert_eq!(serde_json::from_str::<Value>(&json).ok(), Some(found));
        }
    }
}
