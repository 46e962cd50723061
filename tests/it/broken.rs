//! A broken node is taken out, what waits there goes elsewhere, and it comes back by itself.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::client::{Conn, Reply};
use crate::gate::{Gate, Settings};
use crate::patience::PATIENCE;
use crate::rig::{Single, finished, node};
use crate::talk::{Dialect, Talk};
use crate::upstream::{Hold, Polls, Script, Upstream};

/// Two failures, a second's cooldown, and no other way back than time.
const QUICK: &str = "resilience: {slow_start: 500ms, breaker: {failures: 2, cooldown: 1s, max_cooldown: 1s}}\n\
                     health: {interval: 1h}";

fn stranger(n: usize) -> Talk {
    Talk::about(Dialect::Ollama, &format!("{n} is the number of"))
}

async fn ask(gate: &Gate, n: usize) -> Reply {
    finished(gate, &stranger(n)).await
}

/// Asks without waiting; gives status and node.
async fn asked(gate: &Gate, talk: Talk) -> JoinHandle<(u16, String)> {
    let conn = gate.connect().await;
    tokio::spawn(async move {
        let mut reply = conn.exchange(&talk.ask()).await;
        reply.rest().await.1.expect("a whole answer");
        (reply.status, reply.header("x-fleet-node").unwrap_or_default().to_owned())
    })
}

async fn pause(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

fn failing() -> Script {
    Script::json(500, &json!({"error": "the runner has crashed"}))
}

/// Asks new conversations until one is answered by that node; gives how long it took.
async fn until_served_by(gate: &Gate, node: &Upstream, from: usize) -> Duration {
    let began = Instant::now();
    for n in from.. {
        let reply = ask(gate, n).await;
        if reply.status == 200 && reply.node() == node.name() {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{} never served again: {:#}", node.name(), gate.status().await);
        pause(50).await;
    }
    began.elapsed()
}

async fn state_of(gate: &Gate, node: &Upstream) -> Value {
    let status = gate.status().await;
    let found = status["nodes"].as_array().into_iter().flatten().find(|row| row["name"] == node.name());
    found.expect("the node").clone()
}

#[tokio::test]
async fn hlt_01_a_hung_engine_with_green_checks_is_found() {
    let [n1, n2] = [node("n1").await, node("n2").await];
    n1.always(Script::silent());
    let quick = "timeouts: {first_byte: 6s}\nhealth: {interval: 200ms}\n\
                 resilience: {slow_start: 0s, breaker: {failures: 3, cooldown: 2s, max_cooldown: 2s}}";
    let gate = Gate::start(&Settings::over(&[&n1, &n2]).more(quick)).await;
    let began = Instant::now();
    let mut clients = Vec::new();
    for n in 0..40 {
        clients.push(asked(&gate, stranger(n)).await);
        pause(100).await;
    }
    for client in clients {
        assert_eq!(client.await.expect("a client"), (200, "n2".into()), "moved, and not asked to come again");
    }
    let trials = began.elapsed().as_secs() as usize / 2 + 1;
    assert!((1..=3 + trials).contains(&n1.count()), "{} at the hung node", n1.count());

    n1.always(Script::usual());
    until_served_by(&gate, &n1, 100).await;
    assert_eq!(state_of(&gate, &n1).await["models"][0]["standing"]["state"], "up");
}

#[tokio::test]
async fn a_node_that_fails_its_checks_loses_what_waits_there() {
    let [n1, n2] = [node("n1").await, node("n2").await];
    let gate = Gate::start(&Settings::over(&[&n1, &n2]).more("health: {interval: 200ms, timeout: 200ms}")).await;
    let opening = ask(&gate, 0).await;
    let (home, away) = if opening.node() == "n1" { (n1, n2) } else { (n2, n1) };
    home.always(Script::silent());
    let client = asked(&gate, stranger(0).then("And?")).await;
    home.request(1).await;

    home.set_polls(Polls::Failing);

    assert_eq!(client.await.expect("a client"), (200, away.name().into()));
    home.peer_gone(1).await;
    assert_eq!(away.count(), 1);
    let receipts = gate.admin("/fleet/receipts?limit=1").await;
    assert_eq!(receipts[0]["attempts"][0]["failure"], "ejected");
    assert_eq!(state_of(&gate, &home).await["standing"]["state"], "down", "ops_11");
    gate.idle().await;
}

#[tokio::test]
async fn hlt_02_late_checks_do_not_take_everybody_out() {
    let nodes = [node("n1").await, node("n2").await, node("n3").await];
    let all: Vec<&Upstream> = nodes.iter().collect();
    let gate = Gate::start(&Settings::over(&all).more("health: {interval: 100ms, timeout: 100ms}")).await;
    nodes.iter().for_each(|node| node.set_polls(Polls::Silent));
    pause(800).await;
    let before: Vec<usize> = nodes.iter().map(Upstream::count).collect();
    for round in 0..30 {
        let mut clients = Vec::new();
        for n in 0..6 {
            clients.push(asked(&gate, stranger(10 * round + n)).await);
        }
        for client in clients {
            assert_eq!(client.await.expect("a client").0, 200, "round {round}");
        }
        pause(30).await;
    }
    let used = nodes.iter().zip(before).filter(|(node, before)| node.count() > *before).count();
    assert!(used >= 2, "{used} of three in use");
}

#[tokio::test]
async fn hlt_05_a_killed_node_is_left_after_one_refused_connection() {
    let [n1, mut n2, mut n3] = [node("n1").await, node("n2").await, node("n3").await];
    n3.kill().await;
    let gate = Gate::start(&Settings::over(&[&n1, &n2, &n3]).more("health: {interval: 1h}")).await;
    for n in 0..10 {
        assert_eq!(ask(&gate, n).await.status, 200, "a node that never was up gets nothing");
    }
    n2.kill().await;
    for n in 10..40 {
        let reply = ask(&gate, n).await;
        assert_eq!((reply.status, reply.node()), (200, "n1"));
    }
    let receipts = gate.admin("/fleet/receipts?limit=100").await;
    let attempts = receipts.as_array().into_iter().flatten().flat_map(|receipt| receipt["attempts"].as_array());
    let refused = attempts.flatten().filter(|attempt| attempt["failure"] == "connect_failed").count();
    assert!(refused <= 1, "{refused} tries at a closed port");
    assert_eq!(state_of(&gate, &n2).await["standing"]["state"], "breaker_open");
}

#[tokio::test]
async fn hlt_07_the_way_back_is_by_time_and_needs_no_checks() {
    let [n1, n2] = [node("n1").await, node("n2").await];
    n1.always(failing());
    let gate = Gate::start(&Settings::over(&[&n1, &n2]).more(QUICK)).await;
    for n in 0.. {
        assert_eq!(ask(&gate, n).await.status, 200);
        if n1.count() == 2 {
            break;
        }
    }
    n1.always(Script::usual());
    let took = until_served_by(&gate, &n1, 1000).await;
    assert!(took < Duration::from_secs(4), "{took:?} after a cooldown of 1 s");
    until_served_by(&gate, &n1, 2000).await;
}

#[tokio::test]
async fn hlt_10_the_only_node_is_back_within_two_seconds() {
    let single = Single::with("health: {interval: 1h}").await;
    single.node.always(failing());
    for n in 0..10 {
        let status = ask(&single.gate, n).await.status;
        assert!(status == 500 || status == 503, "{status}");
    }
    single.node.always(Script::usual());
    let took = until_served_by(&single.gate, &single.node, 100).await;
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test]
async fn hlt_12_a_node_that_joins_takes_load_gradually() {
    let [n1, n2, mut n3] = [node("n1").await, node("n2").await, node("n3").await];
    n3.kill().await;
    let hold = Hold::new();
    n1.always(Script::held(&hold).then_usual());
    n2.always(Script::held(&hold).then_usual());
    let settings = Settings::over(&[&n1, &n2, &n3]);
    let gate = Gate::start(&settings.more("health: {interval: 200ms}\nresilience: {slow_start: 3s}")).await;
    pause(3500).await;
    let mut waiting = Vec::new();
    send(&gate, 0..60, &mut waiting).await;
    n1.request(29).await;
    n2.request(29).await;
    n3.always(Script::held(&hold).then_usual());
    n3.revive();
    while state_of(&gate, &n3).await["standing"]["state"] != "slow_start" {
        pause(20).await;
    }
    send(&gate, 60..80, &mut waiting).await;
    while n1.count() + n2.count() + n3.count() < 80 {
        pause(20).await;
    }
    assert!(n3.count() <= 2, "{} at once on a node that has answered nothing", n3.count());

    while state_of(&gate, &n3).await["standing"]["state"] != "up" {
        pause(50).await;
    }
    send(&gate, 80..110, &mut waiting).await;
    while n1.count() + n2.count() + n3.count() < 110 {
        pause(20).await;
    }
    assert!(n3.count() >= 28, "{}: then it takes what the others have and it has not", n3.count());
    hold.open();
    for (n, conn) in waiting {
        assert_eq!(conn.reply(&stranger(n).ask()).await.status, 200);
    }
}

/// Sends new conversations and does not wait for their answers.
async fn send(gate: &Gate, which: std::ops::Range<usize>, waiting: &mut Vec<(usize, Conn)>) {
    for n in which {
        let mut conn = gate.connect().await;
        conn.send(&stranger(n).ask()).await;
        waiting.push((n, conn));
    }
}

#[tokio::test]
async fn hlt_19_long_prompts_that_take_long_are_no_fault() {
    let [n1, n2] = [node("n1").await, node("n2").await];
    let hold = Hold::new();
    n1.always(Script::held(&hold).then_usual());
    n2.always(Script::held(&hold).then_usual());
    let gate = Gate::start(&Settings::over(&[&n1, &n2]).more("timeouts: {first_byte: 6s}")).await;
    let mut clients = Vec::new();
    for n in 0..6 {
        let long = Talk::about(Dialect::Ollama, &format!("{n} {}", "moss and fern ".repeat(15_000)));
        clients.push(asked(&gate, long).await);
    }
    n1.request(2).await;
    n2.request(2).await;
    for n in 0..3 {
        n2.next(Script::usual());
        n1.next(Script::usual());
        ask(&gate, n).await;
        pause(800).await;
    }
    let [at_n1, at_n2] = [n1.count(), n2.count()];
    assert_eq!(at_n1 + at_n2, 9, "none of the long ones was sent twice");
    hold.open();
    for client in clients {
        assert_eq!(client.await.expect("a client").0, 200);
    }
    for node in [&n1, &n2] {
        assert_eq!(state_of(&gate, node).await["models"][0]["standing"]["state"], "up");
    }
}

#[tokio::test]
async fn ret_01_what_is_merely_slow_is_not_sent_twice() {
    let [n1, n2] = [node("n1").await, node("n2").await];
    n1.always(Script::silent());
    n2.always(Script::silent());
    let gate = Gate::start(&Settings::over(&[&n1, &n2]).more("timeouts: {first_byte: 1s}")).await;
    assert_eq!(ask(&gate, 0).await.status, 504);
    assert_eq!(n1.count() + n2.count(), 1);
}
