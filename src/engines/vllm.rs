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
use crate::routing::prefix::CacheKind;
use crate::wire::prometheus::{Sample, samples};

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
    // On Anthropic's path as well since the middle of 2026 (vllm-project/vllm#49498); older ones drop it there.
    salts_cache: true,
    unsalted: &[],
    // max_num_seqs, of a common machine.
    default_slots: 128,
    cache: CacheKind::Blocks,
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
/// The cache's size, in its labels.
const CACHE: [&str; 2] = ["vllm:cache_config_info", "vllm_cache_config_info"];
/// Ranks whose caches are added up.
const RANKS_MAX: usize = 1024;
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
    let mut reading = Reading { ranks, ..reading(openai::models(models)?, None, load) };
    reading.report.cache_tokens = metrics.and_then(cache_tokens);
    Ok(reading)
}

/// Over all ranks: blocks by their size, which stand as labels of a sample each.
fn cache_tokens(metrics: &[u8]) -> Option<u64> {
    let told = samples(metrics).filter(|sample| CACHE.contains(&sample.name));
    let number = |sample: &Sample, label| sample.label(label)?.parse::<u64>().ok();
    let tokens =
        told.filter_map(|sample| number(&sample, "num_gpu_blocks")?.checked_mul(number(&sample, "block_size")?));
    tokens.take(RANKS_MAX).reduce(u64::saturating_add).filter(|tokens| *tokens > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(metrics: &str, expected: Option<u64>) {
        assert_eq!(cache_tokens(metrics.as_bytes()), expected, "{metrics}");
    }

    #[test]
    fn the_cache_is_blocks_by_their_size_over_all_ranks() {
        let rank = |engine: u32, blocks: &str| {
            format!("vllm:cache_config_info{{block_size=\"16\",engine=\"{engine}\",num_gpu_blocks=\"{blocks}\"}} 1.0\n")
        };
        check(&rank(0, "2000"), Some(32_000));
        check(&(rank(0, "2000") + &rank(1, "1000")), Some(48_000));
        check(&rank(0, "None"), None);
        check("vllm:num_requests_running 1.0", None);
    }
}
