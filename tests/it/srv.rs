//! Nodes by SRV records, asked of a name server of their own as Consul's is.

use serde_json::{Value, json};

use crate::gate::{Gate, Settings};
use crate::name_server::{Manner, NameServer};
use crate::patience::within;
use crate::rig::finished;
use crate::talk::{Dialect, MODEL, Talk};
use crate::upstream::{Model, Upstream};

const NAME: &str = "_http._tcp.vllm.test";
const FAST: &str = "health: {interval: 100ms}\ntelemetry: {interval: 100ms}\nresilience: {slow_start: 0s}";

/// A gate over what that name leads to: two nodes on ports of their own.
struct Named {
    server: NameServer,
    nodes: [Upstream; 2],
    gate: Gate,
}

impl Named {
    async fn new() -> Named {
        Named::with(|_, _| {}).await
    }

    /// With more that the server says from the start.
    async fn with(more: impl FnOnce(&NameServer, &[Upstream; 2])) -> Named {
        let server = NameServer::start().await;
        let nodes = [("n1", "127.0.0.1:0"), ("n2", "127.0.0.1:0")];
        let [n1, n2] = nodes.map(|(name, at)| Upstream::ollama_at(name, at, vec![Model::resident(MODEL)]));
        let nodes = [n1.await, n2.await];
        server.host("h1.test", &["127.0.0.1"]);
        server.services(NAME, &nodes.each_ref().map(|node| (0, "h1.test", port(node))));
        more(&server, &nodes);
        let gate = Gate::start(&settings(&server)).await;
        Named { server, nodes, gate }
    }

    fn ports(&self) -> [u16; 2] {
        self.nodes.each_ref().map(port)
    }

    /// Returns once there are so many rows and all are up.
    async fn settled(&self, count: usize) {
        let up = |status: &Value| {
            let rows = status["nodes"].as_array().cloned().unwrap_or_default();
            rows.len() == count && rows.iter().all(|row| row["state"] == "up" && row["models"] != json!([]))
        };
        once(&self.gate, &format!("{count} rows that are up"), up).await;
    }

    async fn source(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        once(&self.gate, what, |status| wanted(&status["discovered"][0])).await["discovered"][0].clone()
    }
}

fn port(node: &Upstream) -> u16 {
    node.address().port()
}

fn settings(server: &NameServer) -> Settings {
    let discover = format!("discover: {{srv: {{nameserver: \"{}\"}}}}", server.address());
    Settings::default().upstream(&format!("name: pool, url: \"http://{NAME}\", {discover}")).more(FAST)
}

async fn once(gate: &Gate, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    within(what, async {
        loop {
            let status = gate.status().await;
            if wanted(&status) {
                return status;
            }
            // There is no event to await from outside; the pause keeps this from spinning.
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await
}

#[tokio::test]
async fn ops_04_servers_of_one_host_are_rows_by_their_ports_and_come_and_go() {
    let named = Named::new().await;
    named.settled(2).await;
    for n in 0..10 {
        let reply = finished(&named.gate, &Talk::about(Dialect::Ollama, &format!("moss {n}"))).await;
        assert_eq!(reply.status, 200);
    }
    assert!(named.nodes.iter().all(|node| node.count() > 0), "both serve");
    let names = |status: &Value| status["nodes"].as_array().expect("nodes").iter().map(|n| n["name"].clone()).collect();
    let both: Vec<Value> = names(&named.gate.status().await);
    assert!(both.iter().all(|name| name.as_str().is_some_and(|name| name.starts_with("pool@"))), "{both:?}");

    let [_, second] = named.ports();
    named.server.services(NAME, &[(0, "h1.test", second)]);
    named.settled(1).await;
    let left: Vec<Value> = names(&named.gate.status().await);
    assert!(both.contains(&left[0]), "the one that stays keeps its name, though it was the second of its host");
    assert_eq!(named.source("that it answers", |source| source["answers"] == true).await["by"], "srv");
}

#[tokio::test]
async fn the_lowest_priority_serves_and_the_next_when_it_has_nobody() {
    let named = Named::with(|server, [n1, n2]| {
        server.services(NAME, &[(10, "h1.test", port(n1)), (20, "h1.test", port(n2))]);
    })
    .await;
    named.settled(1).await;
    assert_eq!(finished(&named.gate, &Talk::about(Dialect::Ollama, "moss")).await.status, 200);
    assert_eq!((named.nodes[0].count(), named.nodes[1].count()), (1, 0));
    let [_, second] = named.ports();
    named.server.services(NAME, &[(20, "h1.test", second)]);
    within("requests at the next", async {
        while named.nodes[1].count() == 0 {
            finished(&named.gate, &Talk::about(Dialect::Ollama, "fern")).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_asked_for_over_tcp() {
    let named = Named::with(|server, _| server.be(Manner::Truncating)).await;
    named.settled(2).await;
    let asked = named.server.asked();
    assert!(asked.contains(&format!("udp SRV {NAME}")) && asked.contains(&format!("tcp SRV {NAME}")), "{asked:?}");
}

#[tokio::test]
async fn a_name_server_that_is_away_or_talks_nonsense_takes_nobody_out() {
    let named = Named::new().await;
    named.settled(2).await;
    for manner in [Manner::Failing, Manner::Nonsense, Manner::Silent] {
        named.server.be(manner);
        let source = named.source("that it does not answer", |source| source["answers"] == false).await;
        assert_eq!(source["rows"], 2, "{manner:?}: {source:#}");
        assert_eq!(finished(&named.gate, &Talk::about(Dialect::Ollama, "moss")).await.status, 200);
        named.server.be(Manner::Plain);
        named.source("that it answers", |source| source["answers"] == true && source["problem"] == json!(null)).await;
    }
    named.server.services(NAME, &[]);
    assert_eq!(named.source("that it says nothing", |source| source["answers"] == false).await["rows"], 2);
}

#[tokio::test]
async fn a_host_that_is_not_found_is_not_gone() {
    let named = Named::with(|server, [n1, n2]| {
        server.host("h2.test", &["127.0.0.1"]);
        server.services(NAME, &[(0, "h1.test", port(n1)), (0, "h2.test", port(n2))]);
    })
    .await;
    named.settled(2).await;
    named.server.host("h2.test", &[]);
    let source = named.source("what is lacking", |source| source["problem"] != json!(null)).await;
    assert_eq!((&source["rows"], &source["answers"]), (&json!(2), &json!(true)), "{source:#}");
    assert!(source["problem"].as_str().is_some_and(|told| told.starts_with("1 of the hosts")), "{source:#}");
}

#[tokio::test]
async fn answers_are_good_for_as_long_as_is_said_within_bounds() {
    let named = Named::with(|server, _| server.good_for(3600)).await;
    named.settled(2).await;
    let asked = named.server.asked().len();
    named.nodes[0].polled("/api/ps", 20).await;
    assert_eq!(named.server.asked().len(), asked, "two seconds of looks, and nobody is asked");
    let named = Named::with(|server, _| server.good_for(0)).await;
    named.server.asked_more("udp SRV", 2).await;
}

#[tokio::test]
async fn hostile_records_lead_nowhere_and_fill_nothing() {
    let long = format!("{}.test", ["a".repeat(63), "b".repeat(63), "c".repeat(60)].join("."));
    let named = Named::with(|server, [n1, n2]| {
        server.host("nobody.test", &["0.0.0.0"]);
        server.host("all.test", &["224.0.0.1", "255.255.255.255"]);
        let hosts = ["nobody.test", "all.test", "h1.test"];
        let mut services: Vec<(u16, &str, u16)> = hosts.iter().map(|host| (0, *host, port(n1))).collect();
        services.extend([(0, "h1.test", 0), (0, ".", port(n1)), (7, "h1.test", port(n2)), (0, long.as_str(), 80)]);
        server.services(NAME, &services);
    })
    .await;
    named.settled(1).await;
    assert_eq!(finished(&named.gate, &Talk::about(Dialect::Ollama, "moss")).await.status, 200);
    assert_eq!(named.nodes[0].count(), 1);

    // As many as a message of DNS has room for, and more than are looked at.
    let many: Vec<(u16, &str, u16)> = (0..2300).map(|n| (0, "h1.test", 1000 + n)).collect();
    named.server.services(NAME, &many);
    named.server.be(Manner::Truncating);
    let full = named.source("as many rows as there may be", |source| source["rows"] == 64).await;
    assert!(full["problem"].as_str().is_some_and(|told| told.contains("more than")), "{full:#}");
    let [first, _] = named.ports();
    named.server.services(NAME, &[(0, "h1.test", first)]);
    named.source("one row again", |source| source["rows"] == 1).await;
    named.settled(1).await;
}
