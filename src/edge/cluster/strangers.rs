//! Replicas with other upstreams that tell on the same channel: another configuration, or another fleet altogether.
//!
//! What they tell of nodes that are unknown here is left alone in any case. That they are there is said once each,
//! since nobody means it for longer than a change of configuration takes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Fleets by the hash of their upstreams' names, and when each was heard last.
#[derive(Default)]
pub struct Strangers(HashMap<u64, Instant>);

/// Who is not heard of for that long is gone.
const GONE_AFTER: Duration = Duration::from_secs(10);

/// Of more only so many are known.
const STRANGERS_MAX: usize = 64;

impl Strangers {
    /// True: nobody has heard of it before.
    pub fn heard(&mut self, fleet: u64) -> bool {
        if !self.0.contains_key(&fleet) && self.0.len() >= STRANGERS_MAX {
            return false;
        }
        self.0.insert(fleet, Instant::now()).is_none()
    }

    /// Those that are there now.
    pub fn count(&self) -> usize {
        self.0.values().filter(|heard| heard.elapsed() < GONE_AFTER).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_news_once() {
        let mut strangers = Strangers::default();
        assert_eq!([strangers.heard(1), strangers.heard(1), strangers.heard(2)], [true, false, true]);
        assert_eq!(strangers.count(), 2);
        for fleet in 0..200 {
            strangers.heard(fleet);
        }
        assert_eq!((strangers.count(), strangers.heard(1000)), (STRANGERS_MAX, false));
    }
}
