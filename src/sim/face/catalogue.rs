//! The lists: what is installed, what is in memory, what a model is.
//!
//! Pure functions from a node's parameters to the JSON that Ollama's clients expect. Nothing in a
//! list says "simulated" but the version, so that clients treat the models like any others.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::params::{Card, NodeModel, NodeParams};
use crate::date::{rfc3339, unix_seconds};
use crate::routing::chain::hash_text;
use crate::sim::engine::Resident;

/// Clients compare it as dotted integers with a suffix.
const VERSION: &str = "0.33.0-simulated";

/// A fixed day on which all models are said to have been pulled: 1 March 2026.
const PULLED_UNIX_S: u64 = 1_772_323_200;

/// For a model that is never unloaded Ollama tells a day centuries ahead.
const FOREVER: Duration = Duration::from_secs(290 * 365 * 86_400);

pub fn version() -> Value {
    json!({"version": VERSION, "simulated": true})
}

/// `/api/tags`.
pub fn tags(node: &NodeParams) -> Value {
    let entry = |model: &NodeModel| {
        let mut entry = listing(model);
        entry["modified_at"] = json!(rfc3339(pulled()));
        entry["size"] = json!(model.card.size_bytes);
        entry
    };
    json!({"models": node.models.iter().map(entry).collect::<Vec<_>>()})
}

/// `/api/ps`.
pub fn ps(node: &NodeParams, resident: &[(Resident, Option<Duration>)], now: SystemTime) -> Value {
    let entry = |(resident, left): &(Resident, Option<Duration>)| {
        let model = node.find(&resident.name)?;
        let mut entry = listing(model);
        entry["size"] = json!(resident.memory_bytes);
        entry["size_vram"] = json!(resident.memory_bytes);
        entry["expires_at"] = json!(rfc3339(now + left.unwrap_or(FOREVER)));
        entry["context_length"] = json!(resident.context_tokens);
        Some(entry)
    };
    json!({"models": resident.iter().filter_map(entry).collect::<Vec<_>>()})
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
        "modified_at": rfc3339(pulled()),
    })
}

/// `/v1/models`.
pub fn openai_models(node: &NodeParams) -> Value {
    json!({
        "object": "list",
        "data": node.models.iter().map(openai_model).collect::<Vec<_>>(),
    })
}

/// `/v1/models/{id}`.
pub fn openai_model(model: &NodeModel) -> Value {
    json!({
        "id": model.engine.name,
        "object": "model",
        "created": unix_seconds(pulled()),
        "owned_by": "library",
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

fn pulled() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(PULLED_UNIX_S)
}
