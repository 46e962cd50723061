//! Holding the conversations: one task each, and a row for every turn.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::{Conn, Reply, Request};
use crate::plan::{Plan, Planned};
use crate::rig::{MODEL, Rig, SLOTS};

/// One turn, from three sides: the client's, the receipt's and the node's.
#[derive(Clone, Debug)]
pub struct Row {
    pub conversation: usize,
    /// From 0, the opening.
    pub turn: usize,
    pub node: String,
    pub first_token: Duration,
    /// Whether the receipt has another node ahead of the last turn's, or that one excluded.
    pub better_elsewhere: bool,
    /// Requests on the chosen node when it was chosen, by the receipt.
    pub decided_at_depth: f64,
    /// The same by the node itself, when the request arrived.
    pub arrived_at_depth: usize,
    pub prompt_tokens: u32,
    pub cached_tokens: u32,
    pub output_tokens: u32,
}

/// Holds all conversations of the plan side by side.
pub async fn hold_all(plan: &Plan, rig: &Rig) -> Vec<Row> {
    let mut talks = JoinSet::new();
    for (number, turns) in plan.conversations.iter().enumerate() {
        talks.spawn(Talk::new(number, rig).hold(turns.clone()));
    }
    let seen = talks.join_all().await.into_iter().flatten();
    let mut rows: Vec<Row> = seen.map(|seen| with_record(seen, rig)).collect();
    rows.sort_by_key(|row| (row.conversation, row.turn));
    rows
}

/// A row that still lacks the node's side, and the id to ask for it.
struct Seen {
    row: Row,
    request_id: String,
}

/// Adds what the node counted.
fn with_record(seen: Seen, rig: &Rig) -> Row {
    let Seen { mut row, request_id } = seen;
    let record = rig.record(&row.node, &request_id);
    let record = record.unwrap_or_else(|| panic!("{} has no record of {request_id}", row.node));
    row.arrived_at_depth = record.running + record.waiting;
    row.prompt_tokens = record.prompt_tokens;
    row.cached_tokens = record.cached_tokens;
    row.output_tokens = record.output_tokens;
    row
}

struct Talk {
    number: usize,
    gate: SocketAddr,
    admin: SocketAddr,
    messages: Vec<Value>,
    last_node: Option<Arc<str>>,
}

impl Talk {
    fn new(number: usize, rig: &Rig) -> Talk {
        Talk { number, gate: rig.gate.address, admin: rig.gate.admin, messages: Vec::new(), last_node: None }
    }

    async fn hold(mut self, turns: Vec<Planned>) -> Vec<Seen> {
        let mut seen = Vec::new();
        for (turn, planned) in turns.into_iter().enumerate() {
            // Pauses are what people do between turns; they are part of the load, not a wait.
            tokio::time::sleep(planned.pause).await;
            seen.push(self.turn(turn, &planned.text).await);
        }
        seen
    }

    async fn turn(&mut self, turn: usize, text: &str) -> Seen {
        self.messages.push(json!({"role": "user", "content": text}));
        let body = json!({"model": MODEL, "messages": self.messages, "stream": true});
        let request = Request::post("/api/chat", body.to_string());
        let conn = Conn::open(self.gate).await;

        let started = Instant::now();
        let mut reply = conn.exchange(&request).await;
        assert_eq!(reply.status, 200, "conversation {}, turn {turn}", self.number);
        let mut lines = reply.expect_piece().await.to_vec();
        let first_token = started.elapsed();
        lines.extend_from_slice(&reply.whole().await);

        let answer = json!({"role": "assistant", "content": text_of(&lines)});
        self.messages.push(answer);
        let receipt = self.receipt(&reply).await;
        let row = self.row(turn, first_token, &reply, &receipt);
        self.last_node = Some(reply.node().into());
        Seen { row, request_id: reply.request_id().to_owned() }
    }

    fn row(&self, turn: usize, first_token: Duration, reply: &Reply, receipt: &Value) -> Row {
        let chosen = candidate(receipt, reply.node());
        let chosen = chosen.unwrap_or_else(|| panic!("the node is no candidate: {receipt:#}"));
        let depth = chosen["depth"].as_f64().expect("a depth");
        Row {
            conversation: self.number,
            turn,
            node: reply.node().to_owned(),
            first_token,
            better_elsewhere: self.better_elsewhere(receipt, chosen),
            decided_at_depth: depth * f64::from(SLOTS),
            arrived_at_depth: 0,
            prompt_tokens: 0,
            cached_tokens: 0,
            output_tokens: 0,
        }
    }

    fn better_elsewhere(&self, receipt: &Value, chosen: &Value) -> bool {
        let Some(last) = &self.last_node else {
            return false;
        };
        match candidate(receipt, last) {
            Some(last) => last["score"].as_f64() < chosen["score"].as_f64(),
            None => true,
        }
    }

    async fn receipt(&self, reply: &Reply) -> Value {
        let path = format!("/fleet/receipts/{}", reply.request_id());
        let conn = Conn::open(self.admin).await;
        conn.exchange(&Request::get_as("localhost", &path)).await.json().await
    }
}

fn candidate<'a>(receipt: &'a Value, node: &str) -> Option<&'a Value> {
    let candidates = receipt["decision"]["candidates"].as_array()?;
    candidates.iter().find(|c| c["node"] == node)
}

/// The answer's text, out of its lines.
fn text_of(lines: &[u8]) -> String {
    let lines = lines.split(|b| *b == b'\n').filter(|l| !l.is_empty());
    let pieces = lines.map(|line| {
        let line: Value = serde_json::from_slice(line).expect("a line of JSON");
        assert_eq!(line["error"], Value::Null, "an answer that was cut");
        line["message"]["content"].as_str().unwrap_or_default().to_owned()
    });
    pieces.collect()
}
