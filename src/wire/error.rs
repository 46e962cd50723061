//! Errors as the client's dialect spells them.
//!
//! Two forms: the body of an answer that has a status, and the last frame of a stream that has none to
//! give any more. A frame never looks like a regular end, and it first closes what a cut left half sent.

use serde::Serialize;

use super::framing::Framing;
use super::observe::Place;
use crate::routing::ask::Dialect;

/// The status whose words describe an upstream that failed within its answer.
const CUT: u16 = 502;

/// The JSON body of an error answer.
pub fn body(dialect: Dialect, status: u16, message: &str) -> Vec<u8> {
    match dialect {
        Dialect::Ollama => json(&Ollama { error: message }),
        Dialect::OpenAi => json(&OpenAi { error: OpenAiError::new(status, message) }),
        Dialect::Anthropic => {
            let error = AnthropicError { r#type: anthropic_type(status), message };
            json(&Anthropic { r#type: "error", error })
        }
    }
}

/// The last frame of a stream that was cut at `place`. `None` for a body that is one message: nothing
/// can be added to it, so it has to be aborted.
pub fn frame(dialect: Dialect, content_type: &str, place: Place, message: &str) -> Option<Vec<u8>> {
    let framing = Framing::of(content_type);
    let close: &[u8] = match (framing, place) {
        (Framing::Whole, _) => return None,
        (_, Place::Between) => b"",
        (Framing::Lines, Place::Within) => b"\n",
        // One ends the line, one the event; if only the event was open, a blank line more does no harm.
        (Framing::Events, Place::Within) => b"\n\n",
    };
    let (before, after): (&[u8], &[u8]) = match (framing, dialect) {
        (Framing::Events, Dialect::Anthropic) => (b"event: error\ndata: ", b"\n\n"),
        (Framing::Events, _) => (b"data: ", b"\n\n"),
        _ => (b"", b"\n"),
    };
    Some([close, before, &body(dialect, CUT, message), after].concat())
}

#[derive(Serialize)]
struct Ollama<'a> {
    error: &'a str,
}

#[derive(Serialize)]
struct OpenAi<'a> {
    error: OpenAiError<'a>,
}

#[derive(Serialize)]
struct OpenAiError<'a> {
    message: &'a str,
    r#type: &'static str,
    param: Option<&'static str>,
    code: &'static str,
}

impl<'a> OpenAiError<'a> {
    fn new(status: u16, message: &'a str) -> OpenAiError<'a> {
        let (r#type, code) = openai_type(status);
        OpenAiError { message, r#type, param: None, code }
    }
}

#[derive(Serialize)]
struct Anthropic<'a> {
    r#type: &'static str,
    error: AnthropicError<'a>,
}

#[derive(Serialize)]
struct AnthropicError<'a> {
    r#type: &'static str,
    message: &'a str,
}

/// OpenAI's `type` and `code` for a status.
fn openai_type(status: u16) -> (&'static str, &'static str) {
    match status {
        401 => ("authentication_error", "invalid_api_key"),
        403 => ("permission_error", "permission_denied"),
        404 => ("not_found_error", "not_found"),
        405 => ("invalid_request_error", "method_not_allowed"),
        408 => ("timeout_error", "request_timeout"),
        413 => ("invalid_request_error", "request_too_large"),
        415 => ("invalid_request_error", "unsupported_media_type"),
        429 => ("rate_limit_error", "rate_limit_exceeded"),
        400..=499 => ("invalid_request_error", "invalid_request"),
        502 => ("server_error", "upstream_failed"),
        503 => ("server_error", "service_unavailable"),
        504 => ("server_error", "upstream_timeout"),
        508 => ("server_error", "loop_detected"),
        _ => ("server_error", "internal_error"),
    }
}

/// Anthropic's `type` for a status.
fn anthropic_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        503 | 529 => "overloaded_error",
        504 => "timeout_error",
        _ => "api_error",
    }
}

fn json(value: &impl Serialize) -> Vec<u8> {
    // Texts in structs cannot fail to be written.
    serde_json::to_vec(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(dialect: Dialect, status: u16, expected: &str) {
        assert_eq!(String::from_utf8(body(dialect, status, "no \"x\"\n")).unwrap(), expected);
    }

    #[test]
    fn bodies_are_in_the_clients_dialect() {
        check(Dialect::Ollama, 404, r#"{"error":"no \"x\"\n"}"#);
        check(
            Dialect::OpenAi,
            404,
            r#"{"error":{"message":"no \"x\"\n","type":"not_found_error","param":null,"code":"not_found"}}"#,
        );
        check(
            Dialect::OpenAi,
            503,
            r#"{"error":{"message":"no \"x\"\n","type":"server_error","param":null,"code":"service_unavailable"}}"#,
        );
        check(
            Dialect::Anthropic,
            429,
            r#"{"type":"error","error":{"type":"rate_limit_error","message":"no \"x\"\n"}}"#,
        );
    }

    #[test]
    fn every_status_has_its_words() {
        for status in 400..600 {
            assert_eq!(openai_type(status).0 == "server_error", status >= 500);
            assert!(!anthropic_type(status).is_empty());
        }
    }

    #[track_caller]
    fn check_frame(dialect: Dialect, content_type: &str, place: Place, expected: &str) {
        assert_eq!(String::from_utf8(frame(dialect, content_type, place, "cut").unwrap()).unwrap(), expected);
    }

    #[test]
    fn str_10_a_cut_stream_ends_with_an_error() {
        check_frame(Dialect::Ollama, "application/x-ndjson", Place::Between, "{\"error\":\"cut\"}\n");
        check_frame(Dialect::Ollama, "application/x-ndjson", Place::Within, "\n{\"error\":\"cut\"}\n");
        let error = r#"{"error":{"message":"cut","type":"server_error","param":null,"code":"upstream_failed"}}"#;
        check_frame(Dialect::OpenAi, "text/event-stream", Place::Between, &format!("data: {error}\n\n"));
        check_frame(Dialect::OpenAi, "text/event-stream", Place::Within, &format!("\n\ndata: {error}\n\n"));
        let error = r#"{"type":"error","error":{"type":"api_error","message":"cut"}}"#;
        check_frame(
            Dialect::Anthropic,
            "text/event-stream",
            Place::Between,
            &format!("event: error\ndata: {error}\n\n"),
        );
        assert_eq!(frame(Dialect::OpenAi, "application/json", Place::Within, "cut"), None);
    }
}
