//! What others know of one conversation, asked for when nothing certain is known of it here.
//!
//! Only turns that go on from others ask: a conversation that begins has no pin anywhere. One call for all keys.

use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::counts::Result;
use super::pace::WAIT_MAX;
use super::stored;
use crate::edge::clock::wall_ms;
use crate::edge::ingress::Ingress;
use crate::routing::ask::Ask;
use crate::routing::elsewhere::Turn;
use crate::routing::moment::Moment;
use std::sync::atomic::Ordering;

impl super::Cluster {
    /// Learns what is stored of the conversation of `ask`, if it must, and waits no longer than it may.
    pub async fn learn_of(&self, ask: &Ask, ingress: &Ingress) {
        let Some(link) = self.quick_link() else { return };
        let sure_since = Moment(self.sure_since.load(Ordering::Relaxed));
        let Some(wanted) = ingress.fleet.with(|fleet, now| fleet.asks_elsewhere(ask, sure_since, now)) else { return };
        let (places, began) = (stored::places(&wanted), Instant::now());
        let mut command = redis::cmd("MGET");
        for (root, key) in &places {
            command.arg(stored::key(&link.prefix, *root, *key));
        }
        let found = timeout(WAIT_MAX, link.call::<Vec<Option<String>>>(&command)).await;
        let counts = &ingress.metrics.cluster;
        let found = match found {
            Ok(Ok(found)) => found,
            Ok(Err(_)) => return counts.looked_up(Result::Error, began.elapsed()),
            Err(_) => {
                self.pace.slow();
                return counts.looked_up(Result::Slow, began.elapsed());
            }
        };
        counts.looked_up(Result::Ok, began.elapsed());
        let wall = wall_ms();
        let read = |((root, key), text): (&(u64, u64), Option<String>)| stored::read(*root, *key, &text?);
        let turns: Vec<(Turn, u64)> = places.iter().zip(found).filter_map(read).collect();
        ingress.fleet.with(|fleet, now| {
            // From the shortest to the longest, so that none forgets one that comes after it.
            for (turn, at_ms) in turns.iter().rev() {
                let age = Duration::from_millis(wall.saturating_sub(*at_ms));
                fleet.learn_turn(turn, now.before(age), now);
            }
        });
    }
}
