//! llama.cpp's server with one model, started with `--metrics`.
//!
//! It answers to any name, and never says that it is busy: whatever comes, waits.

use serde_json::{Value, json};

use super::{Kind, Names, Overflow, Page, Responses, Snapshot, openai_model, openai_models};
use crate::routing::ask::{Dialect, Endpoint};
use crate::sim::face::params::NodeModel;
use crate::sim::face::refusal::Refusal;
use crate::sim::face::voice::{anthropic, rerank};

pub static KIND: Kind = Kind {
    name: "llama_cpp",
    serves: &[
        Endpoint::OpenAiChat,
        Endpoint::OpenAiCompletions,
        Endpoint::OpenAiEmbeddings,
        Endpoint::OpenAiResponses,
        Endpoint::OpenAiRerank,
        Endpoint::AnthropicMessages,
        Endpoint::AnthropicCountTokens,
    ],
    names: Names::Any,
    overflow: Overflow::Refused,
    responses: Responses::Refused,
    role_first: true,
    page,
    refuse,
    rerank: rerank::results,
};

fn page(path: &str, now: &Snapshot) -> Option<Page> {
    Some(match path {
        "/health" | "/v1/health" => Page::json(&json!({"status": "ok"})),
        "/props" => Page::json(&props(now)),
        "/models" | "/v1/models" => Page::json(&openai_models(now.node, listed)),
        "/metrics" => Page::metrics(metrics(now)),
        _ => return None,
    })
}

fn props(now: &Snapshot) -> Value {
    let model = now.node.models.first();
    json!({
        "default_generation_settings": {"id": 0, "n_ctx": model.map(|model| model.engine.context_tokens)},
        "total_slots": model.map(|model| model.engine.slots),
        "model_path": model.map(|model| model.engine.name.as_str()),
        "modalities": {"vision": model.is_some_and(|model| model.card.abilities.vision), "audio": false},
        "build_info": "simulated",
        "is_sleeping": false,
    })
}

fn listed(model: &NodeModel) -> Value {
    let mut entry = openai_model(model, "llamacpp");
    entry["meta"] = json!({
        "n_ctx_train": model.engine.context_tokens_max,
        "n_embd": model.card.embedding_length,
        "n_params": model.card.parameter_count,
        "size": model.card.size_bytes,
    });
    entry
}

/// Without labels, as it serves one model.
fn metrics(now: &Snapshot) -> String {
    let sample = |name: &str, kind: &str, value: u64| format!("# TYPE {name} {kind}\n{name} {value}\n");
    let running = now.demand.iter().map(|demand| demand.running as u64).sum();
    let waiting = now.demand.iter().map(|demand| demand.waiting as u64).sum();
    [
        sample("llamacpp:requests_processing", "gauge", running),
        sample("llamacpp:requests_deferred", "gauge", waiting),
        sample("llamacpp:prompt_tokens_total", "counter", now.stats.prompt_tokens - now.stats.cached_tokens),
        sample("llamacpp:prompt_tokens_cached_total", "counter", now.stats.cached_tokens),
        sample("llamacpp:tokens_predicted_total", "counter", now.stats.output_tokens),
    ]
    .concat()
}

fn refuse(refusal: &Refusal, path: &str) -> Page {
    let status = refusal.status();
    let message = words(refusal);
    let body = match Dialect::of_path(path) {
        Dialect::Anthropic => anthropic::error(status, &message),
        _ => json!({"error": fields(refusal, status, message)}),
    };
    Page::json(&body).with_status(status)
}

fn fields(refusal: &Refusal, status: u16, message: String) -> Value {
    let mut fields = json!({"code": status, "message": message, "type": kind(refusal, status)});
    if let Refusal::TooLong { tokens, window } = refusal {
        fields["n_prompt_tokens"] = json!(tokens);
        fields["n_ctx"] = json!(window);
    }
    fields
}

fn words(refusal: &Refusal) -> String {
    match refusal {
        Refusal::NoSuchPath | Refusal::WrongMethod => "File Not Found".into(),
        Refusal::TooLong { tokens, window } => {
            format!("request ({tokens} tokens) exceeds the available context size ({window} tokens), try increasing it")
        }
        other => other.to_string(),
    }
}

fn kind(refusal: &Refusal, status: u16) -> &'static str {
    match (refusal, status) {
        (Refusal::TooLong { .. }, _) => "exceed_context_size_error",
        (_, 404 | 405) => "not_found_error",
        (_, 400..=499) => "invalid_request_error",
        (_, 503) => "unavailable_error",
        _ => "server_error",
    }
}
