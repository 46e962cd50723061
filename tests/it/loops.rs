//! A Warmgate that has itself among its upstreams, and the count that ends such rounds.

use std::net::SocketAddr;

use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::client::Request;
use crate::gate::{Gate, Settings};
use crate::rig::{Single, node};
use crate::talk::{Dialect, MODEL, Talk};
use crate::upstream::{Script, Upstream};

const HOPS: &str = "x-warmgate-hops";

#[tokio::test]
async fn every_request_tells_how_many_warmgates_it_came_by() {
    let single = Single::with("management: true").await;
    for (n, (sent, seen)) in
        [(None, "1"), (Some("1"), "2"), (Some("3"), "4"), (Some("-7"), "1")].into_iter().enumerate()
    {
        let mut request = Talk::about(Dialect::OpenAi, "moss").ask();
        if let Some(sent) = sent {
            request = request.header("X-Warmgate-Hops", sent);
        }
        single.gate.send(&request).await.whole().await;
        assert_eq!(single.node.request(n).await.head.get(HOPS), Some(seen), "{sent:?} sent");
    }
    let body = json!({"model": MODEL}).to_string();
    let managing = [
        Request::post("/api/pull", body.clone()),
        Request::post("/api/generate", json!({"model": MODEL, "keep_alive": 0}).to_string()),
        Request::post("/api/delete", body).by("DELETE"),
    ];
    for (n, request) in managing.into_iter().enumerate() {
        single.node.next(Script::json(200, &json!({"status": "success"})));
        single.gate.send(&request.header("X-Warmgate-Hops", "2")).await.whole().await;
        assert_eq!(single.node.request(4 + n).await.head.get(HOPS), Some("3"), "managing call {n}");
    }
}

#[tokio::test]
async fn calls_to_several_nodes_tell_it_too() {
    let [n1, n2] = [node("n1").await, node("n2").await];
    let gate = Gate::start(&Settings::over(&[&n1, &n2]).more("management: true")).await;
    for path in ["/api/pull", "/api/delete"] {
        for node in [&n1, &n2] {
            node.next(Script::json(200, &json!({"status": "success"})));
        }
        let request = Request::post(path, json!({"model": MODEL}).to_string());
        let request = if path == "/api/delete" { request.by("DELETE") } else { request };
        let request = request.header("X-Fleet-Nodes", "n1,n2").header("X-Warmgate-Hops", "2");
        let mut reply = gate.send(&request).await;
        // Whoever leaves before the end stops what is not done yet.
        reply.whole().await;
        assert_eq!(reply.status, 200, "{path}");
    }
    for node in [&n1, &n2] {
        for n in 0..2 {
            assert_eq!(node.request(n).await.head.get(HOPS), Some("3"), "{} {n}", node.name());
        }
    }
}

#[tokio::test]
async fn a_request_that_came_by_too_many_is_refused_in_the_client_s_dialect() {
    let single = Single::with("management: true").await;
    for dialect in Dialect::BOTH {
        let mut reply = single.gate.send(&Talk::about(dialect, "moss").ask().header("X-Warmgate-Hops", "4")).await;
        assert_eq!(reply.status, 508);
        let body = reply.json().await;
        let sentence = dialect.error_text(&body).unwrap_or_else(|| panic!("{dialect:?}: form of {body}"));
        assert!(sentence.contains("`upstreams`"), "{sentence}");
    }
    let pull = Request::post("/api/pull", json!({"model": MODEL}).to_string()).header("X-Warmgate-Hops", "9");
    assert_eq!(single.gate.send(&pull).await.status, 508);
    assert_eq!(single.node.count(), 0, "no node was asked");
}

/// By a name that no check of the configuration could see through.
#[tokio::test]
async fn a_gate_that_is_its_own_upstream_ends_each_round() {
    let (mirror, leads_to) = mirror().await;
    let mut n1: Upstream = node("n1").await;
    let settings = Settings::over(&[&n1])
        .upstream(&format!("name: me, url: \"http://{mirror}\", engine: ollama"))
        .more("telemetry: {interval: 100ms}\nhealth: {interval: 100ms}");
    let gate = Gate::start(&settings).await;
    leads_to.send(Some(gate.address())).expect("a mirror");
    gate.node_once("me", "the gate to find its own list", |me| me.to_string().contains(MODEL)).await;
    n1.kill().await;
    gate.node_once("n1", "the only engine to be found dead", |n1| n1["healthy"] == false).await;

    let mut reply = gate.send(&Talk::about(Dialect::Ollama, "moss").ask()).await;

    assert_eq!(reply.status, 508);
    assert!(reply.json().await["error"].as_str().is_some_and(|error| error.contains("`upstreams`")));
    gate.idle().await;
}

/// A way back to the gate, known once the gate is.
async fn mirror() -> (SocketAddr, watch::Sender<Option<SocketAddr>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let (send, leads_to) = watch::channel(None::<SocketAddr>);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let Some(gate) = *leads_to.borrow() else { continue };
            tokio::spawn(async move {
                let Ok(mut gate) = TcpStream::connect(gate).await else { return };
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut gate).await;
            });
        }
    });
    (address, send)
}
