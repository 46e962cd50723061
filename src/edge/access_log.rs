//! One line for each request that went to the fleet. It never holds a prompt, a key or an address.
//!
//! A line is formed when its request ends, and leaves by `outlet` with those that come about then.

use std::io::Write;

use serde::Serialize;
use serde_json::Serializer;

use super::log_text::{Json, Line as Plain, Word};
use super::outlet;
use super::receipt::Receipt;
use crate::config::AccessLog;
use crate::routing::fleet::UpstreamId;

/// The log target that `RUST_LOG` names these lines by.
pub const TARGET: &str = "warmgate::access";

/// As the configuration has it, if it is logged at all; false: there was no room for the line.
pub fn write(form: AccessLog, receipt: &Receipt, name: &dyn Fn(UpstreamId) -> String) -> bool {
    if form == AccessLog::Off || !log::log_enabled!(target: TARGET, log::Level::Info) {
        return true;
    }
    outlet::stderr().add(|lines| match form {
        AccessLog::Off => {}
        AccessLog::Json => json(receipt, name, lines),
        AccessLog::Text => text(receipt, name, lines),
    })
}

/// The form for machines.
#[derive(Serialize)]
struct Line<'a> {
    time_ms: u64,
    request_id: &'a str,
    trace_id: Option<&'a str>,
    path: &'a str,
    tenant: Option<&'a str>,
    model: &'a str,
    session: Option<&'a str>,
    node: &'a str,
    score: Option<f64>,
    affinity: &'a str,
    attempts: usize,
    status: u16,
    outcome: &'a str,
    queue_ms: f64,
    first_byte_ms: Option<f64>,
    total_ms: f64,
    prompt_tokens: Option<u32>,
    cached_tokens: Option<u32>,
    output_tokens: Option<u32>,
    given_bytes: Option<u64>,
}

fn json(receipt: &Receipt, name: &dyn Fn(UpstreamId) -> String, lines: &mut Vec<u8>) {
    let line = Line {
        time_ms: receipt.wall_ms,
        request_id: &receipt.request_id,
        trace_id: receipt.trace_id.as_deref(),
        path: &receipt.path,
        tenant: receipt.tenant.as_deref(),
        model: &receipt.model,
        session: receipt.session.as_deref(),
        node: &node(receipt, name),
        score: score(receipt),
        affinity: receipt.affinity,
        attempts: receipt.attempts.len(),
        status: receipt.status,
        outcome: receipt.outcome,
        queue_ms: receipt.queue_ms.round(),
        first_byte_ms: receipt.first_byte_ms.map(f64::round),
        total_ms: receipt.total_ms.round(),
        prompt_tokens: receipt.prompt_tokens,
        cached_tokens: receipt.cached_tokens,
        output_tokens: receipt.output_tokens,
        given_bytes: receipt.given_bytes,
    };
    // Writing to memory cannot fail.
    let _ = line.serialize(&mut Serializer::with_formatter(lines, Json::default()));
}

fn text(receipt: &Receipt, name: &dyn Fn(UpstreamId) -> String, lines: &mut Vec<u8>) {
    let or_dash = |number: Option<u64>| number.map_or_else(|| "-".into(), |number| number.to_string());
    let first_byte_ms = receipt.first_byte_ms.map_or_else(|| "-".into(), |ms| format!("{ms:.0}"));
    let _ = write!(
        lines,
        "{} {} {} {} {} -> {} {} {} session={} score={} attempts={} queue_ms={:.0} first_byte_ms={} \
         total_ms={:.0} prompt_tokens={} cached_tokens={} output_tokens={} given_bytes={} trace_id={}",
        Word(&receipt.request_id),
        receipt.status,
        Word(receipt.tenant.as_deref().unwrap_or_default()),
        Word(&receipt.path),
        Plain(&format!("{:?}", receipt.model)),
        Word(&node(receipt, name)),
        receipt.affinity,
        receipt.outcome,
        Word(receipt.session.as_deref().unwrap_or_default()),
        score(receipt).map_or_else(|| "-".into(), |score| format!("{score:.1}")),
        receipt.attempts.len(),
        receipt.queue_ms,
        first_byte_ms,
        receipt.total_ms,
        or_dash(receipt.prompt_tokens.map(u64::from)),
        or_dash(receipt.cached_tokens.map(u64::from)),
        or_dash(receipt.output_tokens.map(u64::from)),
        or_dash(receipt.given_bytes),
        Word(receipt.trace_id.as_deref().unwrap_or_default()),
    );
}

fn node(receipt: &Receipt, name: &dyn Fn(UpstreamId) -> String) -> String {
    let last = receipt.attempts.last().map(|attempt| name(attempt.row.upstream));
    last.or(receipt.managed_nodes()).unwrap_or_default()
}

fn score(receipt: &Receipt) -> Option<f64> {
    receipt.attempts.last().map(|attempt| (attempt.row.score * 10.0).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn receipt() -> Receipt {
        Receipt {
            request_id: "r1".into(),
            path: "/api/chat\n{\"forged\":1}".into(),
            model: "a\"b".into(),
            status: 200,
            outcome: "ok",
            affinity: "none",
            total_ms: 12.4,
            first_byte_ms: Some(3.6),
            output_tokens: Some(7),
            ..Receipt::default()
        }
    }

    #[test]
    fn a_json_line_is_one_line_whatever_clients_name() {
        let mut lines = Vec::new();
        json(&receipt(), &|_| String::new(), &mut lines);
        assert!(!lines.contains(&b'\n'));
        let line: Value = serde_json::from_slice(&lines).expect("JSON");
        assert_eq!(line["path"], "/api/chat\n{\"forged\":1}");
        assert_eq!(
            (&line["model"], &line["first_byte_ms"], &line["session"]),
            (&json!("a\"b"), &json!(4.0), &json!(null))
        );
    }

    #[test]
    fn no_name_that_a_client_gives_forges_a_line_or_a_field() {
        let forging = "/api/chat\u{2028}r2 200 - \u{85}\u{202e}";
        let receipt = Receipt {
            request_id: "r1 200".into(),
            tenant: Some("a b".into()),
            path: forging.into(),
            model: format!("m{forging}\" -> n9"),
            ..receipt()
        };
        let mut lines = Vec::new();
        text(&receipt, &|_| "n\u{9b}1".into(), &mut lines);
        let line = String::from_utf8(lines).expect("text");
        assert!(!line.contains(['\u{2028}', '\u{85}', '\u{202e}', '\u{9b}', '\n']), "{line:?}");
        assert!(line.starts_with("r1\\u{20}200 200 a\\u{20}b /api/chat\\u{2028}r2\\u{20}200"), "{line}");
        let mut lines = Vec::new();
        json(&receipt, &|_| String::new(), &mut lines);
        let line = String::from_utf8(lines).expect("text");
        assert!(!line.contains(['\u{2028}', '\u{85}', '\u{202e}', '\n']), "{line:?}");
        assert_eq!(serde_json::from_str::<Value>(&line).expect("JSON")["path"], forging);
    }

    #[test]
    fn a_text_line_tells_what_is_not_known_as_a_dash() {
        let mut lines = Vec::new();
        text(&Receipt { path: "/api/chat".into(), ..receipt() }, &|_| String::new(), &mut lines);
        let line = String::from_utf8(lines).expect("text");
        assert!(line.starts_with("r1 200 - /api/chat \"a\\\"b\" -> "), "{line}");
        assert!(
            line.ends_with(
                "first_byte_ms=4 total_ms=12 prompt_tokens=- cached_tokens=- output_tokens=7 given_bytes=- trace_id=-"
            ),
            "{line}"
        );
    }
}
