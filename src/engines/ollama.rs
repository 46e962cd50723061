//! Ollama: loads models on demand and tells which are on disk and which in memory.
//!
//! `/api/tags` is the disk, `/api/ps` the memory; a model in memory may be gone from the disk. It
//! tells neither its load nor its slots. Both lists must be read for either to count.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    Bodies, Engine, Inquiry, Listing, ModelFacts, Naming, Poll, Probe, Reading, each_fitting, entries, misfit, reading,
    tokens,
};
use crate::routing::ask::{Dialect, Endpoint};
use crate::routing::prefix::CacheKind;
use crate::routing::report::{Abilities, ModelReport};

pub static ENGINE: Engine = Engine {
    name: "ollama",
    dialects: &[Dialect::Ollama, Dialect::OpenAi, Dialect::Anthropic],
    lacks: &[
        Endpoint::AnthropicCountTokens,
        Endpoint::OpenAiRerank,
        Endpoint::OpenAiTranslations,
        Endpoint::OpenAiSpeech,
    ],
    naming: Naming::Ollama,
    probe: Probe {
        path: "/api/version",
        older_path: None,
        patience: Duration::ZERO,
        says_up: recognises,
        // A model that loads keeps its requests waiting and says nothing.
        says_loading: |_| false,
    },
    polls: &[Poll::required("/api/tags"), Poll::required("/api/ps")],
    inquiry: Some(Inquiry { path: "/api/show", body: question, edition, read: read_shown }),
    headers: &[],
    fixed_models: false,
    counts_on_request: true,
    salts_cache: false,
    unsalted: &[],
    // OLLAMA_NUM_PARALLEL, when unset.
    default_slots: 1,
    cache: CacheKind::PerSlot,
    busy_statuses: &[429, 503],
    read,
    fingerprint_path: "/api/version",
    recognises,
    generic: false,
    rank_header: None,
    continues: Some(""),
};

/// What routing needs of an entry; `/api/tags` and `/api/ps` share it.
#[derive(Deserialize)]
struct Entry {
    name: String,
    size: Option<u64>,
    context_length: Option<u64>,
    capabilities: Option<Vec<String>>,
}

fn read(bodies: &Bodies) -> Result<Reading, String> {
    let &[Some(tags), Some(ps)] = bodies else { return Err(misfit(bodies)) };
    let mut models = BTreeMap::new();
    let tags = entries(tags, "models").and_then(|list| each_fitting(list, |e| on_disk(&mut models, e)));
    tags.map_err(|why| format!("/api/tags: {why}"))?;
    let ps = entries(ps, "models").and_then(|list| each_fitting(list, |e| in_memory(&mut models, e)));
    ps.map_err(|why| format!("/api/ps: {why}"))?;

    Ok(reading(models.into_values().collect(), None, None))
}

type Models = BTreeMap<String, (ModelReport, Listing)>;

fn on_disk(models: &mut Models, value: Value) -> Result<(), String> {
    let entry = parse(&value)?;
    let (report, listing) = named(models, &entry.name);
    report.size_bytes = entry.size;
    report.abilities = abilities(entry.capabilities.as_deref());
    listing.tags = Some(value);
    Ok(())
}

fn in_memory(models: &mut Models, value: Value) -> Result<(), String> {
    let entry = parse(&value)?;
    let (report, listing) = named(models, &entry.name);
    report.resident = true;
    // All of it: `size_vram` is the share that is on the GPU.
    report.resident_bytes = entry.size;
    report.context_tokens = entry.context_length.filter(|&count| count > 0).map(tokens);
    report.abilities = report.abilities.or(abilities(entry.capabilities.as_deref()));
    listing.ps = Some(value);
    Ok(())
}

fn parse(value: &Value) -> Result<Entry, String> {
    let entry = Entry::deserialize(value).map_err(|e| format!("an entry does not fit: {e}"))?;
    if entry.name.is_empty() { Err("an entry has an empty name".to_string()) } else { Ok(entry) }
}

fn named<'a>(models: &'a mut Models, name: &str) -> &'a mut (ModelReport, Listing) {
    models.entry(name.to_string()).or_insert_with(|| {
        let report = ModelReport { name: name.to_string(), ..ModelReport::default() };
        (report, Listing { name: name.to_string(), ..Listing::default() })
    })
}

fn abilities(told: Option<&[String]>) -> Option<Abilities> {
    let told = told?;
    let has = |ability: &str| told.iter().any(|t| t == ability);
    Some(Abilities {
        vision: has("vision"),
        tools: has("tools"),
        embedding: has("embedding"),
        thinking: has("thinking"),
    })
}

fn question(model: &str) -> Vec<u8> {
    json!({ "model": model }).to_string().into_bytes()
}

/// A model that runs at Ollama's own service is not asked about: the question might go out to there.
fn edition(listing: &Listing) -> Option<&str> {
    let is_remote = |entry: &Value| entry["remote_model"].is_string() || entry["remote_host"].is_string();
    let entry = listing.tags.as_ref().or(listing.ps.as_ref()).filter(|entry| !is_remote(entry))?;
    entry["digest"].as_str()
}

/// The answer of `/api/show`, which is read from the model's file and loads nothing.
#[derive(Deserialize)]
struct Shown {
    #[serde(default)]
    model_info: Map<String, Value>,
    /// The Modelfile's, one a line.
    parameters: Option<String>,
    capabilities: Option<Vec<String>>,
}

fn read_shown(body: &[u8]) -> Result<ModelFacts, String> {
    let shown: Shown = serde_json::from_slice(body).map_err(|e| format!("it does not fit: {e}"))?;
    let trained = shown.model_info.get("general.architecture").and_then(Value::as_str).and_then(|architecture| {
        let key = format!("{architecture}.context_length");
        shown.model_info.get(&key).and_then(Value::as_u64)
    });
    Ok(ModelFacts {
        abilities: abilities(shown.capabilities.as_deref()),
        trained_tokens: trained.filter(|&count| count > 0).map(tokens),
        own_window: shown.parameters.as_deref().and_then(num_ctx),
    })
}

fn num_ctx(parameters: &str) -> Option<u32> {
    let lines = parameters.lines().map(|line| line.split_whitespace());
    let mut values = lines.filter_map(|mut words| words.next().filter(|name| *name == "num_ctx").and(words.next()));
    values.next_back()?.parse().ok().filter(|&count| count > 0)
}

fn recognises(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Answer {
        version: String,
    }
    serde_json::from_slice(body).is_ok_and(|Answer { version }| version.starts_with(|c: char| c.is_ascii_digit()))
}
