//! Ollama: several models that come and go in memory, in all three dialects.
//!
//! Nothing in a list says "simulated" but the version, so that clients treat the models like any
//! others.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{Kind, Names, Overflow, Page, Responses, Snapshot, installed, openai_model, openai_models};
use crate::date::rfc3339;
use crate::routing::ask::{Dialect, Endpoint};
use crate::routing::chain::hash_text;
use crate::sim::engine::Resident;
use crate::sim::face::params::{Card, NodeModel};
use crate::sim::face::refusal::Refusal;
use crate::sim::face::voice::{anthropic, ollama, openai, rerank};

pub static KIND: Kind = Kind {
    name: "ollama",
    serves: &[
        Endpoint::OllamaChat,
        Endpoint::OllamaGenerate,
        Endpoint::OllamaEmbed,
        Endpoint::OllamaEmbeddings,
        Endpoint::OllamaShow,
        Endpoint::OpenAiChat,
        Endpoint::OpenAiCompletions,
        Endpoint::OpenAiEmbeddings,
        Endpoint::OpenAiResponses,
        Endpoint::AnthropicMessages,
    ],
    names: Names::Ollama,
    overflow: Overflow::Truncated,
    responses: Responses::Ignored,
    role_first: false,
    page,
    refuse,
    // It has none.
    rerank: rerank::results,
};

/// Clients compare it as dotted integers with a suffix.
const VERSION: &str = "0.33.0-simulated";

/// For a model that is never unloaded Ollama tells a day centuries ahead.
const FOREVER: Duration = Duration::from_secs(290 * 365 * 86_400);

/// Ollama's words, both blanks included.
const BUSY: &str = "server busy, please try again.  maximum pending requests exceeded";

fn page(path: &str, now: &Snapshot) -> Option<Page> {
    Some(match path {
        "/" => Page::text("Ollama is running"),
        "/api/version" => Page::json(&json!({"version": VERSION, "simulated": true})),
        "/api/tags" => Page::json(&tags(now)),
        "/api/ps" => Page::json(&ps(now)),
        "/v1/models" => Page::json(&openai_models(now.node, |model| openai_model(model, "library"))),
        _ => {
            let id = path.strip_prefix("/v1/models/")?;
            match now.node.find(id) {
                Some(model) => Page::json(&openai_model(model, "library")),
                None => refuse(&Refusal::UnknownModel(id.to_owned()), path),
            }
        }
    })
}

fn refuse(refusal: &Refusal, path: &str) -> Page {
    let status = refusal.status();
    let message = match refusal {
        Refusal::NoSuchPath => return Page::text("404 page not found").with_status(status),
        Refusal::Busy => BUSY.into(),
        other => other.to_string(),
    };
    let body = match Dialect::of_path(path) {
        Dialect::Ollama => ollama::error(&message),
        Dialect::OpenAi => openai::error(status, &message),
        Dialect::Anthropic => anthropic::error(status, &message),
    };
    Page::json(&body).with_status(status)
}

/// `/api/tags`.
fn tags(now: &Snapshot) -> Value {
    let entry = |model: &NodeModel| {
        let mut entry = listing(model);
        entry["modified_at"] = json!(rfc3339(installed()));
        entry["size"] = json!(model.card.size_bytes);
        entry
    };
    json!({"models": now.node.models.iter().map(entry).collect::<Vec<_>>()})
}

/// `/api/ps`.
fn ps(now: &Snapshot) -> Value {
    let entry = |(resident, left): &(Resident, Option<Duration>)| {
        let model = now.node.find(&resident.name)?;
        let mut entry = listing(model);
        entry["size"] = json!(resident.memory_bytes);
        entry["size_vram"] = json!(resident.memory_bytes);
        entry["expires_at"] = json!(rfc3339(now.now + left.unwrap_or(FOREVER)));
        entry["context_length"] = json!(resident.context_tokens);
        Some(entry)
    };
    json!({"models": now.resident.iter().filter_map(entry).collect::<Vec<_>>()})
}

/// `/api/show`.
pub fn show(model: &NodeModel) -> Value {
    let (card, engine) = (&model.card, &model.engine);
    let family = card.family;
    let mut info = Map::new();
    info.insert("general.architecture".into(), json!(family));
    info.insert("general.parameter_count".into(), json!(card.parameter_count));
    let trained = engine.context_tokens_max.max(engine.context_tokens);
    info.insert(format!("{family}.context_length"), json!(trained));
    info.insert(format!("{family}.embedding_length"), json!(card.embedding_length));
    json!({
        "license": "",
        "modelfile": format!("# simulated\nFROM {}\n", engine.name),
        "parameters": "",
        "template": "{{ .Prompt }}",
        "details": details(card),
        "model_info": info,
        "capabilities": capabilities(card),
        "modified_at": rfc3339(installed()),
    })
}

fn listing(model: &NodeModel) -> Value {
    let name = &model.engine.name;
    json!({
        "name": name,
        "model": name,
        "digest": digest(name),
        "details": details(&model.card),
        "capabilities": capabilities(&model.card),
    })
}

fn details(card: &Card) -> Value {
    json!({
        "parent_model": "",
        "format": "gguf",
        "family": card.family,
        "families": [card.family],
        "parameter_size": card.parameter_size,
        "quantization_level": card.quantization,
    })
}

fn capabilities(card: &Card) -> Vec<&'static str> {
    let abilities = card.abilities;
    let all = [
        (!abilities.embedding, "completion"),
        (abilities.tools, "tools"),
        (abilities.vision, "vision"),
        (abilities.embedding, "embedding"),
    ];
    all.into_iter().filter(|(has, _)| *has).map(|(_, name)| name).collect()
}

/// Looks like the SHA-256 that it is not; the same on every node, as a pulled model's is.
fn digest(name: &str) -> String {
    let part = |salt: u8| format!("{:016x}", hash_text(&format!("{name}{salt}")));
    (0..4).map(part).collect()
}
