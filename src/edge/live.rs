//! Requests that are under way, for the dashboard: what each waits for now.
//!
//! An entry lives as long as its exchange. Nothing depends on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::ingress::Ingress;
use crate::routing::fleet::UpstreamId;
use crate::routing::moment::Moment;
use crate::routing::select::Query;
use crate::routing::session;

/// Requests told apart; what comes while there are so many is counted only.
const REQUESTS_MAX: usize = 4096;

/// Of these, shown at most, the oldest first.
const SHOWN_MAX: usize = 60;

#[derive(Default)]
pub struct Live(Mutex<Table>);

#[derive(Default)]
struct Table {
    requests: BTreeMap<u64, Request>,
    next: u64,
}

struct Request {
    request_id: String,
    query: Arc<Query>,
    since: Moment,
    phase: Phase,
    affinity: &'static str,
    attempts: usize,
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// For a node.
    Queued,
    /// For that node's first byte.
    Sent(UpstreamId),
    /// For the rest of its answer.
    Answering { at: UpstreamId, first_byte_ms: f64 },
}

/// A request's place among them.
pub struct Entry {
    live: Arc<Live>,
    id: u64,
}

impl Live {
    pub fn enter(self: &Arc<Self>, request_id: &str, query: &Arc<Query>, since: Moment) -> Entry {
        let mut table = self.0.lock();
        let id = table.next;
        table.next += 1;
        if table.requests.len() < REQUESTS_MAX {
            let (request_id, query) = (request_id.to_string(), query.clone());
            let request = Request { request_id, query, since, phase: Phase::Queued, affinity: "", attempts: 0 };
            table.requests.insert(id, request);
        }
        Entry { live: self.clone(), id }
    }

    pub fn to_json(&self, ingress: &Ingress, now: Moment) -> Value {
        let table = self.0.lock();
        table.requests.values().take(SHOWN_MAX).map(|request| request.to_json(ingress, now)).collect()
    }
}

impl Entry {
    /// It is sent to that node.
    pub fn placed(&self, at: UpstreamId, affinity: &'static str) {
        self.change(|request| {
            request.phase = Phase::Sent(at);
            request.affinity = affinity;
            request.attempts += 1;
        });
    }

    /// The node did not serve it, and it looks for another.
    pub fn unplaced(&self) {
        self.change(|request| request.phase = Phase::Queued);
    }

    pub fn first_byte(&self, first_byte_ms: f64) {
        self.change(|request| {
            if let Phase::Sent(at) = request.phase {
                request.phase = Phase::Answering { at, first_byte_ms };
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut Request)) {
        if let Some(request) = self.live.0.lock().requests.get_mut(&self.id) {
            change(request);
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.live.0.lock().requests.remove(&self.id);
    }
}

impl Request {
    fn to_json(&self, ingress: &Ingress, now: Moment) -> Value {
        let ask = &self.query.ask;
        let key = session::conversation(ask).filter(|_| ask.endpoint.is_conversation());
        let (phase, at, first_byte_ms) = match self.phase {
            Phase::Queued => ("queued", None, None),
            Phase::Sent(at) => ("waiting for the first byte", Some(at), None),
            Phase::Answering { at, first_byte_ms } => ("answering", Some(at), Some(first_byte_ms)),
        };
        json!({
            "request_id": self.request_id,
            "path": ask.endpoint.path(),
            "model": ask.model,
            "session": key.map(|key| format!("{key:016x}")),
            "prompt_tokens_estimated": ask.prompt_tokens,
            "phase": phase,
            "node": at.map(|at| ingress.node_name(at)),
            "affinity": self.affinity,
            "attempts": self.attempts,
            "running_ms": now.since(self.since).as_secs_f64() * 1000.0,
            "first_byte_ms": first_byte_ms,
        })
    }
}
