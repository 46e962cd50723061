//! Limits while Redis does not answer: each replica goes on with its share of what was left, and all of them together
//! stay within the limit, but for one each.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::cluster::{Replicas, cluster_once, talk};
use crate::cluster_repairs::{account, account_once};
use crate::gate::Gate;
use crate::tenants::{by, tenants};

const REPLICAS: usize = 3;

/// Of the tenant, a minute.
const RPM: usize = 21;

/// Far longer than a burst takes until all of it is decided, and not so long that the connection is given up.
const LATE: Duration = Duration::from_millis(600);

async fn all() -> Replicas {
    Replicas::start(REPLICAS, 2, &tenants(&[("a", "limits: {rpm: 21}")])).await
}

/// One request of the tenant's; whether it was let in.
async fn asked(gate: &Gate, topic: &str) -> bool {
    let mut reply = gate.send(&by("a", talk(topic).ask())).await;
    reply.whole().await;
    assert!([200, 429].contains(&reply.status), "{}", reply.status);
    reply.status == 200
}

/// As many as are let in of sixty at once, by all replicas.
async fn burst(replicas: &Arc<Replicas>) -> usize {
    let mut burst = JoinSet::new();
    for n in 0..60 {
        let replicas = replicas.clone();
        burst.spawn(async move { asked(&replicas.gates[n % REPLICAS], &format!("burst {n}")).await });
    }
    burst.join_all().await.into_iter().filter(|let_in| *let_in).count()
}

#[track_caller]
fn check(let_in: usize) {
    assert!((RPM..=RPM + REPLICAS).contains(&let_in), "{let_in} of {RPM}");
}

#[tokio::test]
async fn a_burst_at_the_moment_when_redis_turns_slow_is_let_in_by_shares() {
    let replicas = Arc::new(all().await);
    replicas.redis.delay(LATE);
    let let_in = burst(&replicas).await;
    check(let_in);
    // What was let in by shares is booked, whatever the account said of it, and what was refused is not.
    replicas.redis.delay(Duration::ZERO);
    account_once(&replicas, &account(&replicas).await, let_in).await;
}

#[tokio::test]
async fn while_redis_is_slow_it_is_the_same() {
    let replicas = Arc::new(all().await);
    replicas.redis.delay(LATE);
    for gate in &replicas.gates {
        cluster_once(gate, "that nobody waits for Redis", |cluster| cluster["quick"] == false).await;
    }
    check(burst(&replicas).await);
}

#[tokio::test]
async fn while_redis_is_gone_what_was_used_before_counts() {
    let mut replicas = all().await;
    let mut before = 0;
    for n in 0..2 * REPLICAS {
        before += usize::from(asked(&replicas.gates[n % REPLICAS], &format!("before {n}")).await);
    }
    replicas.redis.kill().await;
    for gate in &replicas.gates {
        // Whoever is no more heard of has its share all the same.
        cluster_once(gate, "that Redis is gone, and the others with it", |cluster| {
            cluster["up"] == false && cluster["other_replicas"] == 0
        })
        .await;
    }
    let replicas = Arc::new(replicas);
    check(before + burst(&replicas).await);
}
