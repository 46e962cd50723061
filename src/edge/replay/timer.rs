//! Waiting for deadlines that move with every chunk.

use std::pin::Pin;

use tokio::time::{Instant, Sleep};

/// Returns at the deadline; without one, never.
pub async fn late(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// A timer that is kept. Waits begin anew with every chunk and deadlines only move away: instead of setting it
/// each time, it is left to wake too early once in a while.
#[derive(Default)]
pub struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    pub async fn late(&mut self, deadline: Option<Instant>) {
        let Some(deadline) = deadline else { return std::future::pending().await };
        let timer = self.0.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        loop {
            timer.as_mut().await;
            if Instant::now() >= deadline {
                return;
            }
            timer.as_mut().reset(deadline);
        }
    }
}
