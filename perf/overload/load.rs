//! Requests that come whether or not others were answered: each alone, at moments drawn from the seed.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::chat::{self, Dialect, Outcome};
use crate::dice::Dice;
use crate::engine_process::MODEL;
use crate::rig::{PROMPT_TOKENS, QUEUE_TIMEOUT, capacity_per_s};

/// As in the simulated engine.
const CHARS_PER_TOKEN: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Interactive,
    Batch,
}

/// How much of one class is asked, as a share of capacity.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub class: Class,
    pub share: f64,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Row {
    pub class: Class,
    /// When it was to be sent, since the phase began.
    pub at: Duration,
    /// By so much later it was sent.
    pub late: Duration,
    pub outcome: Outcome,
}

impl Class {
    pub fn name(self) -> &'static str {
        match self {
            Class::Interactive => "interactive",
            Class::Batch => "batch",
        }
    }
}

impl Row {
    pub fn ended_at(&self) -> Duration {
        self.at + self.late + self.outcome.total
    }
}

impl Load {
    /// Sends for so long, and waits for all answers.
    pub async fn send(self, gate: SocketAddr, seed: u64, length: Duration) -> Vec<Row> {
        let mut dice = Dice::new(seed, self.class as u64);
        let mean_s = 1.0 / (self.share * capacity_per_s());
        let began = Instant::now();
        let (mut at, mut requests) = (Duration::ZERO, JoinSet::new());
        loop {
            at += Duration::from_secs_f64(dice.pause(mean_s));
            if at >= length {
                break;
            }
            sleep_until(began + at).await;
            let text = dice.text(PROMPT_TOKENS * CHARS_PER_TOKEN);
            let late = began.elapsed().saturating_sub(at);
            requests.spawn(ask(gate, self.class, text, at, late));
        }
        requests.join_all().await
    }
}

async fn ask(gate: SocketAddr, class: Class, text: String, at: Duration, late: Duration) -> Row {
    let request = Dialect::Ollama.request(MODEL, &[json!({"role": "user", "content": text})]);
    let request = match class {
        Class::Interactive => request,
        Class::Batch => request.header("X-Fleet-Priority", "batch"),
    };
    Row { class, at, late, outcome: chat::ask(gate, Dialect::Ollama, &request, 6 * QUEUE_TIMEOUT).await }
}
