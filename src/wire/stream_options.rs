//! Whether a request of OpenAI's asks for the counts of its stream, and where it would have to.
//!
//! Says only what to write; whether it is written is the operator's choice and depends on the engine. What
//! stands there in an unknown form is left for the engine to judge.

use serde::de::{DeserializeSeed, MapAccess};
use serde_json::value::RawValue;

use super::body::Said;
use super::edit::Edit;
use super::value::{Skip, Take, Taker, key};

/// What makes the body ask; `None`: it asks already, or cannot be made to. `said` is its
/// `stream_options`, which lies in `bytes`.
pub(super) fn usage_edit(bytes: &[u8], said: &Said<'_>) -> Option<Edit> {
    if said.twice {
        return None;
    }
    let Some(raw) = said.raw else {
        // The object has a model in it, so that something follows.
        let brace = bytes.iter().position(|&b| b == b'{')?;
        return Some(Edit::insert(brace + 1, br#""stream_options":{"include_usage":true},"#));
    };
    let whole = super::peek::span(bytes, raw);
    if raw.get() == "null" {
        return Some(Edit::replace(whole, br#"{"include_usage":true}"#));
    }
    let wishes = Take(WishesReader).deserialize(&mut serde_json::Deserializer::from_str(raw.get())).ok()?;
    match wishes.usage.raw.map(RawValue::get) {
        _ if !wishes.is_object || wishes.usage.twice => None,
        None if wishes.others => Some(Edit::insert(whole.start + 1, br#""include_usage":true,"#)),
        None => Some(Edit::insert(whole.start + 1, br#""include_usage":true"#)),
        Some("false" | "null") => {
            wishes.usage.raw.map(|value| Edit::replace(super::peek::span(bytes, value), &b"true"[..]))
        }
        Some(_) => None,
    }
}

/// What `stream_options` holds.
#[derive(Default)]
struct Wishes<'de> {
    is_object: bool,
    usage: Said<'de>,
    others: bool,
}

struct WishesReader;

impl<'de> Taker<'de> for WishesReader {
    type Out = Wishes<'de>;

    fn fields<A: MapAccess<'de>>(self, mut fields: A) -> Result<Wishes<'de>, A::Error> {
        let mut wishes = Wishes { is_object: true, ..Wishes::default() };
        while let Some(is_usage) = fields.next_key_seed(key(|name| name == "include_usage"))? {
            if is_usage {
                wishes.usage.again(fields.next_value()?);
            } else {
                wishes.others = true;
                fields.next_value_seed(Take(Skip))?;
            }
        }
        Ok(wishes)
    }
}

#[cfg(test)]
mod tests {
    use crate::routing::ask::Endpoint;
    use crate::wire::edit::edited;
    use crate::wire::peek::peek;

    /// What the body becomes; `None`: it stays as it is.
    #[track_caller]
    fn check_at(endpoint: Endpoint, body: &str, expected: Option<&str>) {
        let peeked = peek(body.as_bytes(), endpoint).unwrap();
        let changed = peeked.usage_edit.map(|edit| edited(body.as_bytes(), vec![edit]).unwrap());
        assert_eq!(changed.map(|bytes| String::from_utf8(bytes).unwrap()).as_deref(), expected, "{body}");
        if let Some(changed) = expected {
            let again = peek(changed.as_bytes(), endpoint).unwrap();
            assert_eq!(again.usage_edit, None, "it asks now: {changed}");
            assert_eq!(again.ask, peeked.ask, "nothing else means anything else: {changed}");
        }
    }

    #[track_caller]
    fn check(body: &str, expected: Option<&str>) {
        check_at(Endpoint::OpenAiChat, body, expected);
    }

    #[test]
    fn acc_01_a_stream_that_does_not_ask_is_made_to() {
        check(
            "\u{feff} { \"model\":\"m\",\"stream\":true}",
            Some("\u{feff} {\"stream_options\":{\"include_usage\":true}, \"model\":\"m\",\"stream\":true}"),
        );
        check(
            r#"{"model":"m","stream":true,"stream_options": {} }"#,
            Some(r#"{"model":"m","stream":true,"stream_options": {"include_usage":true} }"#),
        );
        check(
            r#"{"model":"m","stream_options":{ "x":{"include_usage":true}},"stream":true}"#,
            Some(r#"{"model":"m","stream_options":{"include_usage":true, "x":{"include_usage":true}},"stream":true}"#),
        );
        check(
            r#"{"model":"m","stream":true,"stream_options":{"x":1,"include_usage": false }}"#,
            Some(r#"{"model":"m","stream":true,"stream_options":{"x":1,"include_usage": true }}"#),
        );
        check(
            r#"{"model":"m","stream":true,"stream_options":null}"#,
            Some(r#"{"model":"m","stream":true,"stream_options":{"include_usage":true}}"#),
        );
        check_at(
            Endpoint::OpenAiCompletions,
            r#"{"model":"m","prompt":"stream_options","stream":true}"#,
            Some(r#"{"stream_options":{"include_usage":true},"model":"m","prompt":"stream_options","stream":true}"#),
        );
    }

    #[test]
    fn acc_01_what_asks_or_does_not_stream_stays() {
        check(r#"{"model":"m","stream":true,"stream_options":{"include_usage":true}}"#, None);
        check(r#"{"model":"m","stream":true,"stream_options":{"include_\u0075sage":true}}"#, None);
        check(r#"{"model":"m"}"#, None);
        check(r#"{"model":"m","stream":false}"#, None);
        let stream = r#"{"model":"m","stream":true}"#;
        for endpoint in [Endpoint::OllamaChat, Endpoint::AnthropicMessages, Endpoint::OpenAiResponses] {
            check_at(endpoint, stream, None);
        }
    }

    #[test]
    fn acc_01_what_is_odd_is_the_engines_to_judge() {
        for options in
            ["[]", "1", r#""x""#, r#"{"include_usage":1}"#, r#"{"include_usage":true,"include_usage":false}"#]
        {
            check(&format!(r#"{{"model":"m","stream":true,"stream_options":{options}}}"#), None);
        }
        check(r#"{"stream_options":{},"model":"m","stream":true,"stream_options":{}}"#, None);
    }
}
