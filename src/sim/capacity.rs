//! How much a simulated fleet can do, and how much a source asks of it.
//!
//! What a request takes of a node is reckoned as the product does it (`evenness::own_s`), from speeds that are known here.
//! What a node does of such requests in a second is its speed; a fleet does what its nodes do together.

use std::collections::HashSet;

use super::engine::ModelParams;
use super::run::nodes::NodeParams;
use super::workload::{Request, Source};
use crate::routing::evenness;
use crate::routing::moment::Moment;

/// Seconds of a node's that a request takes of which the first `cached` tokens are there.
pub fn seconds(model: &ModelParams, request: &Request, cached: u32) -> f64 {
    let prompt = request.prompt_tokens;
    let prefill_s = model.prefill.seconds(prompt - cached.min(prompt), prompt);
    let token_s = 1.0 / model.decode_tokens_per_s + model.decode_load.job_s;
    let answer_s = f64::from(request.output_tokens) * token_s;
    evenness::own_s(prefill_s, answer_s, model.slots)
}

/// Each node's part of the speed at which the fleet does such requests; nothing where the model is not.
pub fn shares(nodes: &[NodeParams], request: &Request) -> Vec<f64> {
    let speeds: Vec<f64> = nodes.iter().map(|node| speed(node, request, 0)).collect();
    let all: f64 = speeds.iter().sum();
    speeds.into_iter().map(|speed| if all > 0.0 { speed / all } else { 0.0 }).collect()
}

/// Seconds of the node's that such a request takes of which nothing is cached; none where the model is not.
pub fn own_s(node: &NodeParams, request: &Request) -> f64 {
    node.model(&request.model).map_or(0.0, |model| seconds(model, request, 0))
}

/// Seconds that it is of each node's that has its model, if all of these have their part of it: what is divided by speed
/// takes all alike.
pub fn even_s(nodes: &[NodeParams], request: &Request) -> Vec<f64> {
    let speeds: Vec<f64> = nodes.iter().map(|node| speed(node, request, 0)).collect();
    let all: f64 = speeds.iter().sum();
    speeds.into_iter().map(|speed| if speed > 0.0 { 1.0 / all } else { 0.0 }).collect()
}

/// The rate at which what a source asks is as much as the fleet can do, if no prompt is ever computed twice, every
/// model is in memory and every node has its part of each. Real fleets are full sooner.
pub fn saturation(nodes: &[NodeParams], source: &Source, seed: u64) -> f64 {
    let mut workload = source.open(seed, 1.0);
    let mut computed: HashSet<u64> = HashSet::new();
    let (mut first, mut last, mut work_s): (Option<Moment>, Moment, f64) = (None, Moment::default(), 0.0);
    while let Some(at) = workload.next_at() {
        let Some(request) = workload.take() else { break };
        first.get_or_insert(at);
        last = at;
        let blocks = request.history.within(request.prompt_tokens);
        let known = blocks.iter().take_while(|block| computed.contains(&block.hash));
        let cached = known.last().map_or(0, |block| block.tokens_end);
        computed.extend(request.history.blocks().iter().map(|block| block.hash));
        let speed: f64 = nodes.iter().map(|node| speed(node, &request, cached)).sum();
        work_s += if speed > 0.0 { 1.0 / speed } else { 0.0 };
        workload.over(&request, at);
    }
    let span_s = last.since(first.unwrap_or_default()).as_secs_f64();
    if work_s > 0.0 && span_s > 0.0 { span_s / work_s } else { 1.0 }
}

fn speed(node: &NodeParams, request: &Request, cached: u32) -> f64 {
    let seconds = node.model(&request.model).map(|model| seconds(model, request, cached));
    // A request that takes no time says nothing of speed.
    seconds.filter(|seconds| *seconds > 0.0).map_or(0.0, |seconds| 1.0 / seconds)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::routing::chain::Chain;
    use crate::sim::engine::History;
    use crate::sim::plan;

    fn toy() -> plan::Plan {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("perf/plans/toy.yaml");
        plan::load(&path, None).unwrap_or_else(|problems| panic!("{problems}"))
    }

    fn request(prompt_tokens: u32, output_tokens: u32) -> Request {
        Request {
            model: "chat:8b".into(),
            chain: Chain::default(),
            history: History::new(Vec::new()),
            prompt_tokens,
            output_tokens,
            conversation: 0,
            client: 0,
        }
    }

    #[track_caller]
    fn check(prompt: u32, output: u32, cached: u32, expected_s: f64) {
        // Two slots, 2,000 tokens of prompt a second, 60 of answer.
        let toy = toy();
        let model = &toy.nodes[0].engine.models[0];
        let seconds = seconds(model, &request(prompt, output), cached);
        assert!((seconds - expected_s).abs() < 1e-9, "{seconds} s, not {expected_s}");
    }

    #[test]
    fn the_prompt_or_the_slot_whichever_is_longer() {
        check(2000, 30, 0, 1.0);
        check(2000, 30, 1000, 0.5);
        check(2000, 120, 0, 1.5);
        check(2000, 30, 9000, 0.25);
    }

    #[test]
    fn half_the_speed_is_a_third_of_the_fleet() {
        let shares = shares(&toy().nodes, &request(1000, 100));
        assert!((shares[0] - 2.0 / 3.0).abs() < 1e-9 && (shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{shares:?}");
        let unknown = Request { model: "other".into(), ..request(1000, 100) };
        assert_eq!(super::shares(&toy().nodes, &unknown), [0.0, 0.0]);
    }

    #[test]
    fn what_is_divided_by_speed_takes_all_alike() {
        let (nodes, request) = (toy().nodes, request(1000, 100));
        let even = even_s(&nodes, &request);
        let parts = shares(&nodes, &request);
        let taken = nodes.iter().zip(&parts).map(|(node, part)| part * own_s(node, &request));
        assert!(taken.zip(even).all(|(taken, even)| (taken - even).abs() < 1e-9 && even > 0.0));
        let unknown = Request { model: "other".into(), ..request };
        assert_eq!((even_s(&nodes, &unknown), own_s(&nodes[0], &unknown)), (vec![0.0, 0.0], 0.0));
    }

    #[test]
    fn a_fleet_twice_as_large_is_full_at_twice_the_rate() {
        let toy = toy();
        let once = saturation(&toy.nodes, &toy.source, 1);
        let twice: Arc<Vec<NodeParams>> = Arc::new(toy.nodes.iter().chain(toy.nodes.iter()).cloned().collect());
        assert!((saturation(&twice, &toy.source, 1) / once - 2.0).abs() < 1e-6 && once > 0.0, "{once}");
    }
}
