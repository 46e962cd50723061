//! Before the run: as many short requests as fill what `warmgate` remembers up to its limits.
//!
//! Receipts, sessions and prefixes are kept up to a number of each, so that memory grows until these are
//! reached. Only after that does growth mean that something is never let go.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use crate::chat::{self, Dialect, End};
use crate::client::Request;
use crate::dice::Dice;
use crate::engine_process::MODEL;

/// Each is a session, and a prefix for every 1,024 characters: in all more than the 2^18 prefixes, the 2,048
/// receipts and the sessions that are kept.
const REQUESTS: usize = 20_000;
const CHARS: usize = 16 * 1_024;
const CLIENTS: usize = 24;
const REQUEST_MAX: Duration = Duration::from_secs(60);

/// Apart from those of conversations and of the disturber.
const STREAM: u64 = 1 << 40;

pub async fn fill(gate: SocketAddr, seed: u64) {
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        clients.spawn(async move {
            let mut dice = Dice::new(seed, STREAM + client as u64);
            for _ in 0..REQUESTS / CLIENTS {
                let message = json!({"role": "user", "content": dice.text(CHARS)});
                let body = json!({"model": MODEL, "messages": [message], "options": {"num_predict": 1}});
                let request = Request::post("/api/chat", body.to_string());
                let outcome = chat::ask(gate, Dialect::Ollama, &request, REQUEST_MAX).await;
                assert_eq!(outcome.end, End::Whole, "before the run: {}", outcome.message);
            }
        });
    }
    clients.join_all().await;
}
