//! What is counted: every request once, in a form that collectors can read, under names that are declared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use warmgate::edge::metrics::Metrics;
use warmgate::edge::metrics::family::{Kind, Values};
use warmgate::edge::verdict::Verdict;

use crate::client::{Conn, Request};
use crate::exposition::{Exposition, PARTS};
use crate::gate::{Gate, Settings};
use crate::patience::within_time;
use crate::rig::{Single, finished};
use crate::talk::{Dialect, MODEL, Talk};
use crate::tenants::{by, tenants};
use crate::upstream::{Hold, Model, Script, Upstream};

/// How often each kind of client comes.
const EACH: usize = 10;

/// What becomes of a request for each of these models, each of which is on a node of its own.
fn fates() -> Vec<(&'static str, Script)> {
    let one = || Script::ndjson().chunk(Dialect::Ollama.frame("one"));
    let no = |status| Script::json(status, &json!({"error": "no"}));
    vec![
        ("rejects:1b", no(400)),
        ("fails:1b", no(500)),
        ("empty:1b", Script::ndjson().finish()),
        ("cuts:1b", one().reset()),
        ("errs:1b", one().chunk("{\"error\":\"runner stopped\"}\n").finish()),
        ("holds:1b", one().hold(&Hold::new())),
        ("silent:1b", Script::silent()),
        ("narrow:1b", Script::silent()),
        ("gone:1b", Script::usual()),
    ]
}

/// A gate over these nodes and a good one.
struct Mixture {
    gate: Arc<Gate>,
    _nodes: Vec<Upstream>,
}

/// What a client does with its answer.
#[derive(Clone, Copy, PartialEq)]
enum Client {
    Reads,
    LeavesAtOnce,
    LeavesInTheAnswer,
    /// It sends the head and a part of the body.
    LeavesInTheBody,
}

fn chat(model: &str) -> Request {
    Request::post("/api/chat", json!({"model": model, "messages": [{"role": "user", "content": "hello"}]}).to_string())
}

/// Each kind of request, with what its client does.
fn kinds() -> Vec<(Request, Client)> {
    use Client::{LeavesAtOnce, LeavesInTheAnswer, LeavesInTheBody, Reads};
    let mut kinds: Vec<(Request, Client)> = fates().iter().map(|(model, _)| (chat(model), Reads)).collect();
    kinds.retain(|(request, _)| !String::from_utf8_lossy(request.body()).contains("silent"));
    kinds.extend([
        (Talk::about(Dialect::Ollama, "moss").ask(), Reads),
        (Talk::about(Dialect::OpenAi, "fern").ask_with(json!({"stream": false})), Reads),
        (chat("silent:1b"), LeavesAtOnce),
        (chat("holds:1b"), LeavesInTheAnswer),
        (chat(MODEL), LeavesInTheBody),
        (chat("nowhere"), Reads),
        (Request::post("/v1/messages", "{\"model\": "), Reads),
        (Request::post("/v1/nothing", "{}"), Reads),
        (Request::get("/v1/chat/completions"), Reads),
    ]);
    kinds
}

impl Mixture {
    async fn new() -> Mixture {
        let mut nodes = vec![Upstream::ollama("good", vec![Model::resident(MODEL)]).await];
        for (model, script) in fates() {
            let name = model.trim_end_matches(":1b");
            let mut node = Upstream::ollama(name, vec![Model::resident(model)]).await;
            node.always(script);
            if name == "gone" {
                node.kill().await;
            }
            nodes.push(node);
        }
        let narrow = nodes.iter().position(|node| node.name() == "narrow").expect("it is there");
        nodes.swap(narrow, 0);
        let settings = Settings::over(&nodes.iter().skip(1).collect::<Vec<_>>());
        let narrow = format!("name: narrow, url: \"{}\", engine: ollama, slots: 1", nodes[0].url());
        let settings = settings.upstream(&narrow).more(&tenants(&[("a", ""), ("b", "")]));
        let settings = settings.more("timeouts: {idle: 2s, first_byte: 5s}\nadmission: {queue_timeout: 700ms}");
        Mixture { gate: Arc::new(Gate::start(&settings).await), _nodes: nodes }
    }

    /// Sends everything, many at once; how many requests by dialect, and how many of them with a key.
    async fn run(&self) -> (BTreeMap<&'static str, u64>, u64) {
        let (mut sent, mut with_key) = (BTreeMap::new(), 0);
        let mut clients = JoinSet::new();
        for n in 0..EACH {
            for (request, client) in kinds() {
                let dialect = match request.path() {
                    "/v1/messages" => "anthropic",
                    path if path.starts_with("/v1/") => "openai",
                    _ => "ollama",
                };
                *sent.entry(dialect).or_default() += 1;
                // Somebody comes without a key, or with a wrong one.
                let request = match n {
                    0 => request,
                    1 => request.header("Authorization", "Bearer nobody's"),
                    n => {
                        with_key += 1;
                        by(if n % 2 == 0 { "a" } else { "b" }, request)
                    }
                };
                clients.spawn(come(self.gate.clone(), request, client));
            }
        }
        within_time(Duration::from_secs(60), "all clients to have left", clients.join_all()).await;
        (sent, with_key)
    }

    async fn told(&self) -> Exposition {
        Exposition::parse(&self.gate.metrics().await).expect("what a collector can read")
    }
}

async fn come(gate: Arc<Gate>, request: Request, client: Client) {
    if client == Client::LeavesInTheBody {
        let mut stream = TcpStream::connect(gate.address()).await.expect("a connection");
        let half = [&request.head_bytes(), &request.body()[..9]].concat();
        stream.write_all(&half).await.expect("a half request");
        return;
    }
    let mut conn: Conn = gate.connect().await;
    conn.send(&request).await;
    if client == Client::LeavesAtOnce {
        return;
    }
    let mut reply = conn.reply(&request).await;
    if client == Client::LeavesInTheAnswer && reply.status == 200 {
        reply.expect_piece().await;
        return;
    }
    let _ = reply.rest().await;
}

fn outcomes(told: &Exposition, labels: &[(&str, &str)]) -> u64 {
    told.sum("warmgate_requests_total", labels) as u64
}

#[tokio::test]
async fn acc_05_every_request_sent_is_counted_exactly_once() {
    let mixture = Mixture::new().await;
    let (sent, with_key) = mixture.run().await;
    let all: u64 = sent.values().sum();

    let settled = async {
        while outcomes(&mixture.told().await, &[]) < all {
            // There is no event to await from outside; the pause keeps this from spinning.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within_time(Duration::from_secs(20), "everything to be counted", settled).await;
    mixture.gate.idle().await;
    let told = mixture.told().await;

    for (dialect, sent) in &sent {
        assert_eq!(outcomes(&told, &[("dialect", dialect)]), *sent, "{dialect}");
    }
    assert_eq!(outcomes(&told, &[]), all, "and not one twice");
    assert_eq!(told.sum("warmgate_tenant_requests_total", &[]) as u64, with_key);
    for outcome in Verdict::ALL.map(Verdict::name) {
        assert!(outcomes(&told, &[("outcome", outcome)]) > 0, "{outcome} did not occur");
    }
    assert_eq!(outcomes(&told, &[("outcome", "ok")]), 2 * (EACH as u64 - 2), "what the good node answered");
    let asked = all - outcomes(&told, &[("node", "")]);
    assert_eq!(
        told.sum("warmgate_request_seconds_count", &[]) as u64,
        asked,
        "each that a node was asked took its time"
    );
}

#[tokio::test]
async fn what_is_told_is_clean_and_declared() {
    let mixture = Mixture::new().await;
    mixture.run().await;
    let single = Single::with("").await;
    finished(&single.gate, &Talk::about(Dialect::OpenAi, "moss")).await;
    let alone = Exposition::parse(&single.gate.metrics().await).expect("what a collector can read");
    for told in [mixture.told().await, alone] {
        assert_eq!(told.complaints(), [""; 0]);
        let declared = Metrics::new().expect("metrics").families;
        for (name, family) in &told.families {
            let own = declared.iter().find(|own| own.name == name).unwrap_or_else(|| panic!("{name} is not declared"));
            assert_eq!((own.kind.name(), own.help), (family.kind.as_str(), family.help.as_str()), "{name}");
            for sample in &family.samples {
                let labels: BTreeSet<&str> =
                    sample.labels.keys().map(String::as_str).filter(|label| *label != "le").collect();
                assert_eq!(labels, own.labels.iter().map(|label| label.name).collect(), "{name}");
                for label in &own.labels {
                    let value = sample.labels[label.name].as_str();
                    if let Values::Fixed(values) = &label.values {
                        assert!(values.contains(&value), "{name}: {}={value} is not declared", label.name);
                    }
                }
            }
        }
    }
}

#[test]
fn every_declared_name_is_a_good_one() {
    let declared = Metrics::new().expect("metrics").families;
    let names: BTreeSet<&str> = declared.iter().map(|family| family.name).collect();
    assert_eq!(names.len(), declared.len(), "none is there twice");
    for family in &declared {
        let kind = family.kind.name();
        let sample = if family.kind == Kind::Histogram {
            let [bucket, sum, count] = PARTS.map(|part| format!("{}{part}", family.name));
            format!("{bucket}{{le=\"+Inf\"}} 0\n{sum} 0\n{count} 0\n")
        } else {
            format!("{} 0\n", family.name)
        };
        let text = format!("# HELP {0} {1}\n# TYPE {0} {kind}\n{sample}", family.name, family.help);
        assert_eq!(Exposition::parse(&text).expect("readable").complaints(), [""; 0]);
        assert!(!family.help.ends_with('.') && family.help.len() > 12, "{}: {}", family.name, family.help);
    }
}
