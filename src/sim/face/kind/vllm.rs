//! vLLM: one model under its name, everything in OpenAI's and Anthropic's dialects, metrics.
//!
//! As if started with `--enable-prompt-tokens-details` and with responses stored. Its queue has no end
//! unless the node's parameters set one.

use serde_json::json;

use super::{Kind, Names, Overflow, Page, Responses, Snapshot, openai_models, served_model};
use crate::routing::ask::{Dialect, Endpoint};
use crate::sim::engine::{CacheParams, Demand};
use crate::sim::face::params::NodeModel;
use crate::sim::face::refusal::Refusal;
use crate::sim::face::voice::{anthropic, rerank};

pub static KIND: Kind = Kind {
    name: "vllm",
    serves: &[
        Endpoint::OpenAiChat,
        Endpoint::OpenAiCompletions,
        Endpoint::OpenAiEmbeddings,
        Endpoint::OpenAiResponses,
        Endpoint::OpenAiRerank,
        Endpoint::AnthropicMessages,
        Endpoint::AnthropicCountTokens,
    ],
    names: Names::Exact,
    overflow: Overflow::RefusedWithOutput,
    responses: Responses::Stored,
    role_first: true,
    page,
    refuse,
    rerank: rerank::results,
};

const VERSION: &str = "0.33.0+simulated";

fn page(path: &str, now: &Snapshot) -> Option<Page> {
    Some(match path {
        "/health" | "/ping" => Page::text(""),
        "/version" => Page::json(&json!({"version": VERSION})),
        "/v1/models" => Page::json(&openai_models(now.node, |model| served_model(model, "vllm"))),
        "/metrics" => Page::metrics(metrics(now)),
        _ => return None,
    })
}

fn metrics(now: &Snapshot) -> String {
    let labels = r#"engine="0""#;
    let gauge = |name: &str, value: fn(&NodeModel, &Demand) -> f64| now.metric(name, "gauge", labels, value);
    // The journal does not count by model; there is one.
    let counter = |name: &str, value: u64| now.metric(name, "counter", labels, |_, _| value as f64);
    [
        gauge("vllm:num_requests_running", |_, demand| demand.running as f64),
        gauge("vllm:num_requests_waiting", |_, demand| demand.waiting as f64),
        gauge("vllm:kv_cache_usage_perc", usage),
        counter("vllm:prefix_cache_queries_total", now.stats.prompt_tokens),
        counter("vllm:prefix_cache_hits_total", now.stats.cached_tokens),
        counter("vllm:prompt_tokens_total", now.stats.prompt_tokens),
        counter("vllm:generation_tokens_total", now.stats.output_tokens),
    ]
    .concat()
}

/// The share of the cache that running requests hold; what is merely remembered counts as free.
pub fn usage(model: &NodeModel, demand: &Demand) -> f64 {
    match model.engine.cache {
        CacheParams::Blocks { blocks, block_tokens } => {
            let held = demand.held_tokens.div_ceil(u64::from(block_tokens.max(1)));
            (held as f64 / blocks.max(1) as f64).min(1.0)
        }
        CacheParams::PerSlot { .. } => 0.0,
    }
}

fn refuse(refusal: &Refusal, path: &str) -> Page {
    let status = refusal.status();
    let message = words(refusal);
    let body = match Dialect::of_path(path) {
        Dialect::Anthropic => anthropic::error(status, &message),
        _ => {
            let kind = kind(refusal, status);
            json!({"error": {"message": message, "type": kind, "param": param(refusal), "code": status}})
        }
    };
    Page::json(&body).with_status(status)
}

fn words(refusal: &Refusal) -> String {
    match refusal {
        Refusal::UnknownModel(model) => format!("The model `{model}` does not exist."),
        Refusal::WrongMethod => "Method Not Allowed".into(),
        Refusal::Unable { ability: "generate", .. } => "The model does not support Chat Completions API".into(),
        Refusal::Unable { .. } => "The model does not support Embeddings API".into(),
        Refusal::TooLong { tokens, window } => format!(
            "This model's maximum context length is {window} tokens. However, your request has {tokens} tokens. \
             Please reduce the length of the messages or completion."
        ),
        Refusal::Busy => "The server has as many queued requests as --max-num-queued-reqs allows.".into(),
        other => other.to_string(),
    }
}

fn kind(refusal: &Refusal, status: u16) -> &'static str {
    match (refusal, status) {
        (Refusal::NoSuchPath, _) => "Not Found",
        (Refusal::WrongMethod, _) => "Method Not Allowed",
        (Refusal::UnknownResponse(_), _) => "invalid_request_error",
        (_, 404) => "NotFoundError",
        (_, 400..=499) => "BadRequestError",
        (_, 503) => "ServiceUnavailableError",
        _ => "InternalServerError",
    }
}

fn param(refusal: &Refusal) -> Option<&'static str> {
    match refusal {
        Refusal::UnknownModel(_) => Some("model"),
        Refusal::UnknownResponse(_) => Some("response_id"),
        _ => None,
    }
}
