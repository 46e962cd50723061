//! What this product exists for: a conversation comes back to the node that is warm for it.

use std::collections::HashMap;

use crate::gate::{Gate, Settings};
use crate::rig::{finished, node};
use crate::talk::{Dialect, Talk};
use crate::upstream::Upstream;

#[tokio::test]
async fn two_turns_stay_on_one_node() {
    for dialect in Dialect::BOTH {
        let nodes = three_nodes().await;
        let gate = Gate::start(&Settings::over(&nodes.each_ref())).await;
        let talk = Talk::about(dialect, "moss");

        let first = finished(&gate, &talk).await;
        let second = finished(&gate, &talk.then("And where?")).await;

        assert_eq!(first.affinity(), "new", "the first turn, {dialect:?}");
        assert_eq!(second.affinity(), "session", "the second, {dialect:?}");
        assert_eq!(second.node(), first.node(), "the node, {dialect:?}");
    }
}

#[tokio::test]
async fn twenty_conversations_use_all_nodes_and_each_returns_to_its_own() {
    let nodes = three_nodes().await;
    let gate = Gate::start(&Settings::over(&nodes.each_ref())).await;
    let talks: Vec<Talk> = (0..20).map(|n| Talk::about(Dialect::Ollama, &format!("topic {n}"))).collect();

    let mut homes = Vec::new();
    for talk in &talks {
        homes.push(node_of(&gate, talk).await);
    }
    let mut strays = Vec::new();
    for (talk, home) in talks.into_iter().zip(&homes) {
        let node = node_of(&gate, &talk.then("Go on.")).await;
        if node != *home {
            strays.push(format!("{home} -> {node}"));
        }
    }

    let mut share: HashMap<&str, u32> = HashMap::new();
    for home in &homes {
        *share.entry(home).or_default() += 1;
    }
    assert_eq!(share.len(), 3, "nodes used: {share:?}");
    assert!(strays.is_empty(), "second turns elsewhere: {strays:?}");
}

#[tokio::test]
async fn a_conversation_whose_node_was_killed_goes_on_elsewhere_and_stays_there() {
    for dialect in Dialect::BOTH {
        let mut nodes = three_nodes().await;
        let gate = Gate::start(&Settings::over(&nodes.each_ref())).await;
        let talk = Talk::about(dialect, "moss");
        let home = node_of(&gate, &talk).await;

        let at = nodes.iter().position(|n| n.name() == home);
        nodes[at.expect("a known node")].kill().await;
        let talk = talk.then("And where?");
        let second = finished(&gate, &talk).await;
        let third = finished(&gate, &talk.then("Since when?")).await;

        assert_eq!(second.status, 200, "{dialect:?}: the turn after the kill");
        assert_eq!(second.affinity(), "moved", "{dialect:?}");
        assert_ne!(second.node(), home, "{dialect:?}: the new node");
        assert_eq!(third.affinity(), "session", "{dialect:?}");
        assert_eq!(third.node(), second.node(), "{dialect:?}: the new home");
    }
}

#[tokio::test]
async fn a_receipt_says_why() {
    let nodes = three_nodes().await;
    let gate = Gate::start(&Settings::over(&nodes.each_ref())).await;
    let reply = finished(&gate, &Talk::about(Dialect::Ollama, "moss")).await;

    let receipt = gate.receipt(reply.request_id()).await;

    assert_eq!(receipt["node"], reply.node(), "{receipt:#}");
    assert_eq!(receipt["affinity"], "new", "{receipt:#}");
    let candidates = receipt["decision"]["candidates"].as_array();
    let candidates = candidates.unwrap_or_else(|| panic!("no candidates: {receipt:#}"));
    assert_eq!(candidates.len(), 3, "{receipt:#}");
    for candidate in candidates {
        let signals = candidate["signals"].as_object().expect("signals by name");
        let sum: f64 = signals.values().filter_map(|v| v.as_f64()).sum();
        let score = candidate["score"].as_f64().expect("a score");
        assert_eq!(signals.len(), 8, "{candidate:#}");
        assert!((sum - score).abs() < 0.01, "L4: {sum} is not {score}");
    }
}

async fn three_nodes() -> [Upstream; 3] {
    [node("n1").await, node("n2").await, node("n3").await]
}

async fn node_of(gate: &Gate, talk: &Talk) -> String {
    finished(gate, talk).await.node().to_owned()
}
