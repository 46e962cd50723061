//! Scoring and booking happen in one breath: requests that come at once do not choose alike.

use tokio::task::JoinSet;

use crate::gate::{Gate, Settings};
use crate::rig::{Single, node};
use crate::talk::{Dialect, Talk};
use crate::upstream::{Hold, Script, Upstream};

const CLIENTS: usize = 64;

#[tokio::test]
async fn bal_03_64_requests_at_once_split_evenly() {
    for round in 0..3 {
        let rig = Rig::new().await;
        let mut clients = JoinSet::new();
        for n in 0..CLIENTS {
            let conn = rig.gate.connect().await;
            let request = stranger(n).ask();
            clients.spawn(async move { conn.exchange(&request).await.whole().await });
        }
        let n1 = rig.nodes[0].request(CLIENTS / 2 - 1);
        let n2 = rig.nodes[1].request(CLIENTS / 2 - 1);
        tokio::join!(n1, n2);

        assert_eq!(rig.counts(), [CLIENTS / 2; 2], "round {round}");
        rig.hold.open();
        while let Some(client) = clients.join_next().await {
            client.expect("an answered client");
        }
        rig.gate.idle().await;
    }
}

#[tokio::test]
async fn bal_03_one_after_the_other_they_alternate() {
    let rig = Rig::new().await;
    let mut waiting = Vec::new();
    for n in 0..CLIENTS {
        let mut conn = rig.gate.connect().await;
        conn.send(&stranger(n).ask()).await;
        waiting.push(conn);
        rig.arrived(n + 1).await;

        let [a, b] = rig.counts();
        assert!(a.abs_diff(b) <= 1, "{a} and {b} after {} requests", n + 1);
    }
}

#[tokio::test]
async fn bal_04_leases_end_with_their_requests() {
    let single = Single::new().await;
    let hold = Hold::new();
    single.node.always(Script::held(&hold).then_usual());
    let mut conn = single.gate.connect().await;
    let request = stranger(0).ask();
    conn.send(&request).await;
    single.node.request(0).await;

    assert_eq!(single.gate.in_flight().await, 1, "while it runs");
    hold.open();
    conn.reply(&request).await.whole().await;
    single.gate.idle().await;
}

/// Two nodes alike that answer nothing until the hold opens.
struct Rig {
    gate: Gate,
    nodes: [Upstream; 2],
    hold: Hold,
}

impl Rig {
    async fn new() -> Rig {
        let hold = Hold::new();
        let nodes = [node("n1").await, node("n2").await];
        for node in &nodes {
            node.always(Script::held(&hold).then_usual());
        }
        // Slots for all: nothing waits in Warmgate, and one request more is a visible difference.
        let settings = Settings::over(&nodes.each_ref()).slots(CLIENTS as u32 / 2);
        Rig { gate: Gate::start(&settings).await, nodes, hold }
    }

    fn counts(&self) -> [usize; 2] {
        self.nodes.each_ref().map(Upstream::count)
    }

    /// Returns when the nodes have received so many requests between them.
    async fn arrived(&self, total: usize) {
        let [a, b] = self.counts();
        if a + b < total {
            tokio::select! {
                _ = self.nodes[0].request(a) => {}
                _ = self.nodes[1].request(b) => {}
            }
        }
    }
}

/// A conversation that shares nothing with the others.
fn stranger(n: usize) -> Talk {
    Talk::about(Dialect::Ollama, &format!("{n} is a number and"))
}
