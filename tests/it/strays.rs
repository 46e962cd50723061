//! Replicas that hear nothing of each other find each other's conversations all the same.

use crate::gate::{Gate, Settings};
use crate::rig::{finished, node};
use crate::talk::{Dialect, Talk};
use crate::upstream::Upstream;

/// Two gates over four nodes, and no Redis.
struct Apart {
    gates: [Gate; 2],
    _nodes: Vec<Upstream>,
}

impl Apart {
    async fn start() -> Apart {
        let mut nodes = Vec::new();
        for n in 1..=4 {
            nodes.push(node(&format!("n{n}")).await);
        }
        let settings = Settings::over(&nodes.iter().collect::<Vec<_>>()).slots(4);
        let settings = settings.more("resilience: {slow_start: 0s}");
        Apart { gates: [Gate::start(&settings).await, Gate::start(&settings).await], _nodes: nodes }
    }

    /// The nodes of so many turns that go by one gate and the other, and what was said of their warmth.
    async fn converse(&self, number: usize, turns: usize) -> Vec<(String, String)> {
        let mut talk = Talk::about(Dialect::OpenAi, &format!("topic {number}"));
        let mut found = Vec::new();
        for turn in 0..turns {
            let reply = finished(&self.gates[(number + turn) % 2], &talk).await;
            assert_eq!(reply.status, 200);
            found.push((reply.node().to_owned(), reply.affinity().to_owned()));
            talk = talk.then("And where?");
        }
        found
    }
}

#[tokio::test]
async fn replicas_without_redis_find_the_nodes_of_each_other_s_conversations() {
    let apart = Apart::start().await;
    // Until each has seen that conversations come to it that others began.
    for number in 0..10 {
        apart.converse(number, 2).await;
    }
    let mut nodes = std::collections::BTreeSet::new();
    for number in 100..116 {
        let found = apart.converse(number, 4).await;
        assert!(found.iter().all(|(node, _)| *node == found[0].0), "{number}: {found:?}");
        let affinities: Vec<&str> = found.iter().map(|(_, affinity)| affinity.as_str()).collect();
        assert_eq!(affinities, ["new", "home", "session", "session"], "{number}");
        nodes.insert(found[0].0.clone());
    }
    assert!(nodes.len() > 1, "and are spread: {nodes:?}");
    let shown = apart.gates[0].counter("warmgate_affinity_total{affinity=\"home\"}").await;
    assert!(shown >= 8.0, "{shown}");
}

#[tokio::test]
async fn one_that_sees_every_turn_has_no_strays() {
    let apart = Apart::start().await;
    let [gate, _] = &apart.gates;
    for number in 0..8 {
        let mut talk = Talk::about(Dialect::OpenAi, &format!("topic {number}"));
        let first = finished(gate, &talk).await;
        for _ in 0..2 {
            talk = talk.then("And where?");
            let next = finished(gate, &talk).await;
            assert_eq!((next.node(), next.affinity()), (first.node(), "session"));
        }
    }
    assert_eq!(gate.counter("warmgate_affinity_total{affinity=\"home\"}").await, 0.0);
}
