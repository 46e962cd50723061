//! `policy: expected_ttft`: time is what counts, and it is told.

use std::time::Duration;

use serde_json::{Value, json};
use warmgate::engines;
use warmgate::routing::ask::Endpoint;
use warmgate::routing::fleet::{Fleet, Outcome, Rules, UpstreamId};
use warmgate::routing::moment::Moment;
use warmgate::routing::policy::Policy;
use warmgate::routing::report::{ModelReport, Report};
use warmgate::routing::select::{Query, decide};
use warmgate::routing::upstream::Spec;
use warmgate::wire::peek::peek;

use crate::client::Reply;
use crate::gate::{Gate, Settings};
use crate::rig::{finished, node};
use crate::talk::{Dialect, MODEL, Talk};
use crate::upstream::{Hold, Script};

fn conversation(number: u32) -> Query {
    let messages = json!([{"role": "user", "content": format!("{number}: a question of its own")}]);
    let body = json!({"model": MODEL, "messages": messages}).to_string();
    let ask = peek(body.as_bytes(), Endpoint::OllamaChat).expect("an ask").ask;
    Query { ask, tried: vec![], request: u64::from(number) }
}

/// Two nodes of one slot in virtual time.
struct Pair {
    fleet: Fleet,
    warm: UpstreamId,
    cold: UpstreamId,
    now: Moment,
}

impl Pair {
    /// Answers take twenty seconds, and a load eight; the second node has let go of the model.
    fn new() -> Pair {
        let mut fleet = Fleet::new(Rules { policy: Policy::ExpectedTtft, ..Rules::default() });
        let [warm, cold] = ["warm", "cold"].map(|name| {
            let engine = engines::find("ollama").map(|engine| engine.traits());
            let id = fleet.join(Spec { engine, slots: Some(1), ..Spec::named(name) }).expect("room");
            fleet.learn_health(id, true, Moment::default());
            id
        });
        let mut pair = Pair { fleet, warm, cold, now: Moment::from_secs(1) };
        pair.report(warm, true);
        pair.report(cold, false);
        for number in 0..10 {
            pair.serve(warm, 100 + number, Duration::ZERO);
        }
        pair.serve(cold, 200, Duration::from_secs(8));
        pair.report(cold, false);
        pair
    }

    fn report(&mut self, id: UpstreamId, resident: bool) {
        let model = ModelReport { name: MODEL.into(), resident, ..ModelReport::default() };
        let asked = self.fleet.asked(id, self.now);
        self.fleet.learn_report(id, &Report { models: vec![model], ..Report::default() }, asked, self.now);
    }

    fn book(&mut self, id: UpstreamId, query: &Query) -> warmgate::routing::fleet::LeaseId {
        let decision = decide(&self.fleet, query, self.now);
        let row = decision.rows.iter().find(|row| row.upstream == id).expect("eligible").clone();
        self.fleet.book(&row, &query.ask, self.now)
    }

    fn serve(&mut self, id: UpstreamId, number: u32, load: Duration) {
        let query = conversation(number);
        let lease = self.book(id, &query);
        self.now = self.now + load + Duration::from_millis(50);
        self.fleet.first_byte(lease, &query.ask, self.now);
        self.now = self.now + Duration::from_secs(20);
        self.fleet.end(lease, Outcome::Done { output_tokens: Some(400), cached: None }, self.now);
        self.now = self.now + Duration::from_secs(1);
    }
}

#[test]
fn bal_11_warm_is_not_idle() {
    let mut pair = Pair::new();
    let best = |pair: &Pair| decide(&pair.fleet, &conversation(1), pair.now).rows[0].upstream;
    assert_eq!(best(&pair), pair.warm, "idle and loaded");
    for number in 0..3 {
        pair.book(pair.warm, &conversation(300 + number));
    }
    let decision = decide(&pair.fleet, &conversation(1), pair.now);
    let waits: Vec<(f64, f64)> =
        decision.rows.iter().filter_map(|row| row.first_token).map(|t| (t.wait_s, t.load_s)).collect();
    assert_eq!(decision.rows[0].upstream, pair.cold, "three of twenty seconds against a load of eight: {waits:?}");
    let [(wait_s, load_s), (queued_s, _)] = waits[..] else { panic!("two candidates: {waits:?}") };
    assert!(wait_s < 0.1 && (load_s - 8.0).abs() < 0.5, "{waits:?}");
    assert!((59.0..63.0).contains(&queued_s), "{waits:?}");
}

async fn receipt(gate: &Gate, reply: &Reply) -> Value {
    gate.receipt(reply.request_id()).await
}

fn ms(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not a number: {value}"))
}

#[tokio::test]
async fn the_score_is_minus_the_expected_seconds_and_its_parts_add_up() {
    let [n1, n2] = [node("n1").await, node("n2").await];
    let settings = Settings::over(&[&n1, &n2]).slots(1).more("routing: {policy: expected_ttft, externality_weight: 4}");
    let gate = Gate::start(&settings).await;
    let talk = Talk::about(Dialect::Ollama, &"moss ".repeat(20_000));
    let first = finished(&gate, &talk).await;
    let told = receipt(&gate, &first).await;
    assert_eq!((&told["policy"], &told["decision"]["score_in"]), (&json!("expected_ttft"), &json!("seconds")));
    for candidate in told["decision"]["candidates"].as_array().expect("candidates") {
        let parts = candidate["signals_ms"].as_object().expect("signals");
        assert!(parts.values().all(|part| ms(part) <= 0.0), "costs: {candidate:#}");
        let sum: f64 = parts.values().map(ms).sum();
        assert!((sum / 1000.0 - ms(&candidate["score"])).abs() < 1e-6, "L4: {candidate:#}");
        let expected = &candidate["expected_ms"];
        let times = ["wait", "load", "prefill"].map(|part| ms(&expected[part]));
        assert!((times.iter().sum::<f64>() - ms(&expected["total"])).abs() < 1e-6);
        assert_eq!(-times[2], ms(&parts["latency"]), "its own prefill: {candidate:#}");
    }
    assert!((first.score() - ms(&told["score"])).abs() < 0.051, "{} is not {}", first.score(), told["score"]);
    assert!(first.score() < -1.0, "25,000 tokens of which nobody has any cost seconds: {}", first.score());

    // Its node has it now: nothing but the new words is to be computed, and the other would compute it all.
    let next = talk.then("And where?");
    let second = finished(&gate, &next).await;
    assert_eq!(second.node(), first.node());
    assert_eq!(second.affinity(), "session");
    let metrics = gate.metrics().await;
    assert!(metrics.contains("warmgate_first_byte_prediction_error_seconds_count{node="), "what came is compared");

    // With somebody long at work there, the wait is in the score.
    let home = if first.node() == "n1" { &n1 } else { &n2 };
    let hold = Hold::new();
    home.next(Script::held(&hold).then_usual());
    let before = home.count();
    let third = next.clone().then("And when?");
    let mut conn = gate.connect().await;
    conn.send(&third.ask()).await;
    home.request(before).await;
    let explained = gate.in_flight().await;
    assert_eq!(explained, 1);
    hold.open();
    conn.reply(&third.ask()).await.whole().await;
}
