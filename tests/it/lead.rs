//! How far warmth outweighs load: 20, 7.3 and -2, through the running server.
//!
//! Two nodes alike, one slot each, the model resident on both, a session pinned to one of them. Its
//! lead is read as users read it, from `X-Fleet-Score`: the score of the session's turn at home
//! less the score that a fresh conversation gets on the other node at the same moment.

use tokio::task::JoinHandle;

use crate::client::{Reply, Request};
use crate::gate::{Gate, Settings};
use crate::rig::{finished, node};
use crate::talk::{Dialect, Talk};
use crate::upstream::{Hold, Script, Upstream};

/// Scores in headers have one decimal; a lead is the difference of two.
const ROUNDING: f64 = 0.11;

#[tokio::test]
async fn the_pinned_node_leads_by_20_then_by_7_3_then_trails_by_2() {
    let mut rig = Rig::new().await;

    let elsewhere_at_0 = rig.fresh_elsewhere().await;
    let first = rig.held_turn_at_home().await;
    let elsewhere_at_1 = rig.fresh_elsewhere().await;
    let second = rig.held_turn_at_home().await;
    let elsewhere_at_2 = rig.fresh_elsewhere().await;
    let third = rig.turn_away().await;
    rig.hold.open();
    let first = first.await.expect("the first held turn");
    let second = second.await.expect("the second held turn");

    assert_near(20.0, first.score() - elsewhere_at_0, "the lead at depth 0");
    assert_near(7.3, second.score() - elsewhere_at_1, "the lead at depth 1");
    assert_near(-2.0, rig.lead_by_receipt(&third).await, "the lead at depth 2");
    assert_near(elsewhere_at_2, third.score(), "the score away from home");
    assert_eq!(first.affinity(), "session");
    assert_eq!(second.affinity(), "session");
    assert_eq!(third.affinity(), "moved", "it had a pin and went elsewhere");
}

struct Rig {
    gate: Gate,
    home: Upstream,
    away: Upstream,
    talk: Talk,
    hold: Hold,
    strangers: u32,
    asked_at_home: usize,
}

impl Rig {
    /// Both nodes idle, the session pinned to `home`.
    async fn new() -> Rig {
        let [n1, n2] = [node("n1").await, node("n2").await];
        let gate = Gate::start(&Settings::over(&[&n1, &n2]).slots(1)).await;
        let talk = Talk::about(Dialect::Ollama, "moss");
        let opening = finished(&gate, &talk).await;
        let at_first = opening.node() == "n1";
        let (home, away) = if at_first { (n1, n2) } else { (n2, n1) };
        Rig { gate, home, away, talk, hold: Hold::new(), strangers: 0, asked_at_home: 1 }
    }

    /// Sends the session's next turn and waits until it has reached the pinned node: that it goes
    /// there is the choice itself. It is answered when the hold opens.
    async fn held_turn_at_home(&mut self) -> JoinHandle<Reply> {
        self.home.next(Script::held(&self.hold).then_usual());
        let conn = self.gate.connect().await;
        let request = self.next_turn();
        let turn = tokio::spawn(async move {
            let mut reply = conn.exchange(&request).await;
            reply.whole().await;
            reply
        });
        self.home.request(self.asked_at_home).await;
        self.asked_at_home += 1;
        turn
    }

    /// The session's next turn, which must not go to the pinned node.
    async fn turn_away(&mut self) -> Reply {
        let mut reply = self.gate.send(&self.next_turn()).await;
        reply.whole().await;
        assert_eq!(reply.node(), self.away.name(), "the choice at depth 2");
        reply
    }

    /// The score of a conversation never seen before on the other node. While both are alike a tie
    /// may send one to the pinned node; then another is tried.
    async fn fresh_elsewhere(&mut self) -> f64 {
        for _ in 0..64 {
            self.strangers += 1;
            let topic = format!("{} is the number of", self.strangers);
            let talk = Talk::about(Dialect::Ollama, &topic);
            let reply = finished(&self.gate, &talk).await;
            if reply.node() == self.away.name() {
                return reply.score();
            }
            self.asked_at_home += 1;
        }
        panic!("64 fresh conversations, none on {}", self.away.name());
    }

    /// The pinned node's score less the other's, as the receipt has them.
    async fn lead_by_receipt(&self, reply: &Reply) -> f64 {
        let receipt = self.gate.receipt(reply.request_id()).await;
        let candidates = receipt["decision"]["candidates"].as_array();
        let score_of = |node: &Upstream| {
            candidates
                .into_iter()
                .flatten()
                .find(|c| c["node"] == node.name())
                .and_then(|c| c["score"].as_f64())
                .unwrap_or_else(|| panic!("no score of {} in {receipt:#}", node.name()))
        };
        score_of(&self.home) - score_of(&self.away)
    }

    fn next_turn(&self) -> Request {
        self.talk.clone().then("And where?").ask()
    }
}

fn assert_near(expected: f64, got: f64, what: &str) {
    let near = (got - expected).abs() < ROUNDING;
    assert!(near, "{what}: expected {expected}, got {got:.2}");
}
