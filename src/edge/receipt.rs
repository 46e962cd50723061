//! Why a request went where it went, kept for those who ask.
//!
//! A ring of the latest requests, bounded in number and in candidates each. It holds names, numbers
//! and reasons, never a prompt or a key.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::misfit;
use crate::routing::fleet::UpstreamId;
use crate::routing::select::{Decision, Row};
use crate::routing::signal::Signals;

/// Receipts kept; about 6 KB each at most, since names, paths and candidates are bounded.
pub const MAX_RECEIPTS: usize = 2048;

/// Candidates kept of one decision, best first.
const MAX_CANDIDATES: usize = 16;

/// One request's course.
#[derive(Clone, Debug, Default)]
pub struct Receipt {
    pub request_id: String,
    pub wall_ms: u64,
    pub path: String,
    /// Whose request it was, by name; `None` while there are no tenants.
    pub tenant: Option<String>,
    pub model: String,
    pub stream: bool,
    pub prompt_tokens_estimated: u32,
    /// The conversation's key, in hexadecimal.
    pub session: Option<String>,
    pub attempts: Vec<Attempt>,
    /// How often its stream was cut and went on at another node.
    pub resumed: u32,
    /// The nodes that a managing call was for.
    pub nodes: Vec<String>,
    pub affinity: &'static str,
    pub status: u16,
    pub outcome: &'static str,
    pub intake_ms: f64,
    /// Waited here for nodes, over all attempts.
    pub queue_ms: f64,
    /// How many turns there were until its own when it first lined up; `None`: it never had to.
    pub queue_position: Option<usize>,
    pub first_byte_ms: Option<f64>,
    pub total_ms: f64,
    pub prompt_tokens: Option<u32>,
    pub cached_tokens: Option<u32>,
    pub output_tokens: Option<u32>,
    /// What its tenant was charged.
    pub charged_tokens: Option<u64>,
    /// Nobody told all of it.
    pub charge_is_estimated: bool,
    /// Messages with output in them that had come when the client left; `None`: it stayed.
    pub partial_events: Option<u32>,
}

/// One attempt at an upstream.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub row: Row,
    /// The best candidates and the first of the excluded.
    pub decision: Decision,
    pub candidates_in_all: usize,
    pub excluded_in_all: usize,
    /// Why it failed; `None`: it did not, or is still running.
    pub failure: Option<&'static str>,
}

impl Attempt {
    pub fn new(row: Row, mut decision: Decision) -> Attempt {
        let (candidates_in_all, excluded_in_all) = (decision.rows.len(), decision.excluded.len());
        decision.rows.truncate(MAX_CANDIDATES);
        decision.excluded.truncate(MAX_CANDIDATES);
        Attempt { row, decision, candidates_in_all, excluded_in_all, failure: None }
    }
}

#[derive(Default)]
pub struct Receipts {
    ring: Mutex<VecDeque<Receipt>>,
}

impl Receipts {
    pub fn add(&self, receipt: Receipt) {
        let mut ring = self.ring.lock();
        if ring.len() >= MAX_RECEIPTS {
            ring.pop_front();
        }
        ring.push_back(receipt);
    }

    pub fn find(&self, request_id: &str) -> Option<Receipt> {
        self.ring.lock().iter().rev().find(|receipt| receipt.request_id == request_id).cloned()
    }

    /// The latest `most`, newest first.
    pub fn latest(&self, most: usize) -> Vec<Receipt> {
        self.ring.lock().iter().rev().take(most).cloned().collect()
    }
}

impl Receipt {
    /// The nodes of a managing call, in one.
    pub fn managed_nodes(&self) -> Option<String> {
        (!self.nodes.is_empty()).then(|| self.nodes.join(","))
    }

    /// For people and programs; `name` tells the name of a node.
    pub fn to_json(&self, name: &dyn Fn(UpstreamId) -> String) -> Value {
        let last = self.attempts.last();
        json!({
            "request_id": self.request_id,
            "wall_ms": self.wall_ms,
            "path": self.path,
            "tenant": self.tenant,
            "model": self.model,
            "stream": self.stream,
            "session": self.session,
            "node": last.map(|attempt| name(attempt.row.upstream)).or(self.managed_nodes()),
            "score": last.map(|attempt| attempt.row.score),
            "affinity": self.affinity,
            "option_guard": misfit::json(last.and_then(|attempt| attempt.row.misfit.as_deref())),
            "status": self.status,
            "outcome": self.outcome,
            "decision": last.map(|attempt| decision_json(attempt, name)),
            "attempts": self.attempts.iter().map(|attempt| json!({
                "node": name(attempt.row.upstream),
                "score": attempt.row.score,
                "depth": attempt.row.depth,
                "option_guard": misfit::json(attempt.row.misfit.as_deref()),
                "failure": attempt.failure,
            })).collect::<Vec<_>>(),
            "resumed": self.resumed,
            "times_ms": {
                "intake": self.intake_ms,
                "queue": self.queue_ms,
                "first_byte": self.first_byte_ms,
                "total": self.total_ms,
            },
            "queue_position": self.queue_position,
            "tokens": {
                "prompt_estimated": self.prompt_tokens_estimated,
                "prompt": self.prompt_tokens,
                "cached": self.cached_tokens,
                "output": self.output_tokens,
                "charged": self.charged_tokens,
                "charge_is_estimated": self.charge_is_estimated,
            },
            "partial": self.partial_events.is_some(),
            "partial_events": self.partial_events,
        })
    }
}

fn decision_json(attempt: &Attempt, name: &dyn Fn(UpstreamId) -> String) -> Value {
    let decision = &attempt.decision;
    let candidates = decision.rows.iter().map(|row| {
        let signals: serde_json::Map<String, Value> =
            Signals::NAMES.iter().zip(row.points).map(|(name, points)| (name.to_string(), points.into())).collect();
        json!({
            "node": name(row.upstream),
            "score": row.score,
            "depth": row.depth,
            "covered_tokens": row.covered_tokens,
            "signals": signals,
        })
    });
    let excluded = decision.excluded.iter();
    json!({
        "candidates": candidates.collect::<Vec<_>>(),
        "candidates_in_all": attempt.candidates_in_all,
        "excluded": excluded.map(|(id, why)| json!({"node": name(*id), "reason": why.name()})).collect::<Vec<_>>(),
        "excluded_in_all": attempt.excluded_in_all,
        "pin": decision.pin.map(name),
    })
}
