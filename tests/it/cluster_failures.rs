//! Redis gone, hanging, slow, full, read-only or empty: nothing fails, nothing waits, and it is seen.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::client::Reply;
use crate::cluster::{Replicas, cluster_once, talk};
use crate::gate::Gate;
use crate::patience::within_time;
use crate::talk::Talk;
use crate::tenants::{by, tenants};

/// Far above what is waited for Redis, far below what a hanging one would cost.
const AT_ONCE: Duration = Duration::from_millis(900);

/// Of `go_on`.
const TURNS: usize = 8;

/// A turn that is served at once, however Redis is.
async fn served(gate: &Gate, talk: &Talk) -> Reply {
    let began = Instant::now();
    let mut reply = gate.send(&by("a", talk.ask())).await;
    reply.whole().await;
    assert_eq!(reply.status, 200);
    assert!(began.elapsed() < AT_ONCE, "it took {:?}", began.elapsed());
    reply
}

/// Two replicas, and a tenant with limits, so that everything is asked of Redis that can be.
async fn pair() -> Replicas {
    Replicas::start(2, 2, &tenants(&[("a", "limits: {rpm: 10000, tpm: 100000000, concurrent: 100}")])).await
}

/// Conversations that go on by one replica, whatever Redis does; all turns are warm there.
async fn go_on(gate: &Gate, topics: &str) -> Vec<(Talk, String)> {
    let mut talks = Vec::new();
    for n in 0..4 {
        let talk = talk(&format!("{topics} {n}"));
        let home = served(gate, &talk).await.node().to_owned();
        let talk = talk.then("And where?");
        let reply = served(gate, &talk).await;
        assert_eq!((reply.node(), reply.affinity()), (home.as_str(), "session"));
        talks.push((talk.then("And when?"), home));
    }
    talks
}

/// Turns that the other replica has heard of.
async fn heard(replicas: &Replicas) -> f64 {
    replicas.gates[1].counter("warmgate_cluster_turns_total{direction=\"heard\"}").await
}

/// Returns once it has heard of so many more. What it missed is told again, all in one message.
async fn has_heard(replicas: &Replicas, before: f64, turns: usize) {
    within_time(Duration::from_secs(20), "all turns to be heard", async {
        while heard(replicas).await < before + turns as f64 {
            // There is no event to await from outside; the pause keeps this from spinning.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// Talks had by one replica go on by the other, warm; it has heard of them, or does once they flow back.
async fn go_on_elsewhere(replicas: &Replicas, talks: Vec<(Talk, String)>, before: f64) {
    replicas.agreed().await;
    cluster_once(&replicas.gates[0], "all turns to be told", |cluster| {
        cluster["turns_not_told"] == 0 && cluster["charges_not_told"] == 0
    })
    .await;
    has_heard(replicas, before, TURNS).await;
    for (talk, home) in talks {
        let reply = served(&replicas.gates[1], &talk).await;
        assert_eq!((reply.node(), reply.affinity()), (home.as_str(), "session"));
    }
}

#[tokio::test]
async fn redis_killed_and_started_again() {
    let mut replicas = pair().await;
    replicas.redis.kill().await;
    cluster_once(&replicas.gates[0], "that it is gone", |cluster| {
        cluster["up"] == false && cluster["problem"].is_string()
    })
    .await;
    assert_eq!(replicas.gates[0].counter("warmgate_cluster_up").await, 0.0);
    let before = heard(&replicas).await;
    let talks = go_on(&replicas.gates[0], "killed").await;
    replicas.redis.restart().await;
    go_on_elsewhere(&replicas, talks, before).await;
    assert_eq!(replicas.gates[0].counter("warmgate_cluster_up").await, 1.0);
    let log = replicas.gates[0].log();
    assert!(log.contains("this replica goes by what it knows") && log.contains("agrees with other replicas"), "{log}");
}

#[tokio::test]
async fn redis_stopped_and_continued() {
    let replicas = pair().await;
    replicas.redis.signal(Signal::STOP);
    let before = heard(&replicas).await;
    let talks = go_on(&replicas.gates[0], "stopped").await;
    cluster_once(&replicas.gates[0], "that it hangs", |cluster| cluster["up"] == false).await;
    replicas.redis.signal(Signal::CONT);
    go_on_elsewhere(&replicas, talks, before).await;
}

#[tokio::test]
async fn redis_slow() {
    let replicas = pair().await;
    replicas.redis.delay(Duration::from_millis(200));
    let before = heard(&replicas).await;
    let talks = go_on(&replicas.gates[0], "slow").await;
    cluster_once(&replicas.gates[0], "that nobody waits for it", |cluster| cluster["quick"] == false).await;
    assert_eq!(replicas.gates[0].counter("warmgate_cluster_quick").await, 0.0);
    replicas.redis.delay(Duration::ZERO);
    go_on_elsewhere(&replicas, talks, before).await;
}

#[tokio::test]
async fn redis_full_and_read_only() {
    let replicas = pair().await;
    for (begin, end, code) in [
        (["CONFIG", "SET", "maxmemory", "1"], ["CONFIG", "SET", "maxmemory", "0"], "OOM"),
        (["REPLICAOF", "127.0.0.1", "1", ""], ["REPLICAOF", "NO", "ONE", ""], "READONLY"),
    ] {
        let words = |all: [&'static str; 4]| all.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>();
        replicas.redis.command(&words(begin)).await;
        let before = heard(&replicas).await;
        let talks = go_on(&replicas.gates[0], code).await;
        let told =
            cluster_once(&replicas.gates[0], "that it takes no writes", |cluster| cluster["problem"].is_string());
        assert!(told.await["problem"].as_str().is_some_and(|problem| problem.contains(code)));
        replicas.redis.command(&words(end)).await;
        go_on_elsewhere(&replicas, talks, before).await;
    }
}

#[tokio::test]
async fn redis_restarted_empty() {
    let mut replicas = pair().await;
    let before = heard(&replicas).await;
    let talks = go_on(&replicas.gates[0], "emptied").await;
    has_heard(&replicas, before, TURNS).await;
    replicas.redis.kill().await;
    replicas.redis.restart().await;
    go_on_elsewhere(&replicas, talks, before).await;
}

#[tokio::test]
async fn a_gate_without_redis_at_its_start_serves_and_says_so() {
    let node = crate::rig::node("n1").await;
    let yaml = "cluster: {redis: \"redis://user:canary-password@127.0.0.1:1\"}";
    let gate = Gate::start(&crate::gate::Settings::over(&[&node]).more(yaml)).await;
    let mut reply = gate.send(&talk("moss").ask()).await;
    reply.whole().await;
    assert_eq!(reply.status, 200);
    let told = cluster_once(&gate, "that it is gone", |cluster| cluster["problem"].is_string()).await;
    assert_eq!(
        (&told["up"], &told["redis"]),
        (&serde_json::json!(false), &serde_json::json!("redis://(hidden)@127.0.0.1:1"))
    );
    let shown = format!("{}{}{}", gate.log(), gate.admin_text("/fleet/config").await, gate.status().await);
    assert!(!shown.contains("canary-password"), "{shown}");
}
