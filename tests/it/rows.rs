//! Upstreams of several rows, and rows that join and leave while requests run.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use warmgate::Ingress;
use warmgate::config::{Discover, Plan, Upstream as Planned};
use warmgate::edge::resolver::Resolver;

use crate::client::{Conn, Reply};
use crate::gate::{Gate, Settings};
use crate::mounted::{connect, mount};
use crate::patience::within;
use crate::rig::finished;
use crate::talk::{Dialect, MODEL, Talk};
use crate::upstream::{Hold, Model, Upstream};

/// The loads of both ranks of a vLLM, as its metrics tell them.
fn metrics(running: [u32; 2]) -> String {
    let line = |(rank, count)| format!("vllm:num_requests_running{{engine=\"{rank}\",model_name=\"moss\"}} {count}\n");
    running.into_iter().enumerate().map(line).collect()
}

async fn two_ranks(running: [u32; 2]) -> (Gate, Upstream) {
    let gpus = Upstream::vllm("gpus", vec![Model::resident(MODEL)]).await;
    gpus.set_metrics(&metrics(running));
    let keys = format!("name: gpus, url: \"{}\", engine: vllm, slots: 1, data_parallel: 2", gpus.url());
    let gate = Gate::start(&Settings::default().upstream(&keys)).await;
    (gate, gpus)
}

#[tokio::test]
async fn ranks_are_chosen_by_header_and_conversations_stay_on_theirs() {
    let (gate, gpus) = two_ranks([0, 0]).await;
    let talk = Talk::about(Dialect::OpenAi, "moss");
    let first = finished(&gate, &talk).await;
    let next = finished(&gate, &talk.then("And where?")).await;

    assert_eq!((next.node(), next.affinity()), (first.node(), "session"));
    let rank = first.node().strip_prefix("gpus/").expect("a rank's name").to_owned();
    for n in 0..2 {
        assert_eq!(gpus.request(n).await.head.get("x-data-parallel-rank"), Some(rank.as_str()));
    }
    let names: Vec<String> = nodes(&gate).await.iter().map(|node| text(node, "name")).collect();
    assert_eq!(names, ["gpus/0", "gpus/1"]);
}

#[tokio::test]
async fn each_rank_has_its_own_count() {
    for busy in [0, 1] {
        let mut running = [0, 0];
        running[busy] = 9;
        let (gate, _gpus) = two_ranks(running).await;
        let reply = finished(&gate, &Talk::about(Dialect::OpenAi, "moss")).await;
        assert_eq!(reply.node(), format!("gpus/{}", 1 - busy), "the other one is busy with others' requests");
    }
}

#[tokio::test]
async fn a_client_steers_no_engine() {
    let (gate, gpus) = two_ranks([0, 9]).await;
    let steering = [
        "X-Data-Parallel-Rank",
        "X-Vllm-Priority",
        "x-override-model",
        "X-SMG-Routing-Key",
        "x-litellm-num-retries",
        "X-LiteLLM-Tags",
        "X-Session-ID",
    ];
    let mut request = Talk::about(Dialect::OpenAi, "moss").ask().header("X-Harmless", "1");
    for name in steering {
        request = request.header(name, "1");
    }
    gate.send(&request).await.whole().await;

    let head = gpus.request(0).await.head;
    assert_eq!((head.get("x-data-parallel-rank"), head.count("x-data-parallel-rank")), (Some("0"), 1), "our choice");
    let sent: Vec<&str> = steering[1..].iter().copied().filter(|name| head.get(name).is_some()).collect();
    assert!(sent.is_empty() && head.get("x-harmless").is_some(), "sent on: {sent:?}");
}

#[tokio::test]
async fn more_ranks_than_there_are_is_a_problem_that_is_told() {
    let gpus = Upstream::vllm("gpus", vec![Model::resident(MODEL)]).await;
    gpus.set_metrics(&metrics([0, 0]));
    let keys = format!("name: gpus, url: \"{}\", engine: vllm, data_parallel: 3", gpus.url());
    let gate = Gate::start(&Settings::default().upstream(&keys)).await;
    for node in nodes(&gate).await {
        assert_eq!(text(&node, "problem"), "it tells of 2 ranks, not 3: see `data_parallel`");
    }
}

#[tokio::test]
async fn ops_05_addresses_of_the_sixth_version_serve() {
    let n1 = Upstream::ollama_at("n1", "[::1]:0", vec![Model::resident(MODEL)]).await;
    let gate = Gate::start(&Settings::over(&[&n1])).await;
    let reply = finished(&gate, &Talk::about(Dialect::Ollama, "moss")).await;
    assert_eq!((reply.status, reply.node()), (200, "n1"));
}

#[tokio::test]
async fn a_discovered_name_serves_and_tells_no_address() {
    let node = Upstream::ollama("n1", vec![Model::resident(MODEL)]).await;
    let port = node.address().port();
    let keys = format!("name: pool, url: \"http://localhost:{port}\", engine: ollama, discover: dns");
    let gate = Gate::start(&Settings::default().upstream(&keys)).await;
    let reply = finished(&gate, &Talk::about(Dialect::Ollama, "moss")).await;
    assert_eq!(reply.status, 200);
    let label = reply.node().strip_prefix("pool@").expect("a discovered row's name");
    assert!(label.len() == 6 && label.bytes().all(|byte| byte.is_ascii_hexdigit()), "{label}");
}

/// What every name means, as the test says.
#[derive(Default)]
struct Zone(Mutex<Vec<IpAddr>>);

impl Zone {
    fn is(&self, nodes: &[&Upstream]) {
        *self.0.lock().expect("the zone") = nodes.iter().map(|node| node.address().ip()).collect();
    }
}

#[async_trait]
impl Resolver for Zone {
    async fn lookup(&self, _: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let ips = self.0.lock().expect("the zone").clone();
        Ok(ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
    }
}

/// A gateway in this process over one name, behind which are two nodes of one port.
struct Named {
    at: SocketAddr,
    ingress: Arc<Ingress>,
    zone: Arc<Zone>,
    nodes: [Upstream; 2],
}

impl Named {
    async fn new(discover: Option<Discover>, behind: &[usize]) -> Named {
        let first = Upstream::ollama_at("first", "127.0.0.2:0", vec![Model::resident(MODEL)]).await;
        let port = first.address().port();
        let second = Upstream::ollama_at("second", &format!("127.0.0.3:{port}"), vec![Model::resident(MODEL)]).await;
        let nodes = [first, second];
        let zone = Arc::new(Zone::default());
        zone.is(&behind.iter().map(|n| &nodes[*n]).collect::<Vec<_>>());
        let url = format!("http://n1.test:{port}").parse().expect("a URL");
        let upstream = Planned { engine: Some("ollama"), discover, ..Planned::new("n1".into(), url) };
        let mut plan = Plan { upstreams: vec![upstream], ..Plan::default() };
        plan.health.interval = "200ms".parse().expect("a span");
        plan.telemetry.interval = "50ms".parse().expect("a span");
        let ingress = Arc::new(Ingress::with_resolver(plan, zone.clone()).expect("an ingress"));
        let at = mount(ingress.clone());
        connect(at).await;
        Named { at, ingress, zone, nodes }
    }

    async fn ask(&self, talk: &Talk) -> Reply {
        let mut reply = Conn::open(self.at).await.exchange(&talk.ask()).await;
        reply.whole().await;
        reply
    }

    /// Returns once requests are sent to these nodes and no others.
    async fn settled(&self, nodes: &[&Upstream]) {
        let mut expected: Vec<SocketAddr> = nodes.iter().map(|node| node.address()).collect();
        expected.sort();
        let settled = async {
            loop {
                let rows = self.ingress.roster.nodes();
                let mut led: Vec<SocketAddr> = rows.iter().filter_map(|row| Some(*row.address.load_full()?)).collect();
                led.sort();
                let up = self.ingress.fleet.with(|fleet, _| {
                    let up = |id| fleet.upstream(id).is_some_and(|upstream| upstream.healthy);
                    rows.iter().all(|row| up(row.id))
                });
                if led == expected && up {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        within("the name to lead there", settled).await;
    }
}

#[tokio::test]
async fn ops_04_no_request_goes_to_the_address_that_a_name_has_left() {
    let named = Named::new(None, &[0]).await;
    let [first, second] = &named.nodes;
    named.settled(&[first]).await;
    named.ask(&Talk::about(Dialect::Ollama, "moss")).await;
    assert_eq!(first.count(), 1);

    named.zone.is(&[second]);
    named.settled(&[second]).await;
    for n in 0..5 {
        let reply = named.ask(&Talk::about(Dialect::Ollama, &format!("moss {n}"))).await;
        assert_eq!((reply.status, reply.node()), (200, "n1"));
    }

    assert_eq!((first.count(), second.count()), (1, 5), "the old address still listens, as another's service may");
}

#[tokio::test]
async fn ops_04_hlt_13_rows_join_and_leave_and_what_runs_finishes() {
    let named = Named::new(Some(Discover::Dns), &[0, 1]).await;
    let [first, second] = &named.nodes;
    named.settled(&[first, second]).await;
    let hold = Hold::new();
    for node in [first, second] {
        node.next(
            Dialect::Ollama
                .stream()
                .chunk(Dialect::Ollama.frame("all is"))
                .hold(&hold)
                .chunk(Dialect::Ollama.last_frame())
                .finish(),
        );
    }
    let talk = Talk::about(Dialect::Ollama, "moss");
    let mut running = Conn::open(named.at).await.exchange(&talk.ask()).await;
    running.expect_piece().await;
    let (home, away) = if first.count() == 1 { (first, second) } else { (second, first) };
    let row = running.node().to_owned();

    named.zone.is(&[away]);
    named.settled(&[away]).await;
    away.always(crate::upstream::Script::usual());
    hold.open();
    running.rest().await.1.expect("the running answer comes to its end");
    let polled = home.polls().len();
    let moved = named.ask(&talk.then("And where?")).await;
    for n in 0..5 {
        named.ask(&Talk::about(Dialect::Ollama, &format!("fern {n}"))).await;
    }

    assert_eq!((moved.status, moved.affinity()), (200, "moved"));
    assert_ne!(moved.node(), row);
    assert_eq!((home.count(), away.count()), (1, 6), "no new work for the one that left");
    // Ten times as long as it takes to poll a node that is there.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(home.polls().len(), polled, "hlt_13: not a byte more");
    assert_eq!(named.ingress.fleet.with(|fleet, _| fleet.upstreams().count()), 1, "and it is forgotten");

    named.zone.is(&[home, away]);
    named.settled(&[home, away]).await;
    let names: Vec<String> = named.ingress.roster.nodes().iter().map(|node| node.name.clone()).collect();
    assert!(names.contains(&row), "it comes back under its name: {names:?}");
}

async fn nodes(gate: &Gate) -> Vec<Value> {
    gate.status().await["nodes"].as_array().expect("nodes").clone()
}

fn text(node: &Value, key: &str) -> String {
    node[key].as_str().unwrap_or_default().to_owned()
}
