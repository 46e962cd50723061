//! What reading a copy of a stream costs, by the byte and by the chunk.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use warmgate::routing::ask::Endpoint;
use warmgate::wire::observe::Observer;

const EVENTS: usize = 1_000;

fn benchmarks(criterion: &mut Criterion) {
    let openai = |n: usize| {
        format!(
            "data: {{\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"moss:7b\",\
             \"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"word {n} \"}},\"finish_reason\":null}}]}}\n\n"
        )
    };
    let ollama = |n: usize| {
        format!(
            "{{\"model\":\"moss:7b\",\"created_at\":\"2026-01-01T00:00:00Z\",\
             \"message\":{{\"role\":\"assistant\",\"content\":\"word {n} \"}},\"done\":false}}\n"
        )
    };
    let forms: [(&str, &str, Endpoint, Vec<String>); 2] = [
        ("events", "text/event-stream", Endpoint::OpenAiChat, (0..EVENTS).map(openai).collect()),
        ("lines", "application/x-ndjson", Endpoint::OllamaChat, (0..EVENTS).map(ollama).collect()),
    ];
    let mut group = criterion.benchmark_group("stream");
    for (name, content_type, endpoint, chunks) in &forms {
        let whole = chunks.concat();
        group.throughput(Throughput::Bytes(whole.len() as u64));
        group.bench_with_input(BenchmarkId::new("a message a chunk", name), chunks, |bencher, chunks| {
            bencher.iter(|| {
                let mut observer = Observer::new(*endpoint, content_type);
                chunks.iter().for_each(|chunk| observer.feed(black_box(chunk.as_bytes())));
                observer.finish()
            });
        });
        group.bench_with_input(BenchmarkId::new("all in one chunk", name), &whole, |bencher, whole| {
            bencher.iter(|| {
                let mut observer = Observer::new(*endpoint, content_type);
                observer.feed(black_box(whole.as_bytes()));
                observer.finish()
            });
        });
    }
    group.finish();
}

criterion_group!(all, benchmarks);
criterion_main!(all);
