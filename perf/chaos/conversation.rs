//! The conversations: so many at a time, a new one as soon as one is over, a row for every request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::Arguments;
use crate::chat::{self, Dialect, End, Outcome};
use crate::dice::Dice;
use crate::engine_process::MODEL;

const OPENING_CHARS: (f64, f64) = (800.0, 4_000.0);
const TURN_CHARS: (f64, f64) = (100.0, 800.0);
const TURNS: (f64, f64) = (3.0, 7.0);
const PAUSE_S: (f64, f64) = (0.2, 1.8);

/// A client that hears nothing for so long, or no end, gives up: far beyond every target.
const REQUEST_MAX: Duration = Duration::from_secs(240);

/// Waits beyond are shown as they happen.
const LONG_WAIT: Duration = Duration::from_secs(10);

/// One request.
#[derive(Clone, Debug)]
pub struct Row {
    pub conversation: usize,
    /// From 0, the opening.
    pub turn: usize,
    /// The turn was cut before, and the client asks once more.
    pub is_again: bool,
    pub dialect: Dialect,
    /// Since the run began.
    pub at: Duration,
    pub outcome: Outcome,
}

/// All clients together.
pub struct Crowd {
    gate: SocketAddr,
    began: Instant,
    seed: u64,
    size: usize,
    next: AtomicUsize,
    is_over: AtomicBool,
    waiting: AtomicUsize,
    rows: Mutex<Vec<Row>>,
}

/// Counts while the run goes on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub requests: usize,
    pub failed: usize,
    pub cut: usize,
    /// Under way now.
    pub open: usize,
}

impl Row {
    /// It got a refusal, or nothing.
    pub fn failed(&self) -> bool {
        matches!(self.outcome.end, End::Refused | End::NoAnswer)
    }

    pub fn was_cut(&self) -> bool {
        matches!(self.outcome.end, End::Marked | End::Broken | End::LooksWhole)
    }

    /// Worth a line: all but whole answers in time, and cuts that are told as such.
    fn is_strange(&self) -> bool {
        self.failed() || self.was_cut() && self.outcome.end != End::Marked || self.waited() > LONG_WAIT
    }

    /// To the first token, to the refusal, or for nothing.
    pub fn waited(&self) -> Duration {
        self.outcome.first_token.unwrap_or(self.outcome.total)
    }
}

impl Crowd {
    pub fn new(arguments: &Arguments, gate: SocketAddr, began: Instant) -> Crowd {
        Crowd {
            gate,
            began,
            seed: arguments.seed,
            size: arguments.conversations,
            next: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            rows: Mutex::default(),
        }
    }

    /// Holds conversations until `no_more`, and ends those that are under way with their turn.
    pub async fn talk(self: Arc<Self>) {
        let mut clients = JoinSet::new();
        for _ in 0..self.size {
            let crowd = self.clone();
            clients.spawn(async move {
                while !crowd.is_over.load(Ordering::Relaxed) {
                    crowd.converse().await;
                }
            });
        }
        clients.join_all().await;
    }

    pub fn no_more(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub fn rows(&self) -> Vec<Row> {
        let mut rows = self.rows.lock().clone();
        rows.sort_by_key(|row| row.at);
        rows
    }

    pub fn tally(&self) -> Tally {
        let rows = self.rows.lock();
        let count = |is_it: fn(&Row) -> bool| rows.iter().filter(|row| is_it(row)).count();
        let open = self.waiting.load(Ordering::Relaxed);
        Tally { requests: rows.len(), failed: count(Row::failed), cut: count(Row::was_cut), open }
    }

    async fn converse(&self) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut dice = Dice::new(self.seed, number as u64);
        let dialect = if number.is_multiple_of(2) { Dialect::Ollama } else { Dialect::OpenAi };
        let turns = dice.between(TURNS.0, TURNS.1) as usize;
        let mut messages: Vec<Value> = Vec::new();
        for turn in 0..turns {
            tokio::time::sleep(Duration::from_secs_f64(dice.between(PAUSE_S.0, PAUSE_S.1))).await;
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let (least, most) = if turn == 0 { OPENING_CHARS } else { TURN_CHARS };
            let chars = dice.between(least, most) as usize;
            messages.push(json!({"role": "user", "content": dice.text(chars)}));
            let mut outcome = self.ask(number, turn, false, dialect, &messages).await;
            if outcome.end != End::Whole {
                // As people do, once.
                outcome = self.ask(number, turn, true, dialect, &messages).await;
            }
            messages.push(json!({"role": "assistant", "content": outcome.text}));
        }
    }

    async fn ask(
        &self,
        conversation: usize,
        turn: usize,
        is_again: bool,
        dialect: Dialect,
        messages: &[Value],
    ) -> Outcome {
        let at = self.began.elapsed();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let outcome = chat::ask(self.gate, dialect, &dialect.request(MODEL, messages), REQUEST_MAX).await;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        let row = Row { conversation, turn, is_again, dialect, at, outcome: outcome.clone() };
        if row.is_strange() {
            eprintln!(
                "{:>7.1} s  {} {}: {} after {:.1} s, first token {:?}, node {}, attempts {}, queue {} ms: {}",
                at.as_secs_f64(),
                row.dialect.name(),
                row.outcome.request_id,
                row.outcome.end.name(),
                row.outcome.total.as_secs_f64(),
                row.outcome.first_token.map(|time| time.as_millis()),
                row.outcome.node,
                row.outcome.attempts,
                row.outcome.queue_ms,
                row.outcome.message.trim()
            );
        }
        self.rows.lock().push(row);
        outcome
    }
}
