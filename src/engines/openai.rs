//! Anything that speaks OpenAI's API and is nothing more particular.
//!
//! `/v1/models` is all it tells. Its models are taken as always resident. The context window is read
//! where servers of this kind are known to put it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{Engine, Listing, Naming, Reading, entries, tokens};
use crate::routing::ask::Dialect;
use crate::routing::report::{ModelReport, Report};

pub static ENGINE: Engine = Engine {
    name: "openai",
    dialects: &[Dialect::OpenAi],
    naming: Naming::Exact,
    probe_path: "/v1/models",
    poll_paths: &["/v1/models"],
    fixed_models: true,
    default_slots: 16,
    read,
    fingerprint_path: "/v1/models",
    recognises,
    generic: true,
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

fn read(bodies: &[&[u8]]) -> Result<Reading, String> {
    let &[models] = bodies else {
        return Err(format!("{} bodies for one path", bodies.len()));
    };
    read_models(models).map_err(|why| format!("/v1/models: {why}"))
}

fn read_models(body: &[u8]) -> Result<Reading, String> {
    let mut models = BTreeMap::new();
    for value in entries(body, "data")? {
        let report = report(&value)?;
        let listing = Listing { name: report.name.clone(), openai: Some(value), ..Listing::default() };
        models.entry(report.name.clone()).or_insert((report, listing));
    }
    let (reports, listings) = models.into_values().unzip();
    Ok(Reading { report: Report { models: reports, slots: None }, listings })
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
    read_models(body).is_ok()
}
