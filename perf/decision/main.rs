//! What a decision costs, and what it rests on: hashing a conversation, and looking up what is known of it.
//!
//! The model is held by all upstreams, which is the dearest case. `cargo bench --bench decision`.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use serde_json::json;
use warmgate::engines;
use warmgate::routing::ask::{Ask, Endpoint};
use warmgate::routing::fleet::{Fleet, Outcome, Rules};
use warmgate::routing::moment::Moment;
use warmgate::routing::policy::Policy;
use warmgate::routing::report::{ModelReport, Report};
use warmgate::routing::select::{Query, decide};
use warmgate::routing::upstream::Spec;
use warmgate::wire::peek::peek;

const MODEL: &str = "qwen3:32b";

/// Messages of the conversation that is looked up and hashed.
const MESSAGES: usize = 50;

/// A conversation of so many messages of `chars` each, with a system prompt that all share.
fn body(number: usize, messages: usize, chars: usize) -> String {
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

fn query(number: usize) -> Query {
    Query { ask: ask(number, MESSAGES), tried: Vec::new(), request: number as u64 }
}

/// That many nodes with speeds learnt, caches known, and a request or two running on every third.
fn fleet(nodes: usize, engine: &str, policy: Policy) -> Fleet {
    let mut fleet = Fleet::new(Rules { policy, ..Rules::default() });
    let now = Moment::from_secs(1);
    for node in 0..nodes {
        let spec = Spec {
            engine: engines::find(engine).map(|engine| engine.traits()),
            slots: Some(4),
            ..Spec::named(format!("node-{node}"))
        };
        let id = fleet.join(spec).expect("room");
        fleet.learn_health(id, true, now);
        let model = ModelReport { name: MODEL.into(), resident: true, ..ModelReport::default() };
        fleet.learn_report(id, &Report { models: vec![model], ..Report::default() }, fleet.asked(id, now), now);
    }
    let ids: Vec<_> = fleet.upstreams().map(|(id, _)| id).collect();
    for (number, id) in ids.iter().enumerate() {
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

fn decisions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decide");
    for nodes in [4, 64, 1000] {
        for (engine, policy) in
            [("ollama", Policy::Fleet), ("ollama", Policy::ExpectedTtft), ("vllm", Policy::ExpectedTtft)]
        {
            let (fleet, query) = (fleet(nodes, engine, policy), query(7));
            let name = format!("{engine}/{}", policy.name());
            group.bench_with_input(BenchmarkId::new(name, nodes), &nodes, |bencher, _| {
                bencher.iter(|| black_box(decide(&fleet, &query, Moment::from_secs(5))));
            });
        }
    }
    group.finish();
}

fn lookups(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("prefix lookup");
    for nodes in [4, 64, 1000] {
        let (fleet, query) = (fleet(nodes, "vllm", Policy::Fleet), query(1001));
        group.bench_with_input(BenchmarkId::new("50 messages", nodes), &nodes, |bencher, _| {
            bencher.iter(|| black_box(fleet.prefixes.prospects(&query.ask, Moment::from_secs(5))));
        });
    }
    group.finish();
}

fn hashing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("chain hashing");
    for chars in [400, 4000] {
        let body = body(7, MESSAGES, chars);
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function(BenchmarkId::new("peek", body.len()), |bencher| {
            bencher.iter(|| black_box(peek(body.as_bytes(), Endpoint::OpenAiChat)).is_ok());
        });
    }
    group.finish();
}

criterion_group!(benches, decisions, lookups, hashing);
criterion_main!(benches);
