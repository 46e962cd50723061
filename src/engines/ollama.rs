//! Ollama: loads models on demand and tells which are on disk and which in memory.
//!
//! `/api/tags` is the disk, `/api/ps` the memory; a model in memory may be gone from the disk. It
//! tells neither its load nor its slots. Both lists must be read for either to count.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::{Bodies, Engine, Listing, Naming, Poll, Probe, Reading, entries, misfit, reading, tokens};
use crate::routing::ask::{Dialect, Endpoint};
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
    fixed_models: false,
    counts_on_request: true,
    // OLLAMA_NUM_PARALLEL, when unset.
    default_slots: 1,
    read,
    fingerprint_path: "/api/version",
    recognises,
    generic: false,
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
    let tags = entries(tags, "models").and_then(|list| list.into_iter().try_for_each(|e| on_disk(&mut models, e)));
    tags.map_err(|why| format!("/api/tags: {why}"))?;
    let ps = entries(ps, "models").and_then(|list| list.into_iter().try_for_each(|e| in_memory(&mut models, e)));
    ps.map_err(|why| format!("/api/ps: {why}"))?;

    Ok(reading(models.into_values().collect(), None, None))
}

type Models = BTreeMap<String, (ModelReport, Listing)>;

fn on_disk(models: &mut Models, value: Value) -> Result<(), String> {
    let entry = parse(&value)?;
    let (report, listing) = named(models, &entry.name);
    report.size_bytes = entry.size;
    report.abilities = abilities(&entry);
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
    report.abilities = report.abilities.or(abilities(&entry));
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

fn abilities(entry: &Entry) -> Option<Abilities> {
    let told = entry.capabilities.as_ref()?;
    let has = |ability: &str| told.iter().any(|t| t == ability);
    Some(Abilities { vision: has("vision"), tools: has("tools"), embedding: has("embedding") })
}

fn recognises(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Answer {
        version: String,
    }
    serde_json::from_slice(body).is_ok_and(|Answer { version }| version.starts_with(|c: char| c.is_ascii_digit()))
}
