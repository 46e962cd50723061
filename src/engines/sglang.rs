//! SGLang: one model, which tells its slots and its load in several places.
//!
//! `/health` makes a token and takes seconds, so `/ready` is asked, and `/health` with patience of
//! servers too old to know that. `/v1/loads` counts best; without it, `/server_info` has the slots
//! and the metrics, where they are switched on, the load.

use std::time::Duration;

use serde::Deserialize;

use super::{
    Bodies, Engine, Naming, Poll, Probe, Rank, Reading, is_no_page, load, misfit, openai, rank_loads, reading,
};
use crate::routing::ask::{Dialect, Endpoint};
use crate::routing::prefix::CacheKind;
use crate::routing::report::Load;

pub static ENGINE: Engine = Engine {
    name: "sglang",
    dialects: &[Dialect::OpenAi, Dialect::Anthropic],
    lacks: &[],
    naming: Naming::Exact,
    probe: Probe {
        path: "/ready",
        older_path: Some("/health"),
        patience: Duration::from_secs(5),
        says_up: is_no_page,
        // While it starts, and while it stops.
        says_loading: |_| true,
    },
    polls: &[
        Poll::required("/v1/models"),
        Poll::optional("/v1/loads?include=core"),
        Poll::optional("/server_info"),
        Poll::optional("/metrics"),
    ],
    inquiry: None,
    headers: &[],
    fixed_models: true,
    counts_on_request: true,
    salts_cache: true,
    // It drops what it does not know there.
    unsalted: &[Endpoint::AnthropicMessages],
    default_slots: 128,
    cache: CacheKind::Blocks,
    busy_statuses: &[429, 503],
    read,
    fingerprint_path: "/v1/models",
    recognises: |body| openai::is_owned_by(body, "sglang"),
    generic: false,
    rank_header: Some("x-data-parallel-rank"),
    continues: Some(r#""continue_final_message":true,"#),
};

/// First as the server writes them, then as other versions and collectors in between do.
const RUNNING: [&str; 2] = ["sglang:num_running_reqs", "sglang_num_running_reqs"];
const WAITING: [&str; 3] = ["sglang:num_queue_reqs", "sglang_num_queue_reqs", "sglang_num_waiting_reqs"];

/// `/v1/loads`.
#[derive(Deserialize)]
struct Loads {
    loads: Vec<RankLoad>,
}

/// One data-parallel rank.
#[derive(Deserialize)]
struct RankLoad {
    dp_rank: Option<u32>,
    num_running_reqs: u32,
    num_waiting_reqs: u32,
    max_running_requests: Option<u32>,
}

/// `/server_info`.
#[derive(Deserialize)]
struct ServerInfo {
    /// As it was started; null where it chose for itself.
    max_running_requests: Option<u32>,
    /// Tokens that its cache holds.
    max_total_num_tokens: Option<u64>,
    #[serde(default)]
    internal_states: Vec<RankState>,
}

#[derive(Deserialize)]
struct RankState {
    effective_max_running_requests_per_dp: Option<u32>,
}

fn read(bodies: &Bodies) -> Result<Reading, String> {
    let &[Some(models), loads, info, metrics] = bodies else { return Err(misfit(bodies)) };
    let ranks = loads.and_then(|body| serde_json::from_slice::<Loads>(body).ok());
    let ranks = ranks.map(|told| told.loads).filter(|ranks| !ranks.is_empty());
    let slots = ranks.as_ref().and_then(|ranks| sum(ranks.iter().map(|rank| rank.max_running_requests)));
    let told_apart = match &ranks {
        Some(ranks) => ranks.iter().filter_map(RankLoad::rank).collect(),
        None => metrics.map_or_else(Vec::new, |metrics| rank_loads(metrics, &RUNNING, &WAITING)),
    };
    let counted = ranks.map(|ranks| Load {
        running: ranks.iter().fold(0, |all, rank| all.saturating_add(rank.num_running_reqs)),
        waiting: ranks.iter().fold(0, |all, rank| all.saturating_add(rank.num_waiting_reqs)),
    });
    let load = counted.or_else(|| load(metrics?, &RUNNING, &WAITING));
    let info = info.and_then(|body| serde_json::from_slice::<ServerInfo>(body).ok());
    let slots = slots.or_else(|| configured_slots(info.as_ref()?));
    let mut reading = Reading { ranks: told_apart, ..reading(openai::models(models)?, slots, load) };
    reading.report.cache_tokens = info.and_then(|info| info.max_total_num_tokens).filter(|tokens| *tokens > 0);
    Ok(reading)
}

impl RankLoad {
    fn rank(&self) -> Option<Rank> {
        let load = Load { running: self.num_running_reqs, waiting: self.num_waiting_reqs };
        let slots = self.max_running_requests.filter(|count| *count > 0);
        Some(Rank { number: self.dp_rank?, slots, load: Some(load) })
    }
}

fn configured_slots(info: &ServerInfo) -> Option<u32> {
    let ranks = info.internal_states.iter().map(|state| state.effective_max_running_requests_per_dp);
    sum(ranks).or(info.max_running_requests)
}

/// Of all ranks, if each told and there is one.
fn sum(ranks: impl Iterator<Item = Option<u32>>) -> Option<u32> {
    let all = ranks.collect::<Option<Vec<u32>>>()?;
    all.into_iter().reduce(u32::saturating_add)
}
