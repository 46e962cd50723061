//! Replicas that agree over Redis behind sentinels, over a Redis Cluster, and over TLS.

use crate::cluster::{Replicas, cluster_once, talk};
use crate::redis_kinds::{RedisCluster, Server, Watched, tls_arguments};
use crate::tenants::{by, tenants};
use crate::tls::Authority;

const RPM: usize = 12;

fn limited() -> String {
    tenants(&[("a", &format!("limits: {{rpm: {RPM}, tpm: 1000000, concurrent: 50}}"))])
}

/// Talks go on warm by the other replica, and by one who comes late; no call fails.
async fn pins_travel(cluster: &str) {
    let mut replicas = Replicas::over((), &format!("{cluster}, prefix: pins"), 2, 4, "").await;
    let talks = replicas.talks(20).await;
    for (talk, home) in &talks[..6] {
        let reply = replicas.turn(1, talk).await;
        assert_eq!((reply.node(), reply.affinity()), (home.as_str(), "session"));
    }
    replicas.a_late_one_finds(&talks[6..]).await;
    no_call_fails(&replicas, &["publish", "store", "lookup"]).await;
}

/// What one replica lets in the other does not.
async fn limits_hold(cluster: &str, prefix: &str) {
    let replicas = Replicas::over((), &format!("{cluster}, prefix: {prefix}"), 2, 2, &limited()).await;
    let mut admitted = 0;
    for n in 0..2 * RPM {
        let request = by("a", talk(&format!("one of many {n}")).ask());
        let mut reply = replicas.gates[n % 2].send(&request).await;
        reply.whole().await;
        match reply.status {
            200 => admitted += 1,
            429 => {}
            other => panic!("{other}"),
        }
    }
    let admitted = replicas.fill(admitted, RPM).await;
    // Where Redis did not answer in time, as on a busy machine, a replica decided by what it knew.
    let alone = replicas.operations("take", "slow").await;
    assert!(admitted <= RPM + alone, "{admitted} admitted, {alone} of all decided alone");
    for gate in &replicas.gates {
        cluster_once(gate, "all charges to be told", |cluster| cluster["charges_not_told"] == 0).await;
    }
    no_call_fails(&replicas, &["take", "settle"]).await;
}

async fn no_call_fails(replicas: &Replicas<()>, operations: &[&str]) {
    for operation in operations {
        let [ok, failed] = [replicas.operations(operation, "ok").await, replicas.operations(operation, "error").await];
        assert!(ok > 0 && failed == 0, "{operation}: {ok} ok, {failed} failed");
    }
}

fn with_ca(url: &str, authority: &Authority) -> String {
    format!("redis: \"{url}\", ca: \"{}\"", authority.file().display())
}

#[tokio::test]
async fn over_a_redis_cluster() {
    let redis = RedisCluster::start(None).await;
    let cluster = format!("redis: \"{}\"", redis.url());
    pins_travel(&cluster).await;
    limits_hold(&cluster, "limits").await;
    let mut keys = Vec::new();
    for master in &redis.masters {
        keys.push(master.command(&["DBSIZE"]).await);
    }
    assert!(keys.iter().all(|keys| *keys != redis::Value::Int(0)), "every master has some: {keys:?}");
}

#[tokio::test]
async fn over_a_redis_cluster_with_tls() {
    let authority = Authority::new("redis");
    let redis = RedisCluster::start(Some(&authority)).await;
    let cluster = with_ca(&redis.url(), &authority);
    pins_travel(&cluster).await;
    limits_hold(&cluster, "limits").await;
}

#[tokio::test]
async fn over_tls() {
    let (authority, other) = (Authority::new("redis"), Authority::new("somebody else"));
    let arguments = tls_arguments(&authority);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let redis = Server::start(&arguments, Some(authority.file())).await;
    let url = format!("rediss://127.0.0.1:{}", redis.port);
    pins_travel(&with_ca(&url, &authority)).await;
    limits_hold(&with_ca(&url, &authority), "limits").await;

    // Whoever trusts another authority, or this machine's alone, does not talk to it.
    let node = crate::rig::node("n1").await;
    for cluster in [with_ca(&url, &other), format!("redis: \"{url}\"")] {
        let yaml = format!("cluster: {{{cluster}}}");
        let gate = crate::gate::Gate::start(&crate::gate::Settings::over(&[&node]).more(&yaml)).await;
        let told = cluster_once(&gate, "why not", |cluster| cluster["problem"].is_string()).await;
        assert_eq!((&told["up"], &told["problem"]), (&false.into(), &"its certificate is not trusted".into()));
    }
}

#[tokio::test]
async fn behind_sentinels_and_after_a_failover() {
    let mut redis = Watched::start().await;
    let cluster = format!("redis: \"{}\"", redis.url());
    pins_travel(&cluster).await;
    limits_hold(&cluster, "limits").await;

    let replicas = Replicas::over((), &format!("{cluster}, prefix: over"), 2, 4, "").await;
    let talks = replicas.talks(4).await;
    redis.fail_over().await;
    replicas.agreed().await;
    for (talk, home) in talks {
        let reply = replicas.turn(1, &talk).await;
        assert_eq!((reply.node(), reply.affinity()), (home.as_str(), "session"));
    }
    assert!(replicas.gates.iter().all(|gate| gate.log().matches("agrees with other replicas").count() >= 2));
    limits_hold(&cluster, "after").await;
}
