//! Stopping: what runs may finish, what waits may wait, and what lasts too long is told so.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::net::TcpStream;

use crate::client::Reply;
use crate::gate::{Gate, Settings};
use crate::http2::Http2;
use crate::patience::within;
use crate::rig::{Single, node};
use crate::talk::{Dialect, Talk};
use crate::upstream::{Hold, Script, Upstream};

/// An answer that has begun and goes on once the hold opens.
async fn begun(gate: &Gate, node: &Upstream, dialect: Dialect, hold: &Hold) -> Reply {
    node.next(dialect.stream().chunk(dialect.frame("one")).hold(hold).chunk(dialect.last_frame()).finish());
    let mut reply = gate.send(&Talk::about(dialect, "moss").ask()).await;
    reply.expect_piece().await;
    reply
}

/// Returns once nobody listens there any more.
async fn refused(gate: &Gate) {
    let closed = async {
        while TcpStream::connect(gate.address()).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within("connections to be refused", closed).await;
}

#[tokio::test]
async fn ops_01_a_stream_ends_as_it_should_and_then_the_process() {
    for signal in [Signal::TERM, Signal::INT] {
        let Single { mut gate, node } = Single::new().await;
        let hold = Hold::new();
        let mut reply = begun(&gate, &node, Dialect::Ollama, &hold).await;

        gate.signal(signal);
        refused(&gate).await;
        assert!(gate.lives());
        hold.open();

        let rest = reply.whole().await;
        assert!(String::from_utf8_lossy(&rest).contains("\"done\":true"), "{rest:?}");
        let ended = Instant::now();
        assert_eq!(gate.ended().await, Some(0));
        assert!(ended.elapsed() < Duration::from_secs(2), "it left as soon as it could: {:?}", ended.elapsed());
    }
}

#[tokio::test]
async fn ops_01_an_idle_process_leaves_at_once_and_kept_connections_do_not_hold_it() {
    let Single { mut gate, node: _node } = Single::new().await;
    let kept = gate.get("/api/version").await.reuse().await;
    let signalled = Instant::now();
    gate.signal(Signal::TERM);
    assert_eq!(gate.ended().await, Some(0));
    assert!(signalled.elapsed() < Duration::from_secs(2), "{:?}", signalled.elapsed());
    drop(kept);
}

#[tokio::test]
async fn ops_01_a_second_signal_cuts_what_runs_and_each_of_it_has_its_line() {
    let Single { mut gate, node } = Single::new().await;
    let hold = Hold::new();
    let mut reply = begun(&gate, &node, Dialect::OpenAi, &hold).await;
    let id = reply.request_id().to_owned();
    gate.signal(Signal::TERM);
    refused(&gate).await;
    gate.signal(Signal::TERM);
    let (rest, end) = reply.rest().await;
    let rest = String::from_utf8_lossy(&rest).into_owned();
    assert!(end.is_ok() && rest.contains("error") && rest.contains("stopping"), "{rest}");
    assert_eq!(gate.ended().await, Some(1));

    let log = gate.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let line = lines.into_iter().find(|line| line["request_id"] == id.as_str()).unwrap_or_else(|| panic!("{log}"));
    assert_eq!((&line["status"], &line["outcome"]), (&200.into(), &"cut".into()), "{line}");
    assert!(line["given_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{line}");
    assert!(
        log.contains(&format!("{id}: cut in its answer, after {} bytes: the process ends", line["given_bytes"])),
        "{log}"
    );
}

#[tokio::test]
async fn ops_01_what_outlasts_the_grace_is_told() {
    for dialect in Dialect::BOTH {
        let Single { mut gate, node } = Single::with("shutdown: {grace: 1s}").await;
        let hold = Hold::new();
        let mut reply = begun(&gate, &node, dialect, &hold).await;
        node.next(Script::silent());
        let request = Talk::about(dialect, "fern").ask();
        let mut waiting = gate.connect().await;
        waiting.send(&request).await;
        node.request(1).await;

        gate.signal(Signal::TERM);

        let (rest, end) = reply.rest().await;
        let rest = String::from_utf8_lossy(&rest).into_owned();
        assert!(end.is_ok() && rest.contains("error") && rest.contains("stopping"), "{dialect:?}: {rest}");
        let mut refusal = waiting.reply(&request).await;
        assert_eq!((refusal.status, refusal.header("retry-after")), (503, Some("1")));
        let said = refusal.json().await;
        assert!(dialect.error_text(&said).is_some_and(|text| text.contains("stopping")), "{said}");
        assert_eq!(gate.ended().await, Some(0));
    }
}

#[tokio::test]
async fn ops_01_requests_in_the_queue_go_on_waiting() {
    let node = node("n1").await;
    let hold = Hold::new();
    node.always(Script::held(&hold).then_usual());
    let settings = Settings::over(&[&node]).slots(1).more("admission: {engine_queue: 0}");
    let mut gate = Gate::start(&settings).await;
    let ask = |topic: &str| Talk::about(Dialect::OpenAi, topic).ask();
    let (first, second) = (ask("moss"), ask("fern"));
    let [mut runs, mut waits] = [gate.connect().await, gate.connect().await];
    runs.send(&first).await;
    node.request(0).await;
    waits.send(&second).await;
    gate.waiting(1).await;

    gate.signal(Signal::TERM);
    refused(&gate).await;
    hold.open();

    for (conn, request) in [(runs, first), (waits, second)] {
        let mut reply = conn.reply(&request).await;
        assert_eq!(reply.status, 200);
        reply.whole().await;
        assert_eq!(reply.header("connection"), Some("close"), "it is the last answer on its connection");
    }
    assert_eq!(gate.ended().await, Some(0));
}

#[tokio::test]
async fn ops_01_http2_clients_are_told_to_go_away_and_their_streams_end() {
    let Single { mut gate, node } = Single::new().await;
    let hold = Hold::new();
    let dialect = Dialect::Ollama;
    node.next(dialect.stream().chunk(dialect.frame("one")).hold(&hold).chunk(dialect.last_frame()).finish());
    let mut client = Http2::open(gate.address()).await;
    let body = Talk::about(dialect, "moss").ask().body().clone();
    let mut running = client.post("/api/chat", &body).await.answered().await;
    assert!(running.piece().await.is_some());

    gate.signal(Signal::TERM);
    refused(&gate).await;
    within("the client to be sent away", client.sent_away()).await;
    hold.open();

    assert!(String::from_utf8_lossy(&running.whole().await).contains("\"done\":true"));
    assert_eq!(gate.ended().await, Some(0));
}
