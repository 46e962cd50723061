//! The nodes of a plan.

use super::Problems;
use super::file::{Cache, Group, Model, Prefill};
use crate::engines;
use crate::sim::engine::{CacheParams, DecodeLoad, EngineParams, ModelParams, PrefillCost};
use crate::sim::run::nodes::NodeParams;

pub(super) fn nodes(groups: &[Group], problems: &mut Problems) -> Vec<NodeParams> {
    if groups.is_empty() {
        problems.add("workers", "there are none", "name at least one group with a count, an engine and models");
    }
    let all = groups.iter().enumerate();
    let nodes: Vec<NodeParams> =
        all.flat_map(|(index, group)| group_nodes(group, &format!("workers[{index}]"), problems)).collect();
    let mut names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        problems.add("workers", format!("two nodes are called `{}`", twice[0]), "give each group a name of its own");
    }
    nodes
}

/// Nodes that one group may have: a mistyped count must not fill memory.
const COUNT_MAX: usize = 4096;

fn group_nodes(group: &Group, key: &str, problems: &mut Problems) -> Vec<NodeParams> {
    let Some(kind) = engines::find(&group.engine) else {
        problems.add(
            format!("{key}.engine"),
            format!("`{}` is no engine", group.engine),
            "one of ollama, vllm, llama_cpp, sglang, litellm, openai",
        );
        return Vec::new();
    };
    if group.count == 0 || group.count > COUNT_MAX {
        problems.add(format!("{key}.count"), format!("{} nodes", group.count), format!("1 to {COUNT_MAX}"));
        return Vec::new();
    }
    if !(group.speed > 0.0 && group.speed.is_finite()) {
        problems.add(
            format!("{key}.speed"),
            "must be more than zero",
            "1 is as fast as the models' numbers say, 0.5 half",
        );
        return Vec::new();
    }
    let models = group.models.iter().enumerate();
    let models: Vec<ModelParams> = models
        .filter_map(|(index, model)| model_params(group, model, &format!("{key}.models[{index}]"), problems))
        .collect();
    if group.models.is_empty() {
        problems.add(format!("{key}.models"), "there are none", "a node serves at least one model");
    }
    let all: u64 = models.iter().map(|model| model.memory_bytes).sum();
    let engine = EngineParams {
        memory_bytes: group.memory.map_or(all, |memory| memory.0),
        max_waiting: usize::MAX,
        keep_alive: group.keep_alive.map(|span| span.0),
        models,
    };
    if let Some(large) = engine.models.iter().find(|model| model.memory_bytes > engine.memory_bytes) {
        problems.add(
            format!("{key}.memory"),
            format!("`{}` does not fit", large.name),
            "give the node more, or the model less",
        );
    }
    let name = group.name.clone().unwrap_or_else(|| group.engine.clone());
    let node = |number: usize| NodeParams {
        name: if group.count == 1 { name.clone() } else { format!("{name}-{number}") },
        kind,
        engine: engine.clone(),
        speed: group.speed,
        told_slots: group.slots.filter(|_| group.slots_configured),
        told_bandwidth: group.bandwidth.map(|bandwidth| bandwidth.0),
    };
    (1..=group.count).map(node).collect()
}

/// Engines that batch run as many as come, if nothing is said.
const SLOTS_OF_A_BATCH: u32 = 1 << 20;

fn model_params(group: &Group, model: &Model, key: &str, problems: &mut Problems) -> Option<ModelParams> {
    let mut missing =
        |what: &str, hint: &str| problems.add(format!("{key}.{what}"), "is needed, here or for the whole group", hint);
    let prefill = model.prefill.as_ref().or(group.prefill.as_ref());
    let Some(prefill) = prefill else {
        missing("prefill", "{tokens_per_s: 1500}, or {fixed_s: .., token_s: .., pair_s: ..}");
        return None;
    };
    let Some(decode) = model.decode.as_ref().or(group.decode.as_ref()) else {
        missing("decode", "{tokens_per_s: 50}");
        return None;
    };
    let prefill = prefill_cost(prefill, group.speed, &format!("{key}.prefill"), problems)?;
    let tokens_per_s = decode.tokens_per_s * group.speed;
    if !(tokens_per_s > 0.0 && tokens_per_s.is_finite()) {
        problems.add(format!("{key}.decode.tokens_per_s"), "must be more than zero", "");
        return None;
    }
    let one_at_a_time = ["ollama", "llama_cpp"].contains(&group.engine.as_str());
    let slots = group.slots.unwrap_or(if one_at_a_time { 1 } else { SLOTS_OF_A_BATCH }).max(1);
    let cache = model.cache.as_ref().or(group.cache.as_ref());
    Some(ModelParams {
        name: model.name.clone(),
        slots,
        memory_bytes: model.memory.map_or(0, |memory| memory.0),
        load: model.load.map(|load| load.0.div_f64(group.speed)).unwrap_or_default(),
        resident_at_start: model.resident,
        prefill,
        decode_tokens_per_s: tokens_per_s,
        decode_load: DecodeLoad { job_s: decode.job_s / group.speed, token_s: decode.token_s / group.speed },
        cache: cache_params(cache, &format!("{key}.cache"), problems)?,
        context_tokens: model.context,
        context_tokens_max: model.context,
    })
}

fn prefill_cost(prefill: &Prefill, speed: f64, key: &str, problems: &mut Problems) -> Option<PrefillCost> {
    let quadratic = [prefill.fixed_s, prefill.token_s, prefill.pair_s];
    match prefill.tokens_per_s {
        Some(rate) if quadratic.iter().any(Option::is_some) => {
            problems.add(key, format!("both {rate} tokens a second and a cost of parts"), "write one of the two");
            None
        }
        Some(rate) if rate > 0.0 && rate.is_finite() => Some(PrefillCost::Linear { tokens_per_s: rate * speed }),
        Some(_) => {
            problems.add(format!("{key}.tokens_per_s"), "must be more than zero", "");
            None
        }
        None => {
            let [fixed_s, token_s, pair_s] = quadratic.map(|part| part.unwrap_or_default() / speed);
            let sound = [fixed_s, token_s, pair_s].iter().all(|part| part.is_finite() && *part >= 0.0);
            if !sound || fixed_s + token_s + pair_s == 0.0 {
                problems.add(key, "no cost at all", "{tokens_per_s: 1500}, or {fixed_s: .., token_s: .., pair_s: ..}");
                return None;
            }
            Some(PrefillCost::Quadratic { fixed_s, token_s, pair_s })
        }
    }
}

fn cache_params(cache: Option<&Cache>, key: &str, problems: &mut Problems) -> Option<CacheParams> {
    let Some(cache) = cache else { return Some(CacheParams::PerSlot { kept: 0 }) };
    match (cache.blocks, cache.conversations) {
        (Some(blocks), None) if blocks > 0 && cache.block_tokens > 0 => {
            Some(CacheParams::Blocks { blocks, block_tokens: cache.block_tokens })
        }
        (None, Some(kept)) => Some(CacheParams::PerSlot { kept }),
        _ => {
            let hint = "{blocks: 2000, block_tokens: 512} or {conversations: 4}; left out: one conversation a slot";
            problems.add(key, "either blocks or whole conversations", hint);
            None
        }
    }
}
