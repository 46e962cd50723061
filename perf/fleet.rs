//! Fleets and conversations for what is measured of the routing core alone.

use serde_json::json;
use warmgate::engines;
use warmgate::routing::ask::{Ask, Endpoint};
use warmgate::routing::fleet::{Fleet, Outcome, Rules, UpstreamId};
use warmgate::routing::moment::Moment;
use warmgate::routing::policy::Policy;
use warmgate::routing::report::{ModelReport, Report};
use warmgate::routing::select::{Query, decide};
use warmgate::routing::upstream::Spec;
use warmgate::wire::peek::peek;

const MODEL: &str = "qwen3:32b";

/// Messages of the conversation that is looked up and hashed.
pub const MESSAGES: usize = 50;

/// A conversation of so many messages of `chars` each, with a system prompt that all share.
pub fn body(number: usize, messages: usize, chars: usize) -> String {
    let said = |n: usize| {
        let role = if n == 0 { "system" } else { ["assistant", "user"][n % 2] };
        let text = if n == 0 { "shared ".to_string() } else { format!("{number} says {n} ") };
        json!({"role": role, "content": text.repeat(chars.div_ceil(text.len()))})
    };
    json!({"model": MODEL, "messages": (0..messages).map(said).collect::<Vec<_>>()}).to_string()
}

fn ask(number: usize, messages: usize) -> Ask {
    peek(body(number, messages, 400).as_bytes(), Endpoint::OpenAiChat).expect("an ask").ask
}

pub fn query(number: usize) -> Query {
    Query { ask: ask(number, MESSAGES), tried: Vec::new(), request: number as u64 }
}

/// That many nodes with speeds learnt, caches known, and a request or two running on every third.
pub fn fleet(nodes: usize, engine: &str, policy: Policy) -> Fleet {
    holders(nodes, nodes, engine, policy)
}

/// The same, of which only the first so many hold the model.
pub fn holders(holders: usize, nodes: usize, engine: &str, policy: Policy) -> Fleet {
    let mut fleet = Fleet::new(Rules { policy, ..Rules::default() });
    let now = Moment::from_secs(1);
    let ids: Vec<_> = (0..nodes).map(|node| join(&mut fleet, node, engine, (node < holders, 4))).collect();
    for (number, id) in ids.iter().take(holders).enumerate() {
        for turn in 0..3 {
            let query = query(1000 + number * 3 + turn);
            let decision = decide(&fleet, &query, now);
            let row = decision.rows.iter().find(|row| row.upstream == *id).expect("eligible").clone();
            let lease = fleet.book(&row, &query.ask, now);
            if number % 3 != 0 || turn == 0 {
                let later = Moment::from_secs(2);
                fleet.first_byte(lease, &query.ask, later);
                fleet.end(lease, Outcome::Done { output_tokens: Some(100), cached: None }, Moment::from_secs(4));
            }
        }
    }
    fleet
}

/// That many nodes of so many slots: all are answering, and as many have still to be computed at each.
#[allow(dead_code)]
pub fn full(nodes: usize, slots: u32, engine: &str, policy: Policy) -> Fleet {
    let mut fleet = Fleet::new(Rules { policy, ..Rules::default() });
    for node in 0..nodes {
        let id = join(&mut fleet, node, engine, (true, slots));
        for number in 0..2 * u64::from(slots) {
            let query = Query { ask: ask(node, 2), tried: Vec::new(), request: number };
            let booked_at = Moment((1000 + number) * 1000);
            let row =
                decide(&fleet, &query, booked_at).rows.into_iter().find(|row| row.upstream == id).expect("eligible");
            let lease = fleet.book(&row, &query.ask, booked_at);
            // One has been answered, so that speeds are known.
            if number <= u64::from(slots) {
                fleet.first_byte(lease, &query.ask, Moment((2000 + 10 * number) * 1000));
            }
            if number == 0 {
                let done = Outcome::Done { output_tokens: Some(100), cached: None };
                fleet.end(lease, done, Moment::from_secs(8));
            }
        }
    }
    fleet
}

/// The same fleet as `fleet`, to which conversations come that others began.
#[allow(dead_code)]
pub fn alone(nodes: usize, engine: &str, policy: Policy) -> Fleet {
    let (mut fleet, now) = (fleet(nodes, engine, policy), Moment::from_secs(4));
    for number in 0..10 {
        let query = Query { ask: ask(100 + number, 4), tried: Vec::new(), request: number as u64 };
        let row = decide(&fleet, &query, now).rows.first().expect("eligible").clone();
        let lease = fleet.book(&row, &query.ask, now);
        fleet.first_byte(lease, &query.ask, now);
        fleet.end(lease, Outcome::Done { output_tokens: Some(100), cached: None }, now);
    }
    fleet
}

fn join(fleet: &mut Fleet, node: usize, engine: &str, (holds, slots): (bool, u32)) -> UpstreamId {
    let now = Moment::from_secs(1);
    let spec = Spec {
        engine: engines::find(engine).map(|engine| engine.traits()),
        slots: Some(slots),
        ..Spec::named(format!("node-{node}"))
    };
    let id = fleet.join(spec).expect("room");
    fleet.learn_health(id, true, now);
    let name = if holds { MODEL.into() } else { format!("other-{node}") };
    let model = ModelReport { name, resident: true, ..ModelReport::default() };
    fleet.learn_report(id, &Report { models: vec![model], ..Report::default() }, fleet.asked(id, now), now);
    id
}
