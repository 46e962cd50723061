//! vLLM: one model under one or several names, with a load that its metrics tell.
//!
//! Its probe is answered with nothing but the status. While it loads nothing listens. It does not tell
//! how many requests it batches; the metrics are those of the whole server, whatever adapter or
//! name was asked for, and name its data-parallel ranks `engine`.

use std::time::Duration;

use super::{
    Bodies, Engine, Naming, Poll, Probe, Reading, is_no_page, load, misfit, openai, rank_loads, reading, requests,
};
use crate::routing::ask::Dialect;

pub static ENGINE: Engine = Engine {
    name: "vllm",
    dialects: &[Dialect::OpenAi, Dialect::Anthropic],
    lacks: &[],
    naming: Naming::Exact,
    probe: Probe {
        path: "/health",
        older_path: None,
        patience: Duration::ZERO,
        says_up: is_no_page,
        // Its 503 is a dead engine.
        says_loading: |_| false,
    },
    polls: &[Poll::required("/v1/models"), Poll::optional("/metrics")],
    inquiry: None,
    headers: &[],
    fixed_models: true,
    counts_on_request: true,
    salts_cache: true,
    // max_num_seqs, of a common machine.
    default_slots: 128,
    busy_statuses: &[429, 503],
    read,
    fingerprint_path: "/v1/models",
    recognises: |body| openai::is_owned_by(body, "vllm"),
    generic: false,
    rank_header: Some("x-data-parallel-rank"),
    continues: Some(r#""continue_final_message":true,"add_generation_prompt":false,"#),
};

/// First as the server writes them, then as collectors in between rewrite them.
const RUNNING: [&str; 2] = ["vllm:num_requests_running", "vllm_num_requests_running"];
const WAITING: [&str; 2] = ["vllm:num_requests_waiting", "vllm_num_requests_waiting"];
/// Moved out to the CPU and waiting to come back; before version 1 of the engine.
const SWAPPED: [&str; 2] = ["vllm:num_requests_swapped", "vllm_num_requests_swapped"];

fn read(bodies: &Bodies) -> Result<Reading, String> {
    let &[Some(models), metrics] = bodies else { return Err(misfit(bodies)) };
    let load = metrics.and_then(|metrics| {
        let mut load = load(metrics, &RUNNING, &WAITING)?;
        load.waiting = load.waiting.saturating_add(requests(metrics, &SWAPPED).unwrap_or(0));
        Some(load)
    });
    let ranks = metrics.map_or_else(Vec::new, |metrics| rank_loads(metrics, &RUNNING, &WAITING));
    Ok(Reading { ranks, ..reading(openai::models(models)?, None, load) })
}
