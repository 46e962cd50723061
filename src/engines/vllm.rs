//! vLLM: one model under one or several names, with a load that its metrics tell.
//!
//! Its probe is answered with nothing but the status. While it loads nothing listens. It does not tell
//! how many requests it batches; the metrics are those of the whole server, whatever adapter or
//! name was asked for, and name its data-parallel ranks `engine`.

use std::time::Duration;

use serde_json::Value;

use super::{
    Bodies, Engine, Naming, Poll, Probe, Reading, is_no_page, load, misfit, openai, rank_loads, reading, requests,
};
use crate::routing::ask::{Dialect, Endpoint};
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
    polls: &[Poll::required("/v1/models"), Poll::optional("/metrics"), Poll::optional("/version")],
    inquiry: None,
    headers: &[],
    fixed_models: true,
    counts_on_request: true,
    salts_cache: true,
    // Versions since `SALTS_ALL_PATHS` take it there, too. Others drop it, and say nothing.
    unsalted: &[Endpoint::AnthropicMessages],
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

/// From this version on a salt is taken on Anthropic's path as well: vllm-project/vllm#49498, which was asked for in July
/// 2026, after 0.26. Which of the next had it first is not known here, so this is on the safe side.
const SALTS_ALL_PATHS: (u32, u32) = (0, 30);

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
    let &[Some(models), metrics, version] = bodies else { return Err(misfit(bodies)) };
    let load = metrics.and_then(|metrics| {
        let mut load = load(metrics, &RUNNING, &WAITING)?;
        load.waiting = load.waiting.saturating_add(requests(metrics, &SWAPPED).unwrap_or(0));
        Some(load)
    });
    let ranks = metrics.map_or_else(Vec::new, |metrics| rank_loads(metrics, &RUNNING, &WAITING));
    let mut reading = Reading { ranks, ..reading(openai::models(models)?, None, load) };
    reading.report.cache_tokens = metrics.and_then(cache_tokens);
    reading.report.salts_all_paths = version.and_then(release).map(|release| release >= SALTS_ALL_PATHS);
    Ok(reading)
}

/// The first two numbers of its version; builds between two releases have more behind them.
fn release(version: &[u8]) -> Option<(u32, u32)> {
    let told: Value = serde_json::from_slice(version).ok()?;
    let (major, rest) = told["version"].as_str()?.split_once('.')?;
    let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
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

    #[track_caller]
    fn check_release(told: &str, expected: Option<(u32, u32)>) {
        assert_eq!(release(told.as_bytes()), expected, "{told}");
    }

    #[test]
    fn a_release_is_the_first_two_numbers() {
        check_release("{\"version\": \"0.33.0\"}", Some((0, 33)));
        check_release("{\"version\": \"0.22.1rc1.dev166+gd0975a4b5\"}", Some((0, 22)));
        check_release("{\"version\": \"1.0\"}", Some((1, 0)));
        check_release("{\"version\": \"dev\"}", None);
        check_release("{\"version\": 3}", None);
        check_release("<html>", None);
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
