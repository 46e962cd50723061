//! Each rule on a world small enough to know the answer.

use std::sync::Arc;

use super::*;
use crate::sim::workload::text::{Text, Voice};

/// An idle node of which nothing is known.
fn node(node: usize) -> Seen {
    Seen {
        node,
        active: 0,
        active_for_model: 0,
        active_tokens: 0.0,
        pending: 0,
        pending_tokens: 0.0,
        hit_tokens: 0.0,
        hit_share: 0.0,
        wait_s: 0.0,
        own_s: 1.0,
        work_s: 1.0,
        cache_tokens: 1e6,
        is_resident: true,
        memory_ratio: 1.0,
        context_tokens: 8192,
    }
}

fn busy(number: usize, active: u32) -> Seen {
    Seen {
        active,
        active_for_model: active,
        pending: active,
        pending_tokens: 1000.0 * f64::from(active),
        ..node(number)
    }
}

fn warm(seen: Seen, share: f64) -> Seen {
    Seen { hit_share: share, hit_tokens: 1000.0 * share, own_s: 1.0 - share, work_s: 1.0 - share, ..seen }
}

/// A prompt of a thousand tokens.
fn request(conversation: u64) -> Request {
    let mut text = Text::default();
    text.say(Voice::User, conversation, 1000);
    Request {
        model: Arc::from("m"),
        chain: text.chain(),
        history: text.history(),
        prompt_tokens: 1000,
        output_tokens: 10,
        conversation,
        client: conversation,
    }
}

fn rule(name: &str) -> Box<dyn Rule> {
    (find(name).expect("a rule").make)(&[], 1)
}

/// Whom the rule sends a first request to.
#[track_caller]
fn check(name: &str, seen: &[Seen], expected: usize) {
    let picked = rule(name).pick(&request(1), seen, Moment::default(), &mut Chance::new(1, 1));
    assert_eq!(picked, expected, "{name}");
}

#[test]
fn names_are_known_once() {
    for peer in &ROSTER {
        assert_eq!(find(peer.name).map(|found| found.about), Some(peer.about));
        assert_eq!(ROSTER.iter().filter(|other| other.name == peer.name).count(), 1, "{}", peer.name);
    }
}

#[test]
fn round_robin_goes_round() {
    let (mut rule, seen) = (rule("round_robin"), [busy(0, 9), node(1), node(2)]);
    let picks = (0..4).map(|_| rule.pick(&request(1), &seen, Moment::default(), &mut Chance::new(1, 1)));
    assert_eq!(picks.collect::<Vec<_>>(), [0, 1, 2, 0]);
}

#[test]
fn least_in_flight_looks_at_nothing_else() {
    check("least_in_flight", &[warm(busy(0, 2), 0.9), busy(1, 1)], 1);
}

#[test]
fn sglang_follows_a_long_prefix_until_loads_are_far_apart() {
    check("sglang_cache_aware", &[warm(busy(0, 60), 0.4), node(1)], 0);
    check("sglang_cache_aware", &[warm(busy(0, 65), 0.4), node(1)], 1);
    check("sglang_cache_aware", &[warm(busy(0, 2), 0.3), node(1)], 1);
}

#[test]
fn the_blend_magnifies_small_differences_of_the_queues() {
    check("llmd_blend", &[warm(node(0), 0.5), node(1)], 0);
    // One in the queue against none is worth as much as a hundred.
    check("llmd_blend", &[warm(busy(0, 1), 0.5), node(1)], 1);
    check("llmd_blend", &[warm(busy(0, 1), 0.7), node(1)], 0);
}

#[test]
fn the_blend_sends_unknown_prompts_to_whom_had_none_for_longest() {
    let mut rule = (find("llmd_blend").expect("a rule").make)(&nodes(3), 1);
    let seen = [node(0), node(1), node(2)];
    let mut picks: Vec<usize> =
        (0..3).map(|_| rule.pick(&request(1), &seen, Moment::default(), &mut Chance::new(1, 1))).collect();
    picks.sort_unstable();
    assert_eq!(picks, [0, 1, 2]);
}

#[test]
fn llmd_stays_until_it_is_saturated() {
    let waiting = |tokens| Seen { pending_tokens: tokens, ..node(0) };
    check("llmd_sticky", &[warm(waiting(200_000.0), 0.8), node(1)], 0);
    check("llmd_sticky", &[warm(waiting(300_000.0), 0.8), node(1)], 1);
    check("llmd_sticky", &[warm(waiting(2000.0), 0.7), node(1)], 1);
}

#[test]
fn lmetric_multiplies() {
    check("lmetric", &[warm(busy(0, 1), 0.9), node(1)], 1);
    check("lmetric", &[warm(Seen { active: 1, ..node(0) }, 0.6), node(1)], 0);
    check("lmetric", &[warm(Seen { active: 2, ..node(0) }, 0.6), node(1)], 1);
}

#[test]
fn dynamo_adds_what_is_read_and_what_is_held() {
    check("dynamo", &[warm(Seen { active_tokens: 500.0, ..node(0) }, 0.6), node(1)], 0);
    check("dynamo", &[warm(Seen { active_tokens: 700.0, ..node(0) }, 0.6), node(1)], 1);
}

#[test]
fn a_weight_on_its_own_work_makes_it_wait() {
    let queued = warm(Seen { wait_s: 2.0, ..node(0) }, 1.0);
    check("min_ttft", &[queued.clone(), node(1)], 1);
    check("wait_and_4_own", &[queued, node(1)], 0);
}

#[test]
fn sticky_stays_for_ever() {
    let mut rule = rule("sticky");
    let mut pick = |seen: &[Seen]| rule.pick(&request(1), seen, Moment::default(), &mut Chance::new(1, 1));
    assert_eq!(pick(&[busy(0, 1), node(1)]), 1);
    assert_eq!(pick(&[node(0), busy(1, 1000)]), 1);
}

/// So many alike nodes.
fn nodes(count: usize) -> Vec<NodeParams> {
    let one = |number: usize| NodeParams {
        name: format!("n{number}"),
        kind: crate::engines::find("ollama").expect("an engine"),
        engine: crate::sim::engine::EngineParams {
            models: Vec::new(),
            memory_bytes: 0,
            max_waiting: 0,
            keep_alive: None,
        },
        speed: 1.0,
        told_slots: None,
        told_bandwidth: None,
    };
    (0..count).map(one).collect()
}

#[test]
fn chwbl_keeps_a_key_together_and_walks_past_the_overloaded() {
    let mut rule = (find("chwbl").expect("a rule").make)(&nodes(3), 1);
    let mut pick = |seen: &[Seen]| rule.pick(&request(1), seen, Moment::default(), &mut Chance::new(1, 1));
    let idle = [node(0), node(1), node(2)];
    let home = pick(&idle);
    assert_eq!(pick(&idle), home);
    let mut seen = [busy(0, 4), busy(1, 4), busy(2, 4)];
    assert_eq!(pick(&seen), home, "an even load keeps everybody at home");
    seen[home].active = 12;
    assert_ne!(pick(&seen), home);
}

#[test]
fn herd_has_a_floor_under_its_queue_penalty() {
    // A model in memory with any queue beats a cold one: its documented flaw.
    let cold = Seen { is_resident: false, ..node(1) };
    check("herd", &[busy(0, 1000), cold.clone()], 0);
    check("herd", &[cold, Seen { node: 0, ..busy(0, 3) }], 1);
}

#[test]
fn herd_knows_conversations_by_their_address_alone() {
    let mut rule = rule("herd");
    let mut pick = |from: u64, seen: &[Seen]| {
        let request = Request { client: from, ..request(9) };
        rule.pick(&request, seen, Moment::default(), &mut Chance::new(1, 1))
    };
    assert_eq!(pick(7, &[busy(0, 1), node(1)]), 1);
    assert_eq!(pick(7, &[node(0), node(1)]), 1, "pinned");
    // Twenty at depth 0, 13.3 less 6 at depth 1, 10 less 12 at depth 2.
    assert_eq!(pick(7, &[node(0), busy(1, 1)]), 1);
    assert_eq!(pick(7, &[node(0), busy(1, 2)]), 0);
}
