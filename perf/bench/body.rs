//! What reading a request's body costs, by its size and by what it is made of, and what hashing it alone does.

#[path = "../body.rs"]
mod body;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use serde_json::json;
use std::hint::black_box;
use warmgate::routing::ask::Endpoint;
use warmgate::routing::chain::hash_text;
use warmgate::wire::peek::peek;

use body::chat;

const SIZES: [(&str, usize); 5] =
    [("1 KiB", 1 << 10), ("2 KiB", 2 << 10), ("32 KiB", 32 << 10), ("1 MiB", 1 << 20), ("20 MiB", 20 << 20)];

fn benchmarks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("body");
    for (name, size_bytes) in SIZES {
        let body = chat("moss:7b", size_bytes);
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.sample_size(if size_bytes > 1 << 19 { 10 } else { 100 });
        group.bench_with_input(BenchmarkId::new("peek", name), body.as_bytes(), |bencher, body| {
            bencher.iter(|| peek(black_box(body), Endpoint::OpenAiChat));
        });
        group.bench_with_input(BenchmarkId::new("hash", name), &body, |bencher, body| {
            bencher.iter(|| hash_text(black_box(body)));
        });
    }
    group.finish();
}

/// What prompts are made of, besides English: of each so much that its looks count and not its frame.
const TEXTS: [(&str, &str); 4] = [
    ("code", "    fn main() {\n        println!(\"hi {}\", x);\n\t}\n"),
    ("German", "Über die Brücke läuft ein müder Bär und frißt Äpfel. "),
    ("Chinese", "快速的棕色狐狸跳过了懒狗，而旧钟敲了十二下。"),
    ("short turns", ""),
];
const TEXT_BYTES: usize = 220_000;

fn texts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("text");
    for (name, sentence) in TEXTS {
        let messages = match sentence {
            "" => {
                vec![json!({"role": "user", "content": "And what does the dog do then? ".repeat(10)}); TEXT_BYTES / 350]
            }
            _ => vec![json!({"role": "user", "content": sentence.repeat(TEXT_BYTES / sentence.len())})],
        };
        let body = json!({"model": "moss:7b", "messages": messages}).to_string();
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_with_input(BenchmarkId::new("peek", name), body.as_bytes(), |bencher, body| {
            bencher.iter(|| peek(black_box(body), Endpoint::OpenAiChat));
        });
    }
    group.finish();
}

criterion_group!(all, benchmarks, texts);
criterion_main!(all);
