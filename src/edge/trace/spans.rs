//! The spans of a request that is over, from its receipt: one for the request, one for each wait for a node, and
//! one for each attempt.
//!
//! Names and attributes are those of OpenTelemetry's conventions where there are any (`http`, `gen_ai`), else ours.
//! No prompt, no key and no address is in them.

use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};

use super::Trace;
use crate::edge::receipt::{Attempt, Receipt};
use crate::routing::ask::Endpoint;
use crate::routing::fleet::UpstreamId;

impl Trace {
    /// Empty where nobody keeps them.
    pub fn spans(
        &self,
        receipt: &Receipt,
        endpoint: Option<Endpoint>,
        failed: bool,
        name: &dyn Fn(UpstreamId) -> String,
    ) -> Vec<Span> {
        let Some(own) = self.own.filter(|own| own.sampled) else { return Vec::new() };
        let bare = |span: u64, parent: Option<u64>, from_ms: f64, to_ms: f64| Span {
            trace_id: own.trace.to_be_bytes().to_vec(),
            span_id: span.to_be_bytes().to_vec(),
            parent_span_id: parent.map(|parent| parent.to_be_bytes().to_vec()).unwrap_or_default(),
            start_time_unix_nano: nanos(receipt, from_ms),
            end_time_unix_nano: nanos(receipt, to_ms),
            ..Span::default()
        };
        let served = Span {
            name: endpoint.map_or_else(|| "request".into(), |endpoint| format!("POST {}", endpoint.path())),
            kind: SpanKind::Server as i32,
            attributes: of_request(receipt, endpoint, failed, name),
            status: failed.then(|| error(receipt.outcome)),
            ..bare(own.span, self.parent.map(|parent| parent.span), 0.0, receipt.total_ms)
        };
        let waits = receipt.waits_ms.iter().enumerate().map(|(n, (from_ms, to_ms))| Span {
            name: "queue".into(),
            kind: SpanKind::Internal as i32,
            ..bare(own.child("queue", n), Some(own.span), *from_ms, *to_ms)
        });
        let attempts = receipt.attempts.iter().enumerate().map(|(n, attempt)| {
            let is_last = n + 1 == receipt.attempts.len();
            let first_byte = receipt.first_byte_ms.filter(|_| is_last && attempt.failure.is_none());
            Span {
                name: "attempt".into(),
                kind: SpanKind::Client as i32,
                attributes: of_attempt(attempt, name),
                events: first_byte.map(|at| event(receipt, at)).into_iter().collect(),
                status: attempt.failure.map(error),
                ..bare(
                    own.attempt(n),
                    Some(own.span),
                    attempt.placed_ms,
                    attempt.ended_ms.unwrap_or(receipt.total_ms).max(attempt.placed_ms),
                )
            }
        });
        [served].into_iter().chain(waits).chain(attempts).collect()
    }
}

fn of_request(
    receipt: &Receipt,
    endpoint: Option<Endpoint>,
    failed: bool,
    name: &dyn Fn(UpstreamId) -> String,
) -> Vec<KeyValue> {
    let last = receipt.attempts.last();
    let int = |value: u64| any_value::Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX));
    let tokens = |tokens: Option<u32>| tokens.map(|tokens| int(tokens.into()));
    let text = |text: &str| Some(any_value::Value::StringValue(text.to_owned())).filter(|_| !text.is_empty());
    let given = [
        ("http.request.method", endpoint.and_then(|_| text("POST"))),
        ("url.path", text(&receipt.path)),
        ("http.response.status_code", (receipt.status != 0).then(|| int(receipt.status.into()))),
        ("gen_ai.operation.name", endpoint.and_then(operation).and_then(text)),
        ("gen_ai.request.model", text(&receipt.model)),
        ("gen_ai.conversation.id", receipt.session.as_deref().and_then(text)),
        ("gen_ai.usage.input_tokens", tokens(receipt.prompt_tokens)),
        ("gen_ai.usage.cache_read.input_tokens", tokens(receipt.cached_tokens)),
        ("gen_ai.usage.output_tokens", tokens(receipt.output_tokens)),
        ("error.type", text(receipt.outcome).filter(|_| failed)),
        ("warmgate.request_id", text(&receipt.request_id)),
        ("warmgate.tenant", receipt.tenant.as_deref().and_then(text)),
        ("warmgate.outcome", text(receipt.outcome)),
        ("warmgate.node", last.and_then(|attempt| text(&name(attempt.row.upstream)))),
        ("warmgate.score", last.map(|attempt| any_value::Value::DoubleValue(attempt.row.score))),
        ("warmgate.affinity", text(receipt.affinity)),
        ("warmgate.attempts", Some(int(receipt.attempts.len() as u64))),
        ("warmgate.queue_ms", Some(any_value::Value::DoubleValue(receipt.queue_ms))),
    ];
    given.into_iter().filter_map(|(key, value)| Some(attribute(key, value?))).collect()
}

fn of_attempt(attempt: &Attempt, name: &dyn Fn(UpstreamId) -> String) -> Vec<KeyValue> {
    let text = |text: String| any_value::Value::StringValue(text);
    let node = [
        attribute("warmgate.node", text(name(attempt.row.upstream))),
        attribute("warmgate.score", any_value::Value::DoubleValue(attempt.row.score)),
    ];
    let failure = attempt.failure.map(|failure| attribute("error.type", text(failure.to_owned())));
    node.into_iter().chain(failure).collect()
}

/// What the conventions call it; `None`: they have no word for it.
fn operation(endpoint: Endpoint) -> Option<&'static str> {
    match endpoint {
        Endpoint::OllamaChat | Endpoint::OpenAiChat | Endpoint::OpenAiResponses | Endpoint::AnthropicMessages => {
            Some("chat")
        }
        Endpoint::OllamaGenerate | Endpoint::OpenAiCompletions => Some("text_completion"),
        Endpoint::OllamaEmbed | Endpoint::OllamaEmbeddings | Endpoint::OpenAiEmbeddings => Some("embeddings"),
        _ => None,
    }
}

pub fn attribute(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn event(receipt: &Receipt, at_ms: f64) -> Event {
    Event { name: "first byte".into(), time_unix_nano: nanos(receipt, at_ms), ..Event::default() }
}

fn error(why: &str) -> Status {
    Status { message: why.replace('_', " "), code: StatusCode::Error as i32 }
}

/// A moment of a request, since 1970.
fn nanos(receipt: &Receipt, after_ms: f64) -> u64 {
    receipt.wall_ms * 1_000_000 + (after_ms.max(0.0) * 1e6) as u64
}
