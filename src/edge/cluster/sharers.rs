//! How many other replicas take from the accounts of tenants, also while none can be heard.
//!
//! Who is not heard any more may be gone, or Redis is: so fewer are believed only after Redis has been there for a
//! while without a word of them. Until then a replica goes on with the smaller share.

use std::time::{Duration, Instant};

pub struct Sharers {
    count: usize,
    /// When it was last so many, or Redis was not there.
    since: Instant,
}

/// Of hearing fewer, until they are fewer.
const SURE_AFTER: Duration = Duration::from_secs(5);

impl Default for Sharers {
    fn default() -> Sharers {
        Sharers { count: 0, since: Instant::now() }
    }
}

impl Sharers {
    pub fn count(&self) -> usize {
        self.count
    }

    pub fn note(&mut self, heard: usize, is_connected: bool, now: Instant) {
        let is_sure = is_connected && now.duration_since(self.since) >= SURE_AFTER;
        if heard >= self.count || is_sure {
            (self.count, self.since) = (heard, now);
        } else if !is_connected {
            self.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_are_believed_after_a_while_with_redis() {
        let (mut sharers, mut now) = (Sharers::default(), Instant::now());
        let mut after = |seconds: u64, heard: usize, is_connected: bool| {
            now += Duration::from_secs(seconds);
            sharers.note(heard, is_connected, now);
            sharers.count()
        };
        assert_eq!(after(0, 2, true), 2);
        assert_eq!([after(60, 0, false), after(60, 0, false)], [2, 2], "Redis is gone");
        assert_eq!([after(1, 0, true), after(3, 1, true)], [2, 2], "and has just come back");
        assert_eq!(after(2, 1, true), 1, "one is gone");
        assert_eq!(after(0, 3, true), 3);
    }
}
