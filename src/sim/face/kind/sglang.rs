//! SGLang: one model that answers to any name, and tells its load in several places.
//!
//! As if started with metrics, the cache report and stored responses. Its errors are flat, but for
//! those of Responses and of Anthropic's messages. `/health` makes a token and takes a second. Its
//! paths in the likeness of Ollama's are left out.

use std::time::Duration;

use serde_json::{Value, json};

use super::vllm::usage;
use super::{Kind, Names, Overflow, Page, Responses, Snapshot, openai_models, served_model};
use crate::date::rfc3339;
use crate::routing::ask::{Dialect, Endpoint};
use crate::sim::engine::Demand;
use crate::sim::face::params::NodeModel;
use crate::sim::face::refusal::Refusal;
use crate::sim::face::voice::{anthropic, rerank};

pub static KIND: Kind = Kind {
    name: "sglang",
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
    overflow: Overflow::RefusedWithOutput,
    responses: Responses::Stored,
    role_first: true,
    page,
    refuse,
    rerank: rerank::list,
};

const VERSION: &str = "0.5.23+simulated";

const HEALTH_TAKES: Duration = Duration::from_secs(1);

fn page(path: &str, now: &Snapshot) -> Option<Page> {
    Some(match path {
        "/" => Page::text("SGLang is running"),
        "/ready" => Page::text(""),
        "/health" | "/health_generate" => Page::text("").after(HEALTH_TAKES),
        "/v1/models" => Page::json(&openai_models(now.node, |model| served_model(model, "sglang"))),
        "/model_info" | "/get_model_info" => Page::json(&model_info(now)),
        "/server_info" | "/get_server_info" => Page::json(&server_info(now)),
        "/v1/loads" => Page::json(&loads(now)),
        "/metrics" => Page::metrics(metrics(now)),
        _ => {
            let id = path.strip_prefix("/v1/models/")?;
            let model = now.node.models.iter().find(|model| model.engine.name == id)?;
            Page::json(&served_model(model, "sglang"))
        }
    })
}

fn model_info(now: &Snapshot) -> Value {
    let model = now.node.models.first();
    let name = model.map(|model| model.engine.name.as_str());
    json!({
        "model_path": name,
        "tokenizer_path": name,
        "is_generation": model.is_some_and(|model| !model.card.abilities.embedding),
        "preferred_sampling_params": null,
    })
}

fn server_info(now: &Snapshot) -> Value {
    let model = now.node.models.first();
    let slots = model.map(|model| model.engine.slots);
    json!({
        "model_path": model.map(|model| model.engine.name.as_str()),
        "context_length": model.map(|model| model.engine.context_tokens),
        "max_running_requests": slots,
        "internal_states": [{"effective_max_running_requests_per_dp": slots}],
        "version": VERSION,
    })
}

/// One rank. What runs, waits and is held is the whole node's.
fn loads(now: &Snapshot) -> Value {
    let of_all = |count: fn(&Demand) -> u64| now.demand.iter().map(count).sum::<u64>();
    let slots: u32 = now.node.models.iter().map(|model| model.engine.slots).sum();
    let (running, waiting) = (of_all(|demand| demand.running as u64), of_all(|demand| demand.waiting as u64));
    json!({
        "timestamp": rfc3339(now.now),
        "version": VERSION,
        "loads": [{
            "dp_rank": 0,
            "num_running_reqs": running,
            "num_waiting_reqs": waiting,
            "num_total_reqs": running + waiting,
            "num_used_tokens": of_all(|demand| demand.held_tokens),
            "max_running_requests": slots,
        }],
    })
}

fn metrics(now: &Snapshot) -> String {
    let labels = r#"engine_type="unified",tp_rank="0",pp_rank="0""#;
    let gauge = |name: &str, value: fn(&NodeModel, &Demand) -> f64| now.metric(name, "gauge", labels, value);
    let counter = |name: &str, value: u64| now.metric(name, "counter", labels, |_, _| value as f64);
    let hit_rate = now.stats.cached_tokens as f64 / now.stats.prompt_tokens.max(1) as f64;
    [
        gauge("sglang:num_running_reqs", |_, demand| demand.running as f64),
        gauge("sglang:num_queue_reqs", |_, demand| demand.waiting as f64),
        gauge("sglang:token_usage", usage),
        now.metric("sglang:cache_hit_rate", "gauge", labels, |_, _| hit_rate),
        counter("sglang:prompt_tokens_total", now.stats.prompt_tokens),
        counter("sglang:cached_tokens_total", now.stats.cached_tokens),
        counter("sglang:generation_tokens_total", now.stats.output_tokens),
    ]
    .concat()
}

fn refuse(refusal: &Refusal, path: &str) -> Page {
    let status = refusal.status();
    let message = words(refusal);
    let body = match Dialect::of_path(path) {
        Dialect::Anthropic => anthropic::error(status, &message),
        _ if *refusal == Refusal::NoSuchPath || *refusal == Refusal::WrongMethod => json!({"detail": message}),
        _ if path == Endpoint::OpenAiResponses.path() => {
            json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": status}})
        }
        _ => json!({"object": "error", "message": message, "type": kind(status), "param": null, "code": status}),
    };
    Page::json(&body).with_status(status)
}

fn words(refusal: &Refusal) -> String {
    match refusal {
        Refusal::WrongMethod => "Method Not Allowed".into(),
        Refusal::TooLong { tokens, window } => format!(
            "Requested token count exceeds the model's maximum context length of {window} tokens. \
             You requested a total of {tokens} tokens."
        ),
        Refusal::Busy => "The request queue is full.".into(),
        other => other.to_string(),
    }
}

fn kind(status: u16) -> &'static str {
    match status {
        400..=499 => "BadRequestError",
        503 => "SERVICE_UNAVAILABLE",
        _ => "InternalServerError",
    }
}
