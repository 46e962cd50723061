//! Who asks: conversations whose turns go by any replica, probes, and a tenant that wants too much.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::json;
use tokio::task::{JoinHandle, JoinSet};

use crate::Arguments;
use crate::chat::{self, Dialect, End, Outcome};
use crate::client::Request;
use crate::dice::Dice;
use crate::engine_process::MODEL;
use crate::rig::KEYS;

const OPENING_CHARS: (f64, f64) = (2_000.0, 12_000.0);
const TURN_CHARS: (f64, f64) = (100.0, 800.0);
const TURNS: usize = 8;
const PAUSE_S: f64 = 2.0;
const REQUEST_MAX: Duration = Duration::from_secs(120);
const FLOODERS: usize = 24;
/// For less than a minute, so that no place comes back.
const FLOOD: Duration = Duration::from_secs(20);

/// A turn or a probe.
#[derive(Clone, Debug)]
pub struct Row {
    /// Since the clients began.
    pub at: Duration,
    pub kind: Kind,
    pub failed: bool,
    /// To the first token.
    pub waited_ms: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Opening,
    /// By the node that served the turn before.
    Warm,
    Moved,
    Probe,
}

pub struct Clients {
    gates: Vec<SocketAddr>,
    seed: u64,
    conversations: usize,
    probes: u64,
    began: Instant,
    next: AtomicU64,
    is_over: AtomicBool,
    rows: Mutex<Vec<Row>>,
}

impl Clients {
    pub fn new(gates: Vec<SocketAddr>, arguments: &Arguments) -> Clients {
        Clients {
            gates,
            seed: arguments.seed,
            conversations: arguments.conversations,
            probes: arguments.probes,
            began: Instant::now(),
            next: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            rows: Mutex::default(),
        }
    }

    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// What began from one moment to another.
    pub fn rows(&self, from: Duration, to: Duration) -> Vec<Row> {
        self.rows.lock().iter().filter(|row| (from..to).contains(&row.at)).cloned().collect()
    }

    pub fn no_more(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub fn begin(self: Arc<Self>) -> JoinHandle<()> {
        tokio::spawn(async move {
            let mut all = JoinSet::new();
            for _ in 0..self.conversations {
                let clients = self.clone();
                all.spawn(async move {
                    while !clients.is_over.load(Ordering::Relaxed) {
                        clients.converse().await;
                    }
                });
            }
            let clients = self.clone();
            all.spawn(async move { clients.probe().await });
            all.join_all().await;
        })
    }

    async fn converse(&self) {
        let mut dice = Dice::new(self.seed, self.next.fetch_add(1, Ordering::Relaxed));
        tokio::time::sleep(Duration::from_secs_f64(dice.pause(PAUSE_S))).await;
        let opening = dice.between(OPENING_CHARS.0, OPENING_CHARS.1) as usize;
        let mut messages = vec![json!({"role": "user", "content": dice.text(opening)})];
        let mut node = String::new();
        for turn in 0..TURNS {
            let gate = self.gates[dice.below(self.gates.len())];
            let request = Dialect::OpenAi.request(MODEL, &messages);
            let outcome = self.ask(gate, &request, KEYS[0], |outcome| match turn {
                0 => Kind::Opening,
                _ if outcome.node == node => Kind::Warm,
                _ => Kind::Moved,
            });
            let outcome = outcome.await;
            if outcome.end != End::Whole || self.is_over.load(Ordering::Relaxed) {
                return;
            }
            node = outcome.node;
            messages.push(json!({"role": "assistant", "content": outcome.text}));
            let chars = dice.between(TURN_CHARS.0, TURN_CHARS.1) as usize;
            messages.push(json!({"role": "user", "content": dice.text(chars)}));
            tokio::time::sleep(Duration::from_secs_f64(dice.pause(PAUSE_S))).await;
        }
    }

    /// Small requests that go on from what nobody knows.
    async fn probe(&self) {
        let mut dice = Dice::new(self.seed, u64::MAX);
        let every = Duration::from_secs_f64(1.0 / self.probes.max(1) as f64);
        while !self.is_over.load(Ordering::Relaxed) {
            let began = Instant::now();
            let said = ["user", "assistant", "user"].map(|role| json!({"role": role, "content": dice.text(40)}));
            let gate = self.gates[dice.below(self.gates.len())];
            self.ask(gate, &Dialect::OpenAi.request("probe", &said), KEYS[1], |_| Kind::Probe).await;
            tokio::time::sleep(every.saturating_sub(began.elapsed())).await;
        }
    }

    async fn ask(&self, gate: SocketAddr, request: &Request, key: &str, kind: impl Fn(&Outcome) -> Kind) -> Outcome {
        let at = self.began.elapsed();
        let request = request.clone().header("Authorization", &format!("Bearer {key}"));
        let outcome = chat::ask(gate, Dialect::OpenAi, &request, REQUEST_MAX).await;
        let failed = outcome.end != End::Whole;
        if failed {
            let Outcome { end, status, message, .. } = &outcome;
            eprintln!("{:>7.1} s  {}, {status}: {message}", at.as_secs_f64(), end.name());
        }
        let waited_ms = outcome.first_token.unwrap_or(outcome.total).as_secs_f64() * 1000.0;
        self.rows.lock().push(Row { at, kind: kind(&outcome), failed, waited_ms });
        outcome
    }
}

/// How many requests of a tenant that asks all replicas for more than it may have are let in.
pub async fn flood(gates: &[SocketAddr], arguments: &Arguments) -> usize {
    let (began, admitted) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let mut all = JoinSet::new();
    for client in 0..FLOODERS {
        let (gates, admitted, seed) = (gates.to_vec(), admitted.clone(), arguments.seed);
        all.spawn(async move {
            let mut dice = Dice::new(seed, u64::MAX - 1 - client as u64);
            while began.elapsed() < FLOOD {
                let request = Dialect::OpenAi
                    .request("probe", &[json!({"role": "user", "content": dice.text(40)})])
                    .header("Authorization", &format!("Bearer {}", KEYS[2]));
                let outcome = chat::ask(gates[dice.below(gates.len())], Dialect::OpenAi, &request, REQUEST_MAX).await;
                admitted.fetch_add(u64::from(outcome.status == 200), Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
    }
    all.join_all().await;
    admitted.load(Ordering::Relaxed) as usize
}
