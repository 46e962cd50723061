//! What a decision costs, and what it rests on: hashing a conversation, and looking up what is known of it.
//!
//! The model is held by all upstreams, which is the dearest case, but for one row. `cargo bench --bench decision`.

#[path = "../fleet.rs"]
mod fleet;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use warmgate::routing::ask::Endpoint;
use warmgate::routing::moment::Moment;
use warmgate::routing::policy::Policy;
use warmgate::routing::select::decide;
use warmgate::wire::peek::peek;

use fleet::{MESSAGES, alone, body, fleet, full, holders, query};

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
    for nodes in [64, 1000] {
        let (fleet, query) = (holders(64, nodes, "ollama", Policy::Fleet), query(7));
        group.bench_with_input(BenchmarkId::new("ollama/fleet, 64 holders among", nodes), &nodes, |bencher, _| {
            bencher.iter(|| black_box(decide(&fleet, &query, Moment::from_secs(5))));
        });
    }
    for nodes in [64, 1000] {
        let (fleet, query) = (alone(nodes, "ollama", Policy::Fleet), query(7));
        group.bench_with_input(BenchmarkId::new("ollama/fleet, by home", nodes), &nodes, |bencher, _| {
            bencher.iter(|| black_box(decide(&fleet, &query, Moment::from_secs(5))));
        });
    }
    for nodes in [4, 64] {
        let (fleet, query) = (full(nodes, 128, "vllm", Policy::Fleet), query(7));
        group.bench_with_input(BenchmarkId::new("vllm/fleet, 128 slots all taken", nodes), &nodes, |bencher, _| {
            bencher.iter(|| black_box(decide(&fleet, &query, Moment::from_secs(9))));
        });
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
