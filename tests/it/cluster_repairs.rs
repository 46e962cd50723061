//! What others do to Redis is mended: an account that is gone, a key that holds something else; and it is seen who
//! shares a prefix by mistake.

use redis::Value;

use crate::cluster::{Replicas, cluster_once, talk};
use crate::gate::{Gate, Settings};
use crate::patience::until;
use crate::rig::node;
use crate::tenants::{by, tenants};

/// One request of the tenant's; its status.
async fn asked(gate: &Gate, topic: &str) -> u16 {
    let mut reply = gate.send(&by("a", talk(topic).ask())).await;
    reply.whole().await;
    reply.status
}

/// The key of the one account that there is, once it is there.
pub async fn account(replicas: &Replicas) -> String {
    until("an account", async || match replicas.redis.command(&["KEYS", "test:use:*"]).await {
        Value::Array(keys) if keys.is_empty() => None,
        Value::Array(keys) if keys.len() == 1 => Some(redis::from_redis_value(keys[0].clone()).expect("a key")),
        other => panic!("{other:?}"),
    })
    .await
}

/// Returns once the account says that so many requests were made.
pub async fn account_once(replicas: &Replicas, key: &str, requests: usize) {
    until("the account to hold all requests", async || (booked(replicas, key).await == requests).then_some(())).await;
}

/// Returns once so many requests are booked and nothing of them is under way: each took from the account and was
/// settled, however late Redis said so. One that ended before it was taken counts twice until that is undone, which is
/// to be told then.
async fn all_is_booked(replicas: &Replicas, key: &str, requests: usize) {
    let is_over = async || {
        let all = async |operation: &str| replicas.operations(operation, "ok").await >= requests;
        all("take").await && all("settle").await && booked(replicas, key).await == requests
    };
    until("all to be booked", async || is_over().await.then_some(())).await;
    all_is_told(replicas).await;
    account_once(replicas, key, requests).await;
}

async fn booked(replicas: &Replicas, key: &str) -> usize {
    redis::from_redis_value(replicas.redis.command(&["HGET", key, "requests"]).await).unwrap_or(0)
}

async fn all_is_told(replicas: &Replicas) {
    for gate in &replicas.gates {
        cluster_once(gate, "all charges to be told", |cluster| cluster["charges_not_told"] == 0).await;
    }
}

#[tokio::test]
async fn an_account_that_is_lost_gets_back_what_each_replica_booked() {
    let replicas = Replicas::start(2, 2, &tenants(&[("a", "limits: {rpm: 100, tpm: 1000000}")])).await;
    for n in 0..10 {
        assert_eq!(asked(&replicas.gates[n % 2], &format!("before {n}")).await, 200);
    }
    let key = account(&replicas).await;
    // What is under way at that moment may count twice.
    all_is_booked(&replicas, &key, 10).await;
    replicas.redis.command(&["FLUSHALL"]).await;
    for gate in &replicas.gates {
        assert_eq!(asked(gate, "after").await, 200);
    }
    account_once(&replicas, &key, 12).await;
    all_is_told(&replicas).await;
    account_once(&replicas, &key, 12).await;
}

#[tokio::test]
async fn a_key_that_holds_something_else_is_replaced() {
    let yaml = tenants(&[("a", "limits: {rpm: 100, concurrent: 10}")]);
    let replicas = Replicas::start(1, 1, &yaml).await;
    assert_eq!(asked(&replicas.gates[0], "before").await, 200);
    let key = account(&replicas).await;
    all_is_booked(&replicas, &key, 1).await;
    replicas.redis.command(&["SET", &key, "of somebody else"]).await;
    replicas.redis.command(&["SET", &key.replace(":use:", ":run:"), "of somebody else"]).await;
    for n in 0..3 {
        assert_eq!(asked(&replicas.gates[0], &format!("after {n}")).await, 200);
    }
    let is_account = async || replicas.redis.command(&["TYPE", &key]).await == Value::SimpleString("hash".into());
    until("an account again", async || is_account().await.then_some(())).await;
    assert_eq!(asked(&replicas.gates[0], "at last").await, 200);
    // The one before is booked anew, and each of the others once, whether it was taken or could not be.
    account_once(&replicas, &key, 5).await;
    all_is_told(&replicas).await;
    account_once(&replicas, &key, 5).await;
    let log = replicas.gates[0].log();
    assert_eq!(log.matches("holds something else").count(), 1, "{log}");
    assert!(!log.contains("of somebody else"), "{log}");
}

#[tokio::test]
async fn a_fleet_with_other_upstreams_on_the_same_prefix_is_seen() {
    let replicas = Replicas::start(2, 2, "").await;
    for gate in &replicas.gates {
        assert_eq!(gate.status().await["cluster"]["other_fleets"], 0);
    }
    let other = node("other").await;
    let yaml = format!("cluster: {{redis: \"{}\", prefix: test}}", replicas.redis.url());
    let stranger = Gate::start(&Settings::over(&[&other]).more(&yaml)).await;
    for gate in replicas.gates.iter().chain([&stranger]) {
        cluster_once(gate, "the other fleet to be seen", |cluster| cluster["other_fleets"] == 1).await;
        let log = gate.log();
        assert_eq!(log.matches("a replica with other upstreams uses the prefix test").count(), 1, "{log}");
    }
    assert_eq!(replicas.gates[0].counter("warmgate_cluster_other_fleets").await, 1.0);
}
