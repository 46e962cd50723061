//! Nodes that operators take out of service and let in again, over the admin port and by command.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::client::{Conn, Reply, Request};
use crate::gate::{Gate, Settings};
use crate::rig::{finished, node};
use crate::talk::{Dialect, Talk};
use crate::upstream::Upstream;

/// Who comes back is given its full share.
const AT_ONCE: &str = "resilience: {slow_start: 0s}";

async fn two() -> (Gate, Upstream, Upstream) {
    let [n1, n2] = [node("n1").await, node("n2").await];
    let gate = Gate::start(&Settings::over(&[&n1, &n2]).more(AT_ONCE)).await;
    (gate, n1, n2)
}

async fn told(mut reply: Reply) -> (u16, Value) {
    (reply.status, reply.json().await)
}

/// Who says that the node drains.
async fn drained_by(gate: &Gate, node: &str) -> Value {
    gate.node_once(node, "the node to be there", |_| true).await["drained_by"].clone()
}

/// Asks about ten things of a topic of its own; gives how many went to that node.
async fn share(gate: &Gate, node: &str, topic: &str) -> usize {
    let mut count = 0;
    for n in 0..10 {
        let reply = finished(gate, &Talk::about(Dialect::Ollama, &format!("{topic} {n}"))).await;
        assert_eq!(reply.status, 200);
        count += usize::from(reply.node() == node);
    }
    count
}

#[tokio::test]
async fn an_operator_drains_a_node_and_lets_it_in_again() {
    let (gate, _n1, _n2) = two().await;
    let (status, answer) = told(gate.order("/fleet/nodes/n1/drain").await).await;
    assert_eq!((status, &answer["rows"][0]["draining"]), (200, &json!(true)), "{answer:#}");
    assert_eq!(share(&gate, "n1", "moss").await, 0, "no new work");
    assert_eq!(gate.node_once("n1", "its state", |_| true).await["state"], "draining");

    let (status, answer) = told(gate.order("/fleet/nodes/n1/resume").await).await;
    assert_eq!((status, &answer["lines"]), (200, &json!(["n1 takes new work"])), "{answer:#}");
    assert!(share(&gate, "n1", "fern").await > 0, "it takes work again");
}

#[tokio::test]
async fn a_node_drains_if_the_file_or_an_operator_says_so() {
    let [n1, n2] = [node("n1").await, node("n2").await];
    let settings = Settings::over(&[&n1]).with_fields("drain: true");
    let file_drains = |drain: bool| {
        let n2 = format!("name: n2, url: \"{}\", engine: ollama", n2.url());
        let settings = if drain { settings.clone() } else { Settings::over(&[&n1]) };
        settings.upstream(&n2).more(AT_ONCE)
    };
    let gate = Gate::start(&file_drains(false)).await;

    told(gate.order("/fleet/nodes/n1/drain").await).await;
    gate.write(&file_drains(false).more("timeouts: {connect: 3s}"));
    gate.reload().await;
    assert_eq!(drained_by(&gate, "n1").await, json!(["admin"]), "it outlives a reload of something else");

    gate.write(&file_drains(true));
    gate.reload().await;
    assert_eq!(drained_by(&gate, "n1").await, json!(["file", "admin"]));
    let (_, answer) = told(gate.order("/fleet/nodes/n1/resume").await).await;
    assert_eq!(answer["rows"][0]["drained_by"], json!(["file"]));
    assert!(answer["lines"][0].as_str().is_some_and(|line| line.contains("`drain: true`")), "{answer:#}");
    assert_eq!(share(&gate, "n1", "heath").await, 0);

    gate.write(&file_drains(false));
    gate.reload().await;
    assert_eq!(drained_by(&gate, "n1").await, json!([]));
    assert!(share(&gate, "n1", "lichen").await > 0);
}

#[tokio::test]
async fn an_operators_drain_outlives_upgrades_and_with_a_state_file_restarts() {
    let [n1, n2] = [node("n1").await, node("n2").await];
    let kept = "server: {upgrade_sock: up.sock}\nstate_file: state\naffinity: {ttl: 1s}";
    let settings = Settings::over(&[&n1, &n2]).more(AT_ONCE).more(kept);
    let mut old = Gate::start(&settings).await;
    told(old.order("/fleet/nodes/n1/drain").await).await;

    let mut new = old.succeed(&settings).await;
    assert_eq!(old.ended().await, Some(0));
    assert_eq!(drained_by(&new, "n1").await, json!(["admin"]));
    assert_eq!(drained_by(&new, "n2").await, json!([]));
    assert_eq!(share(&new, "n1", "moss").await, 0, "no new work");

    new.signal(Signal::TERM);
    assert_eq!(new.ended().await, Some(0));
    // What was learnt ages meanwhile, and what an operator said does not.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let mut next = new.follow(&settings, &[]).await;
    assert_eq!(drained_by(&next, "n1").await, json!(["admin"]));
    told(next.order("/fleet/nodes/n1/resume").await).await;
    assert!(share(&next, "n1", "fern").await > 0, "it takes work again");

    next.signal(Signal::TERM);
    assert_eq!(next.ended().await, Some(0));
    let last = next.follow(&settings, &[]).await;
    assert_eq!(drained_by(&last, "n1").await, json!([]), "what was resumed stays so");
}

#[tokio::test]
async fn all_rows_of_an_upstream_drain_by_its_name() {
    let gpus = Upstream::vllm("gpus", vec![crate::upstream::Model::resident(crate::talk::MODEL)]).await;
    let keys = format!("name: gpus, url: \"{}\", engine: vllm, data_parallel: 2", gpus.url());
    let gate = Gate::start(&Settings::default().upstream(&keys)).await;

    told(gate.order("/fleet/nodes/gpus/1/drain").await).await;
    assert_eq!(drained_by(&gate, "gpus/0").await, json!([]));
    assert_eq!(drained_by(&gate, "gpus/1").await, json!(["admin"]));
    told(gate.order("/fleet/nodes/gpus/drain").await).await;
    assert_eq!(drained_by(&gate, "gpus/0").await, json!(["admin"]));
    let (_, answer) = told(gate.order("/fleet/nodes/gpus%2F0/resume").await).await;
    assert!(answer["lines"][0].as_str().is_some_and(|line| line.contains("part of gpus")), "{answer:#}");
    let (_, answer) = told(gate.order("/fleet/nodes/gpus/resume").await).await;
    assert_eq!(answer["lines"], json!(["gpus/0 takes new work", "gpus/1 takes new work"]));
}

#[tokio::test]
async fn sec_04_only_an_operator_gives_orders() {
    let (gate, _n1, _n2) = two().await;
    let order = |path: &str| Request::post(path, "x=1").replacing("Host", "localhost");
    let cases = [
        (order("/fleet/nodes/n1/drain").header("Origin", "https://evil.test"), 403),
        (order("/fleet/nodes/n1/drain").header("Sec-Fetch-Site", "cross-site"), 403),
        (order("/fleet/nodes/n1/drain").replacing("Host", "evil.test"), 403),
        (order("/fleet/reload").header("Origin", "null"), 403),
        (order("/fleet/nodes/n1/drain").by("GET"), 405),
        (order("/fleet/reload").by("PUT"), 405),
        (order("/fleet/status"), 405),
        (order("/metrics"), 405),
        (order("/fleet/nodes/nobody/drain"), 404),
        (order("/fleet/reload").header("Origin", "http://localhost").header("Sec-Fetch-Site", "same-origin"), 200),
    ];
    for (request, status) in cases {
        let reply = Conn::open(gate.admin_address()).await.exchange(&request).await;
        assert_eq!(reply.status, status, "{request:?}");
        // The body that nobody asked for is no next request.
        reply.reuse().await.exchange(&Request::get_as("localhost", "/fleet/status")).await.json().await;
    }
    assert_eq!(drained_by(&gate, "n1").await, json!([]));
}

#[tokio::test]
async fn the_commands_say_what_the_admin_port_says() {
    let (gate, _n1, _n2) = two().await;
    let admin = gate.admin_address().to_string();
    let run = async |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warmgate"));
        let output = command.args(arguments).args(["--admin", &admin]).output().await.expect("the program");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).expect("text"))
    };
    assert_eq!(run(&["reload"]).await, (Some(0), "nothing has changed\n".into()));
    let (code, text) = run(&["drain", "n1"]).await;
    assert!(code == Some(0) && text.starts_with("n1 drains: it takes no new work; 0 run there"), "{code:?} {text}");
    assert_eq!(run(&["resume", "n1"]).await, (Some(0), "n1 takes new work\n".into()));
    assert_eq!(run(&["drain", "n3"]).await, (Some(2), "no node is called n3; there are: n1, n2\n".into()));

    std::fs::write(gate.config(), "upstreams: [{name: n1, urrl: x}]").expect("the file");
    let (code, text) = run(&["reload"]).await;
    assert_eq!(code, Some(2));
    assert!(text.contains("warmgate.yaml:1: upstreams[0].urrl: unknown key; did you mean url?"), "{text}");
    drop(gate);
    let (code, text) = run(&["reload"]).await;
    assert!(code == Some(1) && text.contains("--admin"), "{code:?} {text}");
}
