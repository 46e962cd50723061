//! LiteLLM's proxy: a catalogue of other people's models behind one key.
//!
//! `/health` is never asked, because it sends a paid request to every model. Whether it is alive is all
//! that its probe tells; it does not tell its load, and what it passes on to has slots of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::{Bodies, Engine, Naming, Poll, Probe, Reading, entries, misfit, openai, reading, tokens};
use crate::routing::ask::Dialect;
use crate::routing::prefix::CacheKind;

pub static ENGINE: Engine = Engine {
    name: "litellm",
    dialects: &[Dialect::OpenAi, Dialect::Anthropic],
    lacks: &[],
    naming: Naming::Exact,
    probe: Probe {
        path: "/health/liveliness",
        older_path: None,
        patience: Duration::ZERO,
        says_up: is_alive,
        says_loading: |_| false,
    },
    polls: &[Poll::required("/v1/models"), Poll::optional("/model/info")],
    inquiry: None,
    // Attempts are counted here; its own on top would multiply them.
    headers: &[("x-litellm-num-retries", "0")],
    fixed_models: true,
    counts_on_request: true,
    salts_cache: false,
    unsalted: &[],
    default_slots: 64,
    cache: CacheKind::Blocks,
    // 429 with "Try again in N seconds": every deployment of the model cools down.
    busy_statuses: &[429, 503],
    read,
    fingerprint_path: "/health/liveliness",
    recognises: is_alive,
    generic: false,
    rank_header: None,
    continues: None,
};

/// Entry of `/model/info`: one deployment of a model; a name may have several.
#[derive(Deserialize)]
struct Deployment {
    model_name: String,
    model_info: Details,
}

#[derive(Deserialize)]
struct Details {
    max_input_tokens: Option<u64>,
}

fn read(bodies: &Bodies) -> Result<Reading, String> {
    let &[Some(models), info] = bodies else { return Err(misfit(bodies)) };
    let windows = info.map(windows).unwrap_or_default();
    let mut models = openai::models(models)?;
    for (report, _) in &mut models {
        report.context_tokens = windows.get(&report.name).copied().map(tokens).or(report.context_tokens);
    }
    Ok(reading(models, None, None))
}

/// The smallest context window of each name, since any of its deployments may answer.
fn windows(info: &[u8]) -> BTreeMap<String, u64> {
    let mut windows = BTreeMap::new();
    for entry in entries(info, "data").unwrap_or_default() {
        let Ok(deployment) = Deployment::deserialize(entry) else { continue };
        if let Some(window) = deployment.model_info.max_input_tokens.filter(|&count| count > 0) {
            let smallest = windows.entry(deployment.model_name).or_insert(window);
            *smallest = window.min(*smallest);
        }
    }
    windows
}

fn is_alive(body: &[u8]) -> bool {
    matches!(body.trim_ascii(), br#""I'm alive!""# | b"I'm alive!")
}
