//! The node's own account of what it was asked: a record for each request, and sums.
//!
//! Load runs compare it with what the ingress in front says it did. A request is recorded exactly
//! once, by the drop of its entry, so that no way out of a handler can forget it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;

use super::desk::Census;
use crate::sim::engine::Usage;

/// Records kept; the oldest go. About ten minutes of a heavy load run.
pub const RECORDS_MAX: usize = 20_000;

/// Length of a client's text that enters a record.
const NAME_CHARS_MAX: usize = 128;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Answered to the end.
    Done,
    /// The client went away first.
    Cancelled,
    /// Refused because too many wait.
    Busy,
    /// Refused for another reason: what was asked is wrong or not here.
    Refused,
    /// The node had been told to misbehave.
    Misbehaved,
    /// The node was stopped.
    Stopped,
}

/// One request for a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Record {
    /// The request's `X-Request-Id`.
    pub request_id: Option<String>,
    pub path: &'static str,
    pub model: String,
    /// Since the node was made.
    pub arrival_ms: u64,
    /// The node's other requests when this one arrived.
    pub running: usize,
    pub waiting: usize,
    pub prompt_tokens: u32,
    pub cached_tokens: u32,
    pub output_tokens: u32,
    /// From the arrival.
    pub first_token_ms: Option<u64>,
    pub took_ms: u64,
    pub outcome: Outcome,
}

/// Sums since the node was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    pub requests: u64,
    pub done: u64,
    pub cancelled: u64,
    pub busy: u64,
    pub refused: u64,
    pub misbehaved: u64,
    pub stopped: u64,
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    pub output_tokens: u64,
}

pub struct Journal {
    origin: Instant,
    pages: Mutex<Pages>,
}

#[derive(Default)]
struct Pages {
    records: VecDeque<Record>,
    stats: Stats,
}

/// A request that has not ended.
pub struct Entry {
    journal: Arc<Journal>,
    arrival: Instant,
    record: Record,
}

impl Journal {
    pub fn new() -> Arc<Journal> {
        Arc::new(Journal { origin: Instant::now(), pages: Mutex::default() })
    }

    pub fn open(self: &Arc<Self>, path: &'static str, request_id: Option<&str>) -> Entry {
        Entry {
            journal: self.clone(),
            arrival: Instant::now(),
            record: Record {
                request_id: request_id.map(shorten),
                path,
                model: String::new(),
                arrival_ms: millis(self.origin.elapsed()),
                running: 0,
                waiting: 0,
                prompt_tokens: 0,
                cached_tokens: 0,
                output_tokens: 0,
                first_token_ms: None,
                took_ms: 0,
                outcome: Outcome::Stopped,
            },
        }
    }

    /// The records, oldest first.
    pub fn records(&self) -> Vec<Record> {
        self.pages.lock().records.iter().cloned().collect()
    }

    pub fn stats(&self) -> Stats {
        self.pages.lock().stats
    }
}

impl Entry {
    pub fn asked(&mut self, model: &str, census: Census) {
        self.record.model = shorten(model);
        self.record.running = census.running;
        self.record.waiting = census.waiting;
    }

    pub fn first_token(&mut self) {
        self.record.first_token_ms = Some(millis(self.arrival.elapsed()));
    }

    /// What the request took, as far as it is known yet.
    pub fn used(&mut self, usage: &Usage) {
        self.record.prompt_tokens = usage.prompt_tokens;
        self.record.cached_tokens = usage.cached_tokens;
        self.record.output_tokens = usage.output_tokens;
    }

    pub fn end(mut self, outcome: Outcome) {
        self.record.outcome = outcome;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.record.took_ms = millis(self.arrival.elapsed());
        let mut pages = self.journal.pages.lock();
        pages.stats.add(&self.record);
        if pages.records.len() == RECORDS_MAX {
            pages.records.pop_front();
        }
        pages.records.push_back(self.record.clone());
    }
}

impl Stats {
    fn add(&mut self, record: &Record) {
        self.requests += 1;
        self.prompt_tokens += u64::from(record.prompt_tokens);
        self.cached_tokens += u64::from(record.cached_tokens);
        self.output_tokens += u64::from(record.output_tokens);
        *match record.outcome {
            Outcome::Done => &mut self.done,
            Outcome::Cancelled => &mut self.cancelled,
            Outcome::Busy => &mut self.busy,
            Outcome::Refused => &mut self.refused,
            Outcome::Misbehaved => &mut self.misbehaved,
            Outcome::Stopped => &mut self.stopped,
        } += 1;
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(NAME_CHARS_MAX).collect()
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_recorded_once_and_the_records_are_bounded() {
        let journal = Journal::new();
        for _ in 0..RECORDS_MAX {
            journal.open("/api/chat", Some("id")).end(Outcome::Done);
        }
        drop(journal.open("/api/chat", None));
        let records = journal.records();
        assert_eq!(records.len(), RECORDS_MAX);
        assert_eq!(records.last().unwrap().outcome, Outcome::Stopped);
        let stats = journal.stats();
        assert_eq!((stats.done, stats.stopped), (RECORDS_MAX as u64, 1));
    }
}
