//! Anything that speaks OpenAI's API and is nothing more particular.
//!
//! `/v1/models` is all it tells. Its models are taken as always resident. The context window is read
//! where servers of this kind are known to put it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::{Bodies, Engine, Listing, Naming, Poll, Probe, Reading, each_fitting, entries, misfit, reading, tokens};
use crate::routing::ask::Dialect;
use crate::routing::prefix::CacheKind;
use crate::routing::report::ModelReport;

pub static ENGINE: Engine = Engine {
    name: "openai",
    dialects: &[Dialect::OpenAi],
    lacks: &[],
    naming: Naming::Exact,
    probe: Probe {
        path: "/v1/models",
        older_path: None,
        patience: Duration::ZERO,
        says_up: recognises,
        says_loading: |_| false,
    },
    polls: &[Poll::required("/v1/models")],
    inquiry: None,
    headers: &[],
    fixed_models: true,
    // Some such servers refuse what they do not know.
    counts_on_request: false,
    salts_cache: false,
    unsalted: &[],
    default_slots: 16,
    cache: CacheKind::Blocks,
    busy_statuses: &[429, 503],
    read,
    fingerprint_path: "/v1/models",
    recognises,
    generic: true,
    rank_header: None,
    continues: None,
};

#[derive(Deserialize)]
struct Entry {
    id: String,
    /// vLLM's and SGLang's.
    max_model_len: Option<u64>,
    meta: Option<Meta>,
}

/// llama-server's.
#[derive(Default, Deserialize)]
struct Meta {
    n_ctx: Option<u64>,
    n_ctx_train: Option<u64>,
}

fn read(bodies: &Bodies) -> Result<Reading, String> {
    let &[Some(body)] = bodies else { return Err(misfit(bodies)) };
    Ok(reading(models(body)?, None, None))
}

/// What `/v1/models` lists, here and on engines that begin with it; in order of name.
pub(super) fn models(body: &[u8]) -> Result<Vec<(ModelReport, Listing)>, String> {
    let mut models = BTreeMap::new();
    let list = entries(body, "data").and_then(|list| {
        each_fitting(list, |value| {
            let report = report(&value)?;
            let listing = Listing { name: report.name.clone(), openai: Some(value), ..Listing::default() };
            models.entry(report.name.clone()).or_insert((report, listing));
            Ok(())
        })
    });
    list.map_err(|why| format!("/v1/models: {why}"))?;
    Ok(models.into_values().collect())
}

/// Whether every model of `/v1/models` names that engine as its owner.
pub(super) fn is_owned_by(body: &[u8], engine: &str) -> bool {
    entries(body, "data").is_ok_and(|list| !list.is_empty() && list.iter().all(|entry| entry["owned_by"] == engine))
}

fn report(value: &Value) -> Result<ModelReport, String> {
    let entry = Entry::deserialize(value).map_err(|e| format!("an entry does not fit: {e}"))?;
    if entry.id.is_empty() {
        return Err("an entry has an empty id".to_string());
    }
    let meta = entry.meta.unwrap_or_default();
    // What it runs with comes before what it was trained with.
    let context = entry.max_model_len.or(meta.n_ctx).or(meta.n_ctx_train);
    Ok(ModelReport {
        name: entry.id,
        resident: true,
        context_tokens: context.filter(|&count| count > 0).map(tokens),
        ..ModelReport::default()
    })
}

fn recognises(body: &[u8]) -> bool {
    models(body).is_ok()
}
