//! The streams: so many at a time, a new one as soon as one is over, a row for each.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;

use crate::chat::{self, Dialect, End, Outcome};
use crate::client::Request;
use crate::dice::Dice;
use crate::engine_process::MODEL;

const TEXT_CHARS: usize = 800;
const REQUEST_MAX: Duration = Duration::from_secs(240);

/// Short requests before the run, which fill the receipts and sessions that are kept.
const FILLING: u64 = 4_000;
const FILLERS: u64 = 16;
const FILLING_STREAM: u64 = 1 << 40;

#[derive(Clone, Debug)]
pub struct Row {
    /// Since the streams began.
    pub at: Duration,
    pub dialect: Dialect,
    pub outcome: Outcome,
}

pub struct Crowd {
    gate: SocketAddr,
    seed: u64,
    began: Instant,
    next: AtomicU64,
    is_over: AtomicBool,
    rows: Mutex<Vec<Row>>,
}

impl Row {
    pub fn failed(&self) -> bool {
        matches!(self.outcome.end, End::Refused | End::NoAnswer)
    }

    pub fn was_cut(&self) -> bool {
        matches!(self.outcome.end, End::Marked | End::Broken | End::LooksWhole)
    }
}

impl Crowd {
    pub fn new(gate: SocketAddr, seed: u64) -> Crowd {
        Crowd {
            gate,
            seed,
            began: Instant::now(),
            next: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            rows: Mutex::default(),
        }
    }

    pub fn rows(&self) -> Vec<Row> {
        self.rows.lock().clone()
    }

    pub fn no_more(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub async fn keep_asking(self: Arc<Self>, streams: usize) {
        let mut clients = JoinSet::new();
        for _ in 0..streams {
            let crowd = self.clone();
            clients.spawn(async move {
                while !crowd.is_over.load(Ordering::Relaxed) {
                    crowd.ask().await;
                }
            });
        }
        clients.join_all().await;
    }

    async fn ask(&self) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let dialect = if number.is_multiple_of(2) { Dialect::Ollama } else { Dialect::OpenAi };
        let text = Dice::new(self.seed, number).text(TEXT_CHARS);
        let request = dialect.request(MODEL, &[json!({"role": "user", "content": text})]);
        let at = self.began.elapsed();
        let outcome = chat::ask(self.gate, dialect, &request, REQUEST_MAX).await;
        let row = Row { at, dialect, outcome };
        if row.outcome.end != End::Whole {
            let Outcome { end, node, status, message, .. } = &row.outcome;
            eprintln!("{:>7.1} s  {} from {node}, {status}: {message}", row.at.as_secs_f64(), end.name());
        }
        self.rows.lock().push(row);
    }
}

/// Before the run: what is remembered is filled up to its limits, so that later growth means a leak.
pub async fn fill(gate: SocketAddr, seed: u64) {
    let mut clients = JoinSet::new();
    for client in 0..FILLERS {
        clients.spawn(async move {
            let mut dice = Dice::new(seed, FILLING_STREAM + client);
            for _ in 0..FILLING / FILLERS {
                let message = json!({"role": "user", "content": dice.text(TEXT_CHARS)});
                let body = json!({"model": MODEL, "messages": [message], "options": {"num_predict": 1}});
                let request = Request::post("/api/chat", body.to_string());
                let outcome = chat::ask(gate, Dialect::Ollama, &request, REQUEST_MAX).await;
                assert_eq!(outcome.end, End::Whole, "before the run: {}", outcome.message);
            }
        });
    }
    clients.join_all().await;
}
