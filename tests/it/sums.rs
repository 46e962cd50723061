//! A warm node that is busy against one that must load, in sums worked out by hand.
//!
//! The decision core alone, in virtual time: eight seconds of load are learnt in none.

use std::time::Duration;

use serde_json::json;
use warmgate::engines;
use warmgate::routing::ask::Endpoint;
use warmgate::routing::fleet::{Fleet, Outcome, Rules, UpstreamId};
use warmgate::routing::moment::Moment;
use warmgate::routing::report::{ModelReport, Report};
use warmgate::routing::select::{Decision, Query, Row, decide};
use warmgate::routing::signal::Signals;
use warmgate::routing::upstream::Spec;
use warmgate::wire::peek::peek;

use crate::talk::MODEL;

const NOW: Moment = Moment(1_000_000);

const LOAD: Duration = Duration::from_secs(8);

/// One node with the model in memory, and one that once loaded it in eight seconds and let go of it.
struct Pair {
    fleet: Fleet,
    warm: UpstreamId,
    cold: UpstreamId,
}

impl Pair {
    /// All is done by `unloaded_at`; nothing but the load's time is learnt.
    fn with_learnt_load(unloaded_at: Moment) -> Pair {
        let mut fleet = Fleet::new(Rules::default());
        let warm = join(&mut fleet, "warm", model(true));
        let cold = join(&mut fleet, "cold", model(false));
        let first = conversation(1);
        let decision = decide(&fleet, &first, NOW);
        let lease = fleet.book(row(&decision, cold), &first.ask, NOW);
        fleet.first_byte(lease, &first.ask, NOW + LOAD);
        fleet.end(lease, Outcome::Done { output_tokens: None, cached: None }, NOW + LOAD);
        let report = Report { models: vec![model(false)], ..Report::default() };
        fleet.learn_report(cold, &report, fleet.asked(cold, unloaded_at), unloaded_at);
        Pair { fleet, warm, cold }
    }

    /// One runs on the warm node and three wait there.
    fn with_four_at_the_warm_one(mut self, now: Moment) -> Pair {
        for number in 10..14 {
            let query = conversation(number);
            let decision = decide(&self.fleet, &query, now);
            self.fleet.book(row(&decision, self.warm), &query.ask, now);
        }
        self
    }
}

/// An Ollama node of one slot, up, that holds the model.
fn join(fleet: &mut Fleet, name: &str, model: ModelReport) -> UpstreamId {
    let id = fleet.join(Spec {
        engine: engines::find("ollama").map(|engine| engine.traits()),
        slots: Some(1),
        ..Spec::named(name)
    });
    let id = id.expect("room for a few");
    fleet.learn_health(id, true, NOW);
    let report = Report { models: vec![model], ..Report::default() };
    fleet.learn_report(id, &report, fleet.asked(id, NOW), NOW);
    id
}

fn model(resident: bool) -> ModelReport {
    ModelReport { name: MODEL.into(), resident, ..ModelReport::default() }
}

fn conversation(number: u32) -> Query {
    let messages = json!([{"role": "user", "content": format!("{number}: a question of its own")}]);
    let body = json!({"model": MODEL, "messages": messages}).to_string();
    let ask = peek(body.as_bytes(), Endpoint::OllamaChat).expect("an ask").ask;
    Query { ask, tried: vec![], request: u64::from(number) }
}

fn row(decision: &Decision, id: UpstreamId) -> &Row {
    decision.rows.iter().find(|row| row.upstream == id).expect("eligible")
}

/// Prints each sum by hand beside the one recorded, and compares.
#[track_caller]
fn check(decision: &Decision, id: UpstreamId, node: &str, by_hand: [f64; 8]) {
    let row = row(decision, id);
    for ((name, expected), recorded) in Signals::NAMES.iter().zip(by_hand).zip(row.points) {
        println!("{node:<5} {name:<13} by hand {expected:>6.1} recorded {recorded:>6.1}");
        assert!((recorded - expected).abs() < 1e-9, "{node} {name}: {recorded}, by hand {expected}");
    }
    let sum: f64 = by_hand.iter().sum();
    println!("{node:<5} {:<13} by hand {sum:>6.1} recorded {:>6.1}", "score", row.score);
    assert!((row.score - sum).abs() < 1e-9, "L4: {node} scores {}, by hand {sum}", row.score);
}

/// Decides after a pause since the model was unloaded, which costs the cold node its `loaded` points.
#[track_caller]
fn check_after(pause: Duration, cold_loaded: f64) {
    let unloaded_at = NOW + Duration::from_secs(60);
    let now = unloaded_at + pause;
    let pair = Pair::with_learnt_load(unloaded_at).with_four_at_the_warm_one(now);
    let decision = decide(&pair.fleet, &conversation(2), now);
    // Loaded, memory, queue, latency, role, availability, context, session. One slot each; nothing is
    // known of memory, bandwidth, windows, prefill and service; nobody failed; the conversation is new.
    check(&decision, pair.warm, "warm", [50.0, 20.0, -6.0 * 4.0, 0.0, 0.0, 10.0, 0.0, 0.0]);
    check(&decision, pair.cold, "cold", [cold_loaded, 10.0, 0.0, -8.0 / 10.0, 0.0, 10.0, 0.0, 0.0]);
    assert_eq!(decision.rows[0].upstream, pair.warm, "56 against {}", cold_loaded + 19.2);
}

#[test]
fn a_load_of_eight_seconds_is_in_the_sums_as_by_hand() {
    check_after(Duration::from_secs(29 * 60), 30.0);
    check_after(Duration::from_secs(31 * 60), 10.0);
}

#[test]
fn the_sums_turn_where_the_hand_says() {
    let unloaded_at = NOW + Duration::from_secs(60);
    let now = unloaded_at + Duration::from_secs(31 * 60);
    let mut pair = Pair::with_learnt_load(unloaded_at);
    // 80 - 6 n against 29.2: eight leave 32, nine leave 26.
    for (waiting, best) in [(8, pair.warm), (9, pair.cold)] {
        while pair.fleet.upstream(pair.warm).is_some_and(|upstream| upstream.in_flight < waiting) {
            let query = conversation(100 + waiting);
            let decision = decide(&pair.fleet, &query, now);
            pair.fleet.book(row(&decision, pair.warm), &query.ask, now);
        }
        assert_eq!(decide(&pair.fleet, &conversation(2), now).rows[0].upstream, best, "{waiting} at the warm one");
    }
}
