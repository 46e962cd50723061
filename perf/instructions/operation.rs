//! What is counted: the pure parts of a request's way, over inputs that are always the same.

use std::hint::black_box;
use std::sync::Arc;

use warmgate::config::{self, Plan};
use warmgate::edge::ingress::Ingress;
use warmgate::edge::pick::{Picked, Placing, pick};
use warmgate::routing::ask::{Ask, Endpoint};
use warmgate::routing::fleet::Outcome;
use warmgate::routing::moment::Moment;
use warmgate::routing::policy::Policy;
use warmgate::routing::report::{ModelReport, Report};
use warmgate::routing::select::{Query, decide};
use warmgate::wire::observe::{Observed, Observer};
use warmgate::wire::peek::peek;

use crate::body::chat;
use crate::fleet::{self, full};

const MODEL: &str = "moss:7b";
const CHUNKS: usize = 100;

pub struct Operation {
    pub name: &'static str,
    /// Does it so many times.
    pub run: fn(usize),
}

pub const ALL: [Operation; 8] = [
    Operation { name: "peek 2 KiB", run: |times| peeks(times, 2 << 10) },
    Operation { name: "peek 220 KB", run: |times| peeks(times, 220_000) },
    Operation { name: "decide among 4", run: |times| decides(times, 4) },
    Operation { name: "decide among 64", run: |times| decides(times, 64) },
    Operation { name: "decide among 4 whose 128 slots are all taken", run: decides_among_full },
    Operation { name: "pick and end among 4", run: |times| picks(times, 4) },
    Operation { name: "observe a stream of 100 chunks", run: observes },
    Operation { name: "a request of 2 KiB among 4, answered in 100 chunks", run: requests },
];

fn peeks(times: usize, size_bytes: usize) {
    let body = chat(MODEL, size_bytes);
    for _ in 0..times {
        black_box(understood(black_box(body.as_bytes())));
    }
}

fn decides(times: usize, nodes: usize) {
    let ingress = ingress(nodes);
    let query = query(understood(chat(MODEL, 2 << 10).as_bytes()));
    for _ in 0..times {
        ingress.fleet.with(|fleet, now| black_box(decide(fleet, black_box(&query), now)));
    }
}

fn decides_among_full(times: usize) {
    let (fleet, query) = (full(4, 128, "openai", Policy::Fleet), fleet::query(7));
    for _ in 0..times {
        black_box(decide(&fleet, black_box(&query), Moment::from_secs(9)));
    }
}

fn picks(times: usize, nodes: usize) {
    let ingress = ingress(nodes);
    let query = query(understood(chat(MODEL, 2 << 10).as_bytes()));
    for _ in 0..times {
        drop(black_box(picked(&ingress, &query)));
    }
}

fn observes(times: usize) {
    let chunks = chunks();
    for _ in 0..times {
        black_box(observed(&chunks));
    }
}

fn requests(times: usize) {
    let (ingress, body, chunks) = (ingress(4), chat(MODEL, 2 << 10), chunks());
    for _ in 0..times {
        let query = query(understood(black_box(body.as_bytes())));
        let picked = picked(&ingress, &query);
        picked.lease.first_byte(&query.ask);
        let observed = observed(&chunks);
        picked.lease.end(Outcome::Done { output_tokens: observed.output_tokens, cached: None });
    }
}

fn understood(body: &[u8]) -> Ask {
    peek(body, Endpoint::OpenAiChat).expect("a chat").ask
}

fn query(ask: Ask) -> Arc<Query> {
    Arc::new(Query { ask, tried: Vec::new(), request: 1 })
}

fn picked(ingress: &Ingress, query: &Arc<Query>) -> Picked {
    match pick(&ingress.balancer, &ingress.fleet, query) {
        Placing::Booked(picked) => *picked,
        Placing::Full(_) | Placing::Nobody(_) => panic!("there is room at every node"),
    }
}

fn observed(chunks: &[String]) -> Observed {
    let mut observer = Observer::new(Endpoint::OpenAiChat, "text/event-stream");
    chunks.iter().for_each(|chunk| observer.feed(black_box(chunk.as_bytes())));
    observer.finish()
}

fn chunks() -> Vec<String> {
    let chunk = |delta: &str, usage: &str| {
        format!(
            "data: {{\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"{MODEL}\",\
             \"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{delta}\"}},\"finish_reason\":null}}]{usage}}}\n\n"
        )
    };
    let words = (1..CHUNKS).map(|n| chunk(&format!("word {n} "), ""));
    words.chain([chunk("", r#","usage":{"prompt_tokens":512,"completion_tokens":99}"#) + "data: [DONE]\n\n"]).collect()
}

/// So many nodes alike, all up and known to hold the model.
fn ingress(nodes: usize) -> Ingress {
    let upstream = |n: usize| {
        let mut upstream =
            config::Upstream::new(format!("n{n}"), format!("http://127.0.0.1:{}", 20_000 + n).parse().expect("a URL"));
        upstream.engine = Some("openai");
        upstream
    };
    let plan = Plan { upstreams: (0..nodes).map(upstream).collect(), ..Plan::default() };
    let ingress = Ingress::new(plan).expect("an ingress");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(ingress.balancer.update()).expect("addresses need no lookup");
    let model = ModelReport { name: MODEL.into(), resident: true, ..ModelReport::default() };
    let report = Report { models: vec![model], ..Report::default() };
    for node in ingress.roster.nodes().iter() {
        ingress.fleet.with(|fleet, now| {
            fleet.learn_health(node.id, true, now);
            fleet.learn_report(node.id, &report, fleet.asked(node.id, now), now);
        });
    }
    ingress
}
