//! Decisions, worked by hand and as properties over random fleets.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::routing::breaker::{BreakerRules, Fault, When};
use crate::routing::chain::mix;
use crate::routing::chain::{Chain, Link};
use crate::routing::fleet::{Asked, Fleet, LeaseId, Outcome, Rules};
use crate::routing::group::{Group, Groups};
use crate::routing::laws;
use crate::routing::name::Naming;
use crate::routing::policy::Policy;
use crate::routing::prefix::CacheKind;
use crate::routing::report::{Abilities, ModelReport, Report};
use crate::routing::runner::OptionGuard;
use crate::routing::upstream::{Spec, Traits};

mod failure;
mod home;
mod leave;
mod load;
mod many;
mod options;
mod spread;
mod stuck;

pub const OLLAMA: Traits = Traits {
    dialects: &[Dialect::Ollama, Dialect::OpenAi],
    naming: Naming::Ollama,
    fixed_models: false,
    lacks: &[],
    unsalted: &[],
    stores_responses: false,
    default_slots: 1,
    cache: CacheKind::PerSlot,
    busy_statuses: &[503],
};
const VLLM: Traits = Traits {
    dialects: &[Dialect::OpenAi],
    naming: Naming::Exact,
    fixed_models: true,
    lacks: &[],
    unsalted: &[],
    stores_responses: true,
    default_slots: 128,
    cache: CacheKind::Blocks,
    busy_statuses: &[503],
};

const BREAKER: BreakerRules = BreakerRules {
    failures: 3,
    window: Duration::from_secs(60),
    cooldown: Duration::from_secs(10),
    max_cooldown: Duration::from_secs(300),
};

const MODEL: &str = "qwen3:32b";
const NOW: Moment = Moment(1_000_000);

fn rules() -> Rules {
    Rules { max_sessions: 100, ..Rules::default() }
}

fn spec(name: &str) -> Spec {
    Spec { engine: Some(OLLAMA), slots: Some(1), ..Spec::named(name) }
}

fn resident(name: &str) -> ModelReport {
    ModelReport { name: name.into(), resident: true, ..ModelReport::default() }
}

/// A healthy upstream of that spec with these models.
fn join(fleet: &mut Fleet, spec: Spec, models: &[ModelReport]) -> UpstreamId {
    let id = fleet.join(spec).unwrap();
    fleet.learn_health(id, true, NOW);
    let report = Report { models: models.to_vec(), ..Report::default() };
    fleet.learn_report(id, &report, fleet.asked(id, NOW), NOW);
    id
}

fn fleet_of(names: &[&str]) -> Fleet {
    let mut fleet = Fleet::new(rules());
    for name in names {
        join(&mut fleet, spec(name), &[resident(MODEL)]);
    }
    fleet
}

/// A conversation known by a number, at its n-th turn.
fn turn(conversation: u64, n: u64) -> Query {
    let links = (0..2 * n).map(|at| Link { hash: mix(conversation, at), tokens: at as u32 + 1, ends_message: true });
    let chain = Chain { links: links.collect(), root: 0, answers: 0 };
    Query { ask: Ask { chain, ..Ask::plain() }, tried: vec![], request: mix(conversation, n) }
}

/// The upstream fails a request for the model, if it holds it.
fn fail(fleet: &mut Fleet, id: UpstreamId, now: Moment) {
    let held: Vec<HoldingId> = fleet.upstreams[id].holdings.values().copied().collect();
    for held in held {
        let breaker = &mut fleet.holdings[held.0 as usize].breaker;
        breaker.fail(When::BeforeFirstByte, Fault::Failures, now, &BREAKER, now);
    }
}

fn names(fleet: &Fleet, decision: &Decision) -> Vec<String> {
    let name = |row: &Row| fleet.upstream(row.upstream).map(|upstream| upstream.spec.name.clone());
    decision.rows.iter().filter_map(name).collect()
}

fn row(decision: &Decision, id: UpstreamId) -> &Row {
    decision.rows.iter().find(|row| row.upstream == id).expect("eligible")
}

#[test]
fn the_pin_leads_by_20_then_7_3_and_trails_by_2() {
    let mut fleet = fleet_of(&["a", "b"]);
    let first = decide(&fleet, &turn(1, 1), NOW);
    let pinned = first.rows[0].upstream;
    let other = first.rows[1].upstream;
    let lease = fleet.book(&first.rows[0], &turn(1, 1).ask, NOW);
    fleet.first_byte(lease, &turn(1, 1).ask, NOW);
    fleet.end(lease, Outcome::Done { output_tokens: None, cached: None }, NOW);
    for (held, lead, winner) in [(0, 20.0, pinned), (1, 20.0 / 1.5 - 6.0, pinned), (2, -2.0, other)] {
        let decision = decide(&fleet, &turn(1, 2), NOW);
        let got = row(&decision, pinned).score - row(&decision, other).score;
        assert!((got - lead).abs() < 1e-9, "{held} held: leads by {got}, not {lead}");
        assert_eq!(decision.rows[0].upstream, winner, "{held} held");
        assert_eq!(decision.pin, Some(pinned));
        fleet.book(row(&decision, pinned), &turn(99 + held, 1).ask, NOW);
    }
}

#[test]
fn a_place_that_was_tried_is_not_another_node_s_soon() {
    let mut fleet = fleet_of(&["a"]);
    let mut query = turn(1, 1);
    let gone = decide(&fleet, &query, NOW).rows[0].holding;
    fleet.learn_gone(gone);
    query.tried.push(gone);
    let other = join(&mut fleet, spec("b"), &[resident(MODEL)]);
    let decision = decide(&fleet, &query, NOW);
    assert_eq!(decision.rows.first().map(|row| row.upstream), Some(other), "{:?}", decision.excluded);
}

#[test]
fn a_thousand_waiting_lose_to_an_idle_cold_node() {
    let mut fleet = Fleet::new(rules());
    let hot = join(&mut fleet, spec("hot"), &[resident(MODEL)]);
    let cold = join(&mut fleet, spec("cold"), &[ModelReport { resident: false, ..resident(MODEL) }]);
    for n in 0..1000 {
        let query = turn(n, 1);
        let decision = decide(&fleet, &query, NOW);
        fleet.book(row(&decision, hot), &query.ask, NOW);
    }
    assert_eq!(decide(&fleet, &turn(5000, 1), NOW).rows[0].upstream, cold);
}

#[test]
fn bal_05_ties_spread_and_stay() {
    let fleet = fleet_of(&["a", "b", "c"]);
    let mut counts = std::collections::BTreeMap::new();
    for n in 0..300 {
        *counts.entry(names(&fleet, &decide(&fleet, &turn(n, 1), NOW))[0].clone()).or_insert(0) += 1;
        let again = decide(&fleet, &turn(n, 1), NOW);
        assert_eq!(again, decide(&fleet, &turn(n, 1), NOW));
    }
    assert!(counts.values().all(|count| (70..=130).contains(count)), "{counts:?}");
}

#[test]
fn bal_03_counted_at_selection() {
    let mut fleet = fleet_of(&["a", "b", "c", "d"]);
    for n in 0..16 {
        let query = turn(n, 1);
        let decision = decide(&fleet, &query, NOW);
        fleet.book(&decision.rows[0], &query.ask, NOW);
    }
    let in_flight: Vec<u32> = fleet.upstreams().map(|(_, upstream)| upstream.in_flight).collect();
    assert_eq!(in_flight, [4; 4]);
}

#[test]
fn what_cannot_serve_is_excluded_with_its_reason() {
    let mut fleet = Fleet::new(rules());
    let plain = resident(MODEL);
    let ok = join(&mut fleet, spec("ok"), std::slice::from_ref(&plain));
    let drains = join(&mut fleet, Spec { drain: true, ..spec("drains") }, std::slice::from_ref(&plain));
    let higher = join(&mut fleet, Spec { tier: 1, ..spec("higher") }, std::slice::from_ref(&plain));
    let sick = join(&mut fleet, spec("sick"), std::slice::from_ref(&plain));
    fleet.learn_reachable(sick, false);
    fleet.learn_health(sick, false, NOW);
    let openai = join(&mut fleet, Spec { engine: Some(VLLM), ..spec("vllm") }, std::slice::from_ref(&plain));
    let blind = ModelReport { abilities: Some(Abilities::default()), ..plain.clone() };
    let blind = join(&mut fleet, spec("blind"), &[blind]);
    let huge = ModelReport { resident: false, size_bytes: Some(9), ..plain.clone() };
    let small = join(&mut fleet, Spec { memory_bytes: Some(8), ..spec("small") }, &[huge]);
    let narrow = join(&mut fleet, spec("narrow"), &[ModelReport { context_tokens: Some(10), ..plain }]);
    join(&mut fleet, spec("elsewhere"), &[resident("another")]);
    let tried = join(&mut fleet, spec("tried"), &[resident(MODEL)]);

    let mut query = turn(1, 1);
    query.ask.needs.tools = true;
    query.ask.prompt_tokens = 100;
    query.tried = vec![fleet.holders(MODEL)[8]];
    let decision = decide(&fleet, &query, NOW);
    assert_eq!(decision.rows.iter().map(|row| row.upstream).collect::<Vec<_>>(), [ok]);
    let expected = [
        (drains, Exclusion::Draining),
        (higher, Exclusion::HigherTier),
        (sick, Exclusion::Unhealthy),
        (openai, Exclusion::WrongDialect),
        (blind, Exclusion::LacksAbility),
        (small, Exclusion::TooLarge),
        (narrow, Exclusion::ContextTooSmall),
        (tried, Exclusion::Tried),
    ];
    assert_eq!(decision.excluded, expected);
    assert_eq!(dialects_of(&fleet, MODEL), [Dialect::Ollama, Dialect::OpenAi]);
}

#[test]
fn cat_02_case_folds_only_on_ollama() {
    let mut fleet = Fleet::new(rules());
    let ollama = join(&mut fleet, spec("ollama"), &[resident("moss:7b"), resident("fern:latest")]);
    let vllm = join(&mut fleet, Spec { engine: Some(VLLM), ..spec("vllm") }, &[resident("Moss-7B")]);
    let chosen = |model: &str| {
        let query = Query {
            ask: Ask { model: model.into(), endpoint: crate::routing::ask::Endpoint::OpenAiChat, ..Ask::plain() },
            ..turn(1, 1)
        };
        decide(&fleet, &query, NOW).rows.first().map(|row| row.upstream)
    };
    assert_eq!(chosen("Moss:7B"), Some(ollama));
    assert_eq!(chosen("fern"), Some(ollama));
    assert_eq!(chosen("moss"), None);
    assert_eq!(chosen("Moss-7B"), Some(vllm));
    assert_eq!(chosen("moss-7b"), None);
}

#[test]
fn shuffle_follows_the_weights() {
    let mut fleet = Fleet::new(Rules { policy: Policy::Shuffle, ..rules() });
    join(&mut fleet, spec("light"), &[resident(MODEL)]);
    let heavy = join(&mut fleet, Spec { weight: 3.0, ..spec("heavy") }, &[resident(MODEL)]);
    let to_heavy = (0..1000).filter(|n| decide(&fleet, &turn(*n, 1), NOW).rows[0].upstream == heavy).count();
    assert!((700..800).contains(&to_heavy), "{to_heavy}");
}

/// A fleet of nodes `a` and `b` with the group `chat` over them, and `c` with its fallback.
fn grouped(policy: Policy, change: impl Fn(&mut Target, &mut Target)) -> (Fleet, [UpstreamId; 3]) {
    let mut fleet = Fleet::new(rules());
    let [a, b, c] = ["a", "b", "c"].map(|name| join(&mut fleet, spec(name), &[resident(&format!("{name}:1"))]));
    let target =
        |upstream, model: &str| Target { upstream, model: model.into(), weight: 1.0, rpm: None, tpm: None, cost: None };
    let mut targets = [target(a, "a:1"), target(b, "b:1")];
    let [first, second] = &mut targets;
    change(first, second);
    let group = Group {
        name: "chat".into(),
        targets: targets.to_vec(),
        fallbacks: vec!["nowhere".into(), "c:1".into()],
        policy: Some(policy),
    };
    fleet.rules.groups = Groups::new(vec![group]);
    (fleet, [a, b, c])
}

fn chat(request: u64) -> Query {
    Query { ask: Ask { model: "chat".into(), ..Ask::plain() }, ..turn(request, 1) }
}

fn chosen(fleet: &Fleet, query: &Query) -> UpstreamId {
    decide(fleet, query, NOW).rows[0].upstream
}

#[test]
fn a_group_is_tried_to_its_end_before_its_fallbacks() {
    let (fleet, [.., c]) = grouped(Policy::Fleet, |_, _| ());
    let mut query = chat(1);
    let mut order = Vec::new();
    while let Some(row) = decide(&fleet, &query, NOW).rows.first().cloned() {
        order.push((row.upstream, fleet.holding_name(row.holding).to_string()));
        query.tried.push(row.holding);
    }
    assert_eq!(order.len(), 3);
    assert_eq!(order[2], (c, "c:1".to_string()));
}

#[test]
fn an_answer_goes_on_only_with_its_model_and_where_it_can() {
    let (mut fleet, [a, b, c]) = grouped(Policy::Fleet, |_, _| ());
    let held = |fleet: &Fleet, id: UpstreamId| *fleet.upstreams[id].holdings.values().next().expect("a model");
    let [at_a, at_b, at_c] = [a, b, c].map(|id| held(&fleet, id));
    let unable =
        |fleet: &Fleet, from, goes_on: &dyn Fn(UpstreamId) -> bool| unable_to_go_on(fleet, &chat(1), from, goes_on);
    assert_eq!(unable(&fleet, at_a, &|_| true), [at_c], "not with the fallback");
    assert_eq!(unable(&fleet, at_c, &|_| true), [at_a, at_b], "nor from the fallback with the model");
    assert_eq!(unable(&fleet, at_a, &|id| id != b), [at_b, at_c]);
    fleet.learn_engine(b, VLLM);
    assert_eq!(unable(&fleet, at_a, &|_| true), [at_b, at_c], "not in another dialect");
}

#[test]
fn policies_that_people_know() {
    let (mut fleet, [a, b, _]) = grouped(Policy::LeastBusy, |_, _| ());
    let first = decide(&fleet, &chat(1), NOW).rows[0].clone();
    fleet.book(&first, &chat(1).ask, NOW);
    let other = if first.upstream == a { b } else { a };
    assert_eq!(chosen(&fleet, &chat(1)), other);

    let (fleet, [_, b, _]) = grouped(Policy::Cost, |first, second| {
        (first.cost, second.cost) = (Some(0.2), Some(0.1));
    });
    assert!((0..20).all(|n| chosen(&fleet, &chat(n)) == b));

    let (mut fleet, [a, b, _]) = grouped(Policy::Usage, |first, second| (first.rpm, second.rpm) = (Some(1), Some(3)));
    let mut counts = [0, 0];
    for n in 0..4 {
        let row = decide(&fleet, &chat(n), NOW).rows[0].clone();
        counts[usize::from(row.upstream == b)] += 1;
        fleet.book(&row, &chat(n).ask, NOW);
    }
    assert_eq!(counts, [1, 3], "each to its limit");
    let over = decide(&fleet, &chat(9), NOW);
    assert_eq!(over.excluded[..2], [(a, Exclusion::OverLimit), (b, Exclusion::OverLimit)]);

    let (mut fleet, [a, b, _]) = grouped(Policy::Latency, |_, _| ());
    for (upstream, secs) in [(a, 3), (b, 1)] {
        let row = decide(&fleet, &chat(1), NOW).rows.iter().find(|row| row.upstream == upstream).cloned();
        let lease = fleet.book(&row.expect("eligible"), &chat(1).ask, NOW);
        fleet.first_byte(lease, &chat(1).ask, NOW + Duration::from_secs(secs));
        fleet.end(lease, Outcome::Done { output_tokens: None, cached: None }, NOW + Duration::from_secs(secs));
    }
    assert_eq!(chosen(&fleet, &chat(2)), b);
}

/// One node of a random fleet.
#[derive(Clone, Debug)]
struct Node {
    slots: u32,
    running: u32,
    foreign: u32,
    failures: u32,
    healthy: bool,
    drain: bool,
    holds: bool,
    resident: bool,
    memory_gb: Option<u64>,
    bandwidth: Option<f64>,
    context: Option<u32>,
}

prop_compose! {
    fn node()(
        slots in 1u32..6, running in 0u32..12, foreign in 0u32..4, failures in 0u32..4,
        flags in any::<[bool; 4]>(),
        memory_gb in proptest::option::of(8u64..200), bandwidth in proptest::option::of(5e10..1e12f64),
        context in proptest::option::of(1u32..100_000),
    ) -> Node {
        let [healthy, drain, holds, resident] = flags;
        Node { slots, running, foreign, failures, healthy, drain: drain && healthy, holds, resident, memory_gb, bandwidth, context }
    }
}

/// By which the laws are to hold.
const SCORED: [Policy; 2] = [Policy::Fleet, Policy::ExpectedTtft];

/// The fleet of these nodes; node n is called `n{n}`.
fn build(nodes: &[(usize, Node)], policy: Policy) -> Fleet {
    let mut fleet = Fleet::new(Rules { policy, ..rules() });
    for (n, node) in nodes {
        let spec = Spec {
            slots: Some(node.slots),
            memory_bytes: node.memory_gb.map(|gb| gb * 1_000_000_000),
            bandwidth_bytes_s: node.bandwidth,
            ..spec(&format!("n{n}"))
        };
        let model = ModelReport {
            resident: node.resident,
            size_bytes: Some(17_000_000_000),
            context_tokens: node.context,
            ..resident(if node.holds { MODEL } else { "another" })
        };
        let id = join(&mut fleet, spec, &[model]);
        for n in 0..node.running {
            let query = Query { ask: Ask { model: "another".into(), ..Ask::plain() }, ..turn(u64::from(n), 1) };
            let query = if node.holds { turn(u64::from(n), 1) } else { query };
            let decision = decide(&fleet, &query, NOW);
            if let Some(row) = decision.rows.iter().find(|row| row.upstream == id) {
                fleet.book(row, &query.ask, NOW);
            }
        }
        for _ in 0..node.failures {
            fail(&mut fleet, id, NOW);
        }
        load::tell(&mut fleet, id, node.running.saturating_add(node.foreign), NOW);
        fleet.upstreams[id].spec.drain = node.drain;
        fleet.learn_reachable(id, node.healthy);
        fleet.learn_health(id, node.healthy, NOW);
    }
    fleet
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn l3_l4_l6_decisions_are_sound(
        nodes in proptest::collection::vec(node(), 1..7), seed in any::<u64>(), policy in 0usize..2,
    ) {
        let policy = SCORED[policy];
        let nodes: Vec<(usize, Node)> = nodes.into_iter().enumerate().collect();
        let fleet = build(&nodes, policy);
        let query = turn(seed, 2);
        let decision = decide(&fleet, &query, NOW);
        for (row, name) in decision.rows.iter().zip(names(&fleet, &decision)) {
            let node = &nodes.iter().find(|(n, _)| format!("n{n}") == name).expect("known").1;
            prop_assert!(node.holds && node.healthy && !node.drain, "L3: {name} was chosen");
            prop_assert!(row.score.is_finite(), "L4");
            prop_assert_eq!(row.score, row.points.iter().sum::<f64>(), "L4");
        }
        let mut reversed = nodes.clone();
        reversed.reverse();
        let other = build(&reversed, policy);
        prop_assert_eq!(names(&fleet, &decision), names(&other, &decide(&other, &query, NOW)), "L6");
    }

    #[test]
    fn l7_more_load_or_failures_or_less_warmth_never_helps(
        nodes in proptest::collection::vec(node(), 2..6), seed in any::<u64>(), which in 0usize..6, how in 0usize..4,
        policy in 0usize..2,
    ) {
        let mut nodes: Vec<(usize, Node)> = nodes.into_iter().enumerate().collect();
        let which = which % nodes.len();
        // A first request makes a cold node load the model, which is rightly worth more than it costs.
        prop_assume!(how != 0 || nodes[which].1.resident || nodes[which].1.running > 0);
        let query = turn(seed, 1);
        let chosen = |nodes: &[(usize, Node)]| {
            let fleet = build(nodes, SCORED[policy]);
            names(&fleet, &decide(&fleet, &query, NOW)).first() == Some(&format!("n{which}"))
        };
        let before = chosen(&nodes);
        match how {
            0 => nodes[which].1.running += 3,
            1 => nodes[which].1.failures += 1,
            2 => nodes[which].1.foreign += 3,
            _ => nodes[which].1.resident = false,
        }
        prop_assert!(before || !chosen(&nodes), "L7: n{} gained by change {}", which, how);
    }

    #[test]
    fn l1_l2_bookings_balance(steps in proptest::collection::vec((0u8..5, any::<u64>()), 1..200)) {
        let mut fleet = fleet_of(&["a", "b", "c"]);
        let mut live = Vec::new();
        let mut first = UpstreamId(0);
        for (n, (kind, chance)) in steps.into_iter().enumerate() {
            let now = Moment(n as u64 * 1000);
            let query = turn(chance % 20, 1 + chance % 3);
            let any = |live: &Vec<_>| live.get(chance as usize % live.len().max(1)).copied();
            match kind {
                0 | 1 => {
                    let decision = decide(&fleet, &query, now);
                    // All may be broken for a moment.
                    live.extend(decision.rows.first().map(|row| fleet.book(row, &query.ask, now)));
                }
                2 => {
                    any(&live).into_iter().for_each(|lease| {
                        fleet.first_byte(lease, &query.ask, now);
                    });
                }
                3 => any(&live).into_iter().for_each(|lease| fleet.end(lease, Outcome::Failed, now)),
                4 if chance % 3 == 0 => {
                    fleet.leave(first);
                    first = join(&mut fleet, spec("a"), &[resident(MODEL)]);
                }
                _ => {
                    let models = if chance % 4 == 0 { vec![] } else { vec![resident(MODEL)] };
                    let report = Report { models, ..Report::default() };
                    fleet.learn_report(first, &report, fleet.asked(first, now), now);
                }
            }
            prop_assert_eq!(laws::broken(&fleet), Ok(()));
        }
        for lease in live {
            fleet.end(lease, Outcome::Done { output_tokens: Some(1), cached: None }, Moment(1));
        }
        prop_assert_eq!(fleet.live_leases(), 0);
        prop_assert_eq!(fleet.upstreams().count(), 3, "those that left are forgotten");
    }
}
