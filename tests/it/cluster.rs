//! Replicas that agree over Redis: warmth, limits and loads are those of the whole, whoever is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::Reply;
use crate::cluster_repairs::{account, account_once};
use crate::gate::{Gate, Settings};
use crate::patience::{until, within};
use crate::redis_server::RedisServer;
use crate::rig::node;
use crate::talk::{Dialect, Talk};
use crate::tenants::{by, tenants};
use crate::upstream::{Hold, Script, Upstream};

/// Gates over the same nodes and one Redis.
pub struct Replicas<R = RedisServer> {
    pub redis: R,
    pub nodes: Vec<Upstream>,
    pub gates: Vec<Gate>,
    pub settings: Settings,
}

impl Replicas {
    pub async fn start(gates: usize, nodes: usize, yaml: &str) -> Replicas {
        let redis = RedisServer::start().await;
        let cluster = format!("redis: \"{}\", prefix: test", redis.url());
        Replicas::over(redis, &cluster, gates, nodes, yaml).await
    }
}

impl<R> Replicas<R> {
    /// Over any Redis, which `cluster` is configured with.
    pub async fn over(redis: R, cluster: &str, gates: usize, nodes: usize, yaml: &str) -> Replicas<R> {
        let mut made = Vec::new();
        for n in 1..=nodes {
            made.push(node(&format!("n{n}")).await);
        }
        let cluster = format!("cluster: {{{cluster}}}");
        let settings = Settings::over(&made.iter().collect::<Vec<_>>()).slots(4).more(&cluster).more(yaml);
        let mut replicas = Replicas { redis, nodes: made, gates: Vec::new(), settings };
        for _ in 0..gates {
            replicas.join().await;
        }
        replicas.agreed().await;
        replicas
    }

    /// One more replica.
    pub async fn join(&mut self) {
        self.gates.push(Gate::start(&self.settings).await);
    }

    /// Returns once every replica hears of all others. Whether Redis is quick enough to be waited for is another matter
    /// on a busy machine: 2 ms are few.
    pub async fn agreed(&self) {
        for gate in &self.gates {
            let others = self.gates.len() as u64 - 1;
            cluster_once(gate, "replicas that hear of each other", |cluster| {
                cluster["up"] == true && cluster["other_replicas"] == others
            })
            .await;
        }
    }

    /// A turn by that replica, read to its end and known to all others.
    pub async fn turn(&self, gate: usize, talk: &Talk) -> Reply {
        let before = self.heard(gate).await;
        let mut reply = self.gates[gate].send(&talk.ask()).await;
        reply.whole().await;
        assert_eq!(reply.status, 200);
        let is_heard = async || self.heard(gate).await.iter().zip(&before).all(|(now, before)| now > before);
        until("the others to hear of a turn", async || is_heard().await.then_some(())).await;
        reply
    }

    /// Talks that the first has had; their next turns, and where these are warm.
    pub async fn talks(&self, count: usize) -> Vec<(Talk, String)> {
        let mut talks = Vec::new();
        for n in 0..count {
            let talk = talk(&format!("topic {n}"));
            let home = self.turn(0, &talk).await.node().to_owned();
            talks.push((talk.then("And where?"), home));
        }
        talks
    }

    /// One who comes late, and was told nothing, finds the warm node of one of these talks in Redis.
    pub async fn a_late_one_finds(&mut self, talks: &[(Talk, String)]) {
        // What was told a moment ago is told to those who come.
        tokio::time::sleep(Duration::from_millis(3500)).await;
        self.join().await;
        self.agreed().await;
        let gate = self.gates.last().expect("a gate");
        let lookups = async |result: &str| {
            gate.counter(&format!("warmgate_cluster_operations_total{{operation=\"lookup\",result=\"{result}\"}}"))
                .await
        };
        for (talk, home) in talks {
            cluster_once(gate, "a quick Redis", |cluster| cluster["quick"] == true).await;
            let answered = lookups("ok").await;
            let mut reply = gate.send(&talk.ask()).await;
            reply.whole().await;
            if lookups("ok").await > answered {
                assert_eq!((reply.node(), reply.affinity()), (home.as_str(), "session"));
                return;
            }
        }
        panic!("{} times Redis did not answer in time", talks.len());
    }

    /// The tenant `a` asks on by all replicas in turn, until it was let in so often; gives how often it was. A replica that
    /// Redis did not answer in time decides by its share, and may refuse what there is room for: but no place is lost.
    pub async fn fill(&self, let_in: usize, limit: usize) -> usize {
        let let_in = AtomicUsize::new(let_in);
        until("the whole limit to be let in", async || {
            for gate in &self.gates {
                if let_in.load(Ordering::Relaxed) >= limit {
                    return Some(let_in.load(Ordering::Relaxed));
                }
                let mut reply = gate.send(&by("a", talk("one more").ask())).await;
                reply.whole().await;
                let_in.fetch_add(usize::from(reply.status == 200), Ordering::Relaxed);
            }
            None
        })
        .await
    }

    /// Calls to Redis of all replicas with that result.
    pub async fn operations(&self, operation: &str, result: &str) -> usize {
        let name = format!("warmgate_cluster_operations_total{{operation=\"{operation}\",result=\"{result}\"}}");
        let mut all = 0.0;
        for gate in &self.gates {
            all += gate.counter(&name).await;
        }
        all as usize
    }

    /// How many turns each of the others has heard of.
    async fn heard(&self, but: usize) -> Vec<f64> {
        let mut heard = Vec::new();
        for (n, gate) in self.gates.iter().enumerate() {
            if n != but {
                heard.push(gate.counter("warmgate_cluster_turns_total{direction=\"heard\"}").await);
            }
        }
        heard
    }
}

/// What a gate says of its cluster, once it is as wanted.
pub async fn cluster_once(gate: &Gate, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    until(what, async || {
        let cluster = gate.status().await["cluster"].clone();
        wanted(&cluster).then_some(cluster)
    })
    .await
}

pub fn talk(topic: &str) -> Talk {
    Talk::about(Dialect::OpenAi, topic)
}

#[tokio::test]
async fn turns_by_any_replica_stay_on_the_warm_node() {
    let replicas = Replicas::start(3, 4, "").await;
    for n in 0..6 {
        let mut talk = talk(&format!("topic {n}"));
        let first = replicas.turn(n % 3, &talk).await;
        for turn in 1..4 {
            talk = talk.then(&format!("And {turn}?"));
            let reply = replicas.turn((n + turn) % 3, &talk).await;
            assert_eq!((reply.node(), reply.affinity()), (first.node(), "session"), "talk {n}, turn {turn}");
        }
    }
}

#[tokio::test]
async fn who_was_not_there_asks_redis_and_finds_the_warm_node() {
    let mut replicas = Replicas::start(1, 4, "").await;
    // On a busy machine Redis may not answer within what a request waits: one that is answered shows it.
    const TALKS: usize = 20;
    let talks = replicas.talks(TALKS).await;
    let are_stored = async || replicas.redis.command(&["DBSIZE"]).await == redis::Value::Int(TALKS as i64);
    until("all pins to be stored", async || are_stored().await.then_some(())).await;
    replicas.a_late_one_finds(&talks).await;
}

#[tokio::test]
async fn a_killed_replica_s_clients_find_their_warm_node_through_another() {
    let mut replicas = Replicas::start(2, 4, "").await;
    let talks = replicas.talks(6).await;
    let mut killed = replicas.gates.remove(0);
    killed.signal(rustix::process::Signal::KILL);
    killed.ended().await;
    for (talk, home) in &talks {
        let mut reply = replicas.gates[0].send(&talk.ask()).await;
        reply.whole().await;
        assert_eq!((reply.status, reply.node(), reply.affinity()), (200, home.as_str(), "session"));
    }
    cluster_once(&replicas.gates[0], "the silent replica to be forgotten", |cluster| cluster["other_replicas"] == 0)
        .await;
}

#[tokio::test]
async fn a_limit_of_requests_is_one_for_all_replicas() {
    const RPM: usize = 60;
    let yaml = tenants(&[("a", "limits: {rpm: 60}")]);
    let replicas = Arc::new(Replicas::start(3, 2, &yaml).await);
    let admitted = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for client in 0..15 {
        let (replicas, admitted) = (replicas.clone(), admitted.clone());
        clients.spawn(async move {
            for n in 0..8 {
                let request = by("a", talk(&format!("{client} {n}")).ask());
                let mut reply = replicas.gates[(client + n) % 3].send(&request).await;
                reply.whole().await;
                match reply.status {
                    200 => drop(admitted.fetch_add(1, Ordering::Relaxed)),
                    429 => assert!(reply.header("retry-after").is_some()),
                    other => panic!("{other}"),
                }
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.expect("a client");
    }
    let admitted = replicas.fill(admitted.load(Ordering::Relaxed), RPM).await;
    let alone = replicas.operations("take", "slow").await;
    assert!(admitted <= RPM + alone, "{admitted} admitted, {alone} of all decided alone");
    // However it was decided: what was let in is booked once, and what was refused is not.
    account_once(&replicas, &account(&replicas).await, admitted).await;
}

#[tokio::test]
async fn concurrent_requests_and_tokens_are_limited_over_all_replicas() {
    let yaml = tenants(&[("a", "limits: {concurrent: 2}"), ("b", "limits: {tpm: 1000}")]);
    let (replicas, hold) = (Replicas::start(2, 1, &yaml).await, Hold::new());
    let stream = || {
        Dialect::OpenAi
            .stream()
            .chunk(Dialect::OpenAi.frame("a"))
            .hold(&hold)
            .chunk(Dialect::OpenAi.last_frame())
            .finish()
    };
    replicas.nodes[0].next(stream());
    replicas.nodes[0].next(stream());
    let mut running = Vec::new();
    for (n, gate) in replicas.gates.iter().enumerate() {
        let mut reply = gate.send(&by("a", talk(&format!("held {n}")).ask())).await;
        reply.expect_piece().await;
        running.push(reply);
    }
    for gate in &replicas.gates {
        // What is not decided by Redis is by what was last heard.
        let refused = within("the third to be refused", async {
            loop {
                let mut reply = gate.send(&by("a", talk("third").ask())).await;
                reply.whole().await;
                if reply.status == 429 {
                    return reply;
                }
            }
        });
        assert!(refused.await.header("retry-after").is_some());
    }
    hold.open();
    for mut reply in running {
        reply.whole().await;
    }
    within("a place to come free", async {
        loop {
            let mut reply = replicas.gates[0].send(&by("a", talk("fourth").ask())).await;
            reply.whole().await;
            if reply.status == 200 {
                return;
            }
        }
    })
    .await;

    let big = json!({"stream": false, "max_tokens": 900});
    let usage =
        json!({"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": 50, "completion_tokens": 850}});
    replicas.nodes[0].next(Script::json(200, &usage));
    let mut reply = replicas.gates[0].send(&by("b", talk("tokens").ask_with(big.clone()))).await;
    reply.whole().await;
    assert_eq!(reply.status, 200);
    within("the other replica to know", async {
        loop {
            let mut reply = replicas.gates[1].send(&by("b", talk("tokens").ask_with(big.clone()))).await;
            reply.whole().await;
            if reply.status == 429 {
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn depth_is_that_of_the_whole_fleet() {
    let (replicas, hold) = (Replicas::start(2, 1, "").await, Hold::new());
    let held = Dialect::OpenAi
        .stream()
        .chunk(Dialect::OpenAi.frame("a"))
        .hold(&hold)
        .chunk(Dialect::OpenAi.last_frame())
        .finish();
    replicas.nodes[0].next(held);
    let mut running = replicas.gates[0].send(&talk("moss").ask()).await;
    running.expect_piece().await;
    replicas.gates[1].node_once("n1", "a request of the other replica's", |node| node["elsewhere_requests"] == 1).await;

    let mut reply = replicas.gates[1].send(&talk("fern").ask()).await;
    reply.whole().await;
    let receipt = replicas.gates[1].receipt(reply.request_id()).await;
    assert_eq!(receipt["decision"]["candidates"][0]["depth"], 0.25, "{receipt:#}");

    hold.open();
    running.whole().await;
    replicas.gates[1].node_once("n1", "that it has ended", |node| node["elsewhere_requests"] == 0).await;
}
