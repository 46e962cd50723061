//! llama.cpp's server: one model with a fixed number of slots, or a router that loads models.
//!
//! While it loads, every path answers 503, so it is known only afterwards. The context window is that of
//! one slot. `/slots` is never asked, because that wakes a server that sleeps.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::{Bodies, Engine, Listing, Naming, Poll, Probe, Reading, load, misfit, openai, reading, tokens};
use crate::routing::ask::Dialect;
use crate::routing::prefix::CacheKind;
use crate::routing::report::{Abilities, ModelReport};

pub static ENGINE: Engine = Engine {
    name: "llama_cpp",
    dialects: &[Dialect::OpenAi, Dialect::Anthropic],
    lacks: &[],
    naming: Naming::Exact,
    probe: Probe { path: "/health", older_path: None, patience: Duration::ZERO, says_up, says_loading },
    polls: &[Poll::required("/v1/models"), Poll::optional("/props"), Poll::optional("/metrics")],
    inquiry: None,
    headers: &[],
    // A router's models are loaded on demand, and a server may sleep.
    fixed_models: false,
    counts_on_request: true,
    salts_cache: false,
    unsalted: &[],
    // --parallel, when unset.
    default_slots: 1,
    cache: CacheKind::PerSlot,
    busy_statuses: &[429, 503],
    read,
    fingerprint_path: "/props",
    recognises,
    generic: false,
    rank_header: None,
    // Older servers always do, and know neither of these.
    continues: Some(r#""continue_final_message":true,"add_generation_prompt":false,"#),
};

const RUNNING: [&str; 2] = ["llamacpp:requests_processing", "llamacpp_requests_processing"];
const WAITING: [&str; 2] = ["llamacpp:requests_deferred", "llamacpp_requests_deferred"];

#[derive(Default, Deserialize)]
struct Props {
    total_slots: Option<u32>,
    /// A router instead of a server.
    role: Option<String>,
    default_generation_settings: Option<Settings>,
    modalities: Option<Modalities>,
    #[serde(default)]
    is_sleeping: bool,
}

#[derive(Deserialize)]
struct Settings {
    /// Of one slot; a router says 0.
    n_ctx: Option<u64>,
}

#[derive(Deserialize)]
struct Modalities {
    vision: bool,
}

fn read(bodies: &Bodies) -> Result<Reading, String> {
    let &[Some(models), props, metrics] = bodies else { return Err(misfit(bodies)) };
    let props: Props = props.and_then(|body| serde_json::from_slice(body).ok()).unwrap_or_default();
    let mut models = openai::models(models)?;
    for (report, listing) in &mut models {
        complete(report, listing, &props);
    }
    let load = metrics.and_then(|metrics| load(metrics, &RUNNING, &WAITING));
    Ok(reading(models, props.total_slots, load))
}

fn complete(report: &mut ModelReport, listing: &Listing, props: &Props) {
    let status = listing.openai.as_ref().and_then(|entry| entry["status"]["value"].as_str());
    report.resident = !props.is_sleeping && status.is_none_or(|status| status == "loaded");
    let window = props.default_generation_settings.as_ref().and_then(|settings| settings.n_ctx);
    report.context_tokens = window.filter(|&count| count > 0).map(tokens).or(report.context_tokens);
    // Nothing is told of the others.
    report.abilities = props.modalities.as_ref().map(|has| Abilities {
        vision: has.vision,
        tools: true,
        embedding: true,
        thinking: true,
    });
}

fn says_up(body: &[u8]) -> bool {
    serde_json::from_slice(body).is_ok_and(|answer: Value| answer["status"] == "ok")
}

fn says_loading(body: &[u8]) -> bool {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    // The second was the form until 2024.
    let words = answer["error"]["message"].as_str().or(answer["status"].as_str());
    words.is_some_and(|words| words.eq_ignore_ascii_case("loading model"))
}

fn recognises(body: &[u8]) -> bool {
    serde_json::from_slice(body).is_ok_and(|props: Props| {
        let is_router = props.role.is_some_and(|role| role == "router");
        props.default_generation_settings.is_some() && (is_router || props.total_slots.is_some())
    })
}
