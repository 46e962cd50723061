//! What went wrong at an engine, as one text: all that Ollama's error form holds.
//!
//! Reads OpenAI's nested form, SGLang's flat one, an `error` that is a text, FastAPI's `detail`, and, of a
//! body that is not JSON, its text.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::fields::Fields;
use super::raw;

/// Longest text that is made of a body without a known form.
const TEXT_CHARS: usize = 1024;

/// Takes an error out of a message that may be one.
pub(super) fn take(fields: &mut Fields<'_>) -> Option<String> {
    if let Some(error) = fields.take_filled("error") {
        return Some(told(error));
    }
    let is_flat = fields.take("object").and_then(raw::text).as_deref() == Some("error");
    is_flat.then(|| fields.take("message").map_or("the node reported an error without words".into(), told))
}

/// The text of a body that is known to be an error's; `None` if it says nothing.
pub(super) fn text(body: &[u8]) -> Option<String> {
    if let Some(mut fields) = Fields::read(body)
        && let Some(told) = take(&mut fields).or_else(|| {
            let flat = fields.take_filled("message").or(fields.take_filled("detail"));
            flat.map(told)
        })
    {
        return Some(told);
    }
    let text: String = String::from_utf8_lossy(body).trim().chars().take(TEXT_CHARS).collect();
    (!text.is_empty()).then_some(text)
}

/// A text, the `message` of an object, or else the JSON itself.
fn told(error: &RawValue) -> String {
    let message = Fields::of(error).and_then(|mut fields| fields.take_filled("message"));
    let error = message.unwrap_or(error);
    raw::text(error).unwrap_or(Cow::Borrowed(error.get())).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, expected: Option<&str>) {
        assert_eq!(text(body.as_bytes()).as_deref(), expected);
    }

    #[test]
    fn every_engines_form_is_read() {
        check(
            r#"{"error":{"message":"The model `x` does not exist.","type":"NotFoundError","code":404}}"#,
            Some("The model `x` does not exist."),
        );
        check(r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#, Some("Loading model"));
        check(
            r#"{"object":"error","message":"The request queue is full.","type":"x","code":503}"#,
            Some("The request queue is full."),
        );
        check(r#"{"error":"no \"x\""}"#, Some("no \"x\""));
        check(r#"{"error":{"reason":1}}"#, Some(r#"{"reason":1}"#));
        check(r#"{"detail":"Not Found"}"#, Some("Not Found"));
        check(r#"{"detail":[{"loc":["body"]}]}"#, Some(r#"[{"loc":["body"]}]"#));
        check(" Bad Gateway\n", Some("Bad Gateway"));
        check(" ", None);
    }
}
