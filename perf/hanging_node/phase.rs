//! One stretch of the run: two clients side by side, each with its times.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};

use crate::client::{Conn, Request};
use crate::numbers::percentile;
use crate::rig::{MODEL, Rig, chat};

/// Lists asked for while one chat is held.
const TAGS_PER_CHAT: usize = 4;

#[derive(Serialize)]
pub struct Phase {
    pub name: &'static str,
    pub tags: Times,
    pub chats: Times,
}

/// From a request sent to its answer read, on a kept connection.
#[derive(Serialize)]
pub struct Times {
    pub count: usize,
    pub failed: usize,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

impl Phase {
    pub async fn run(name: &'static str, rig: &Rig, count: usize, pace: Duration) -> Phase {
        let gate = rig.gate.address;
        let tags = tokio::spawn(ask(gate, Request::get("/api/tags"), count, pace));
        let chats = tokio::spawn(ask(gate, chat(MODEL), count / TAGS_PER_CHAT, pace * TAGS_PER_CHAT as u32));
        Phase { name, tags: tags.await.expect("the lists"), chats: chats.await.expect("the chats") }
    }
}

async fn ask(gate: SocketAddr, request: Request, count: usize, pace: Duration) -> Times {
    let mut ticks = interval(pace);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut conn = Conn::open(gate).await;
    let (mut times_ms, mut failed) = (Vec::with_capacity(count), 0);
    for _ in 0..count {
        ticks.tick().await;
        let began = Instant::now();
        let reply = conn.exchange(&request).await;
        failed += usize::from(reply.status != 200);
        conn = reply.reuse().await;
        times_ms.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Times {
        count,
        failed,
        p50_ms: percentile(&times_ms, 0.50),
        p99_ms: percentile(&times_ms, 0.99),
        max_ms: percentile(&times_ms, 1.0),
    }
}
