//! Whether an answer of Redis is worth waiting for.
//!
//! The first answer that does not come in time ends all waiting; background probes that are quick again begin it
//! anew. So a Redis that hangs costs each request that waits at that moment 2 ms, once, and all others nothing.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The longest that a request waits for Redis.
pub const WAIT_MAX: Duration = Duration::from_millis(2);

/// A probe that takes longer is slow.
pub const PROBE_QUICK_MAX: Duration = Duration::from_millis(2);

/// Between two probes while Redis is slow.
pub const PROBE_EVERY: Duration = Duration::from_millis(50);

/// Quick probes in a row until requests wait again.
const PROBES_QUICK: u32 = 3;

/// Counts the quick probes that are still wanted.
pub struct Pace(AtomicU32);

impl Default for Pace {
    fn default() -> Pace {
        Pace(AtomicU32::new(PROBES_QUICK))
    }
}

impl Pace {
    pub fn is_quick(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// An answer did not come in time.
    pub fn slow(&self) {
        self.0.store(PROBES_QUICK, Ordering::Relaxed);
    }

    pub fn probed(&self, took: Duration) {
        if took > PROBE_QUICK_MAX {
            return self.slow();
        }
        let _ = self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, |wanted| wanted.checked_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_answer_ends_all_waiting_until_probes_are_quick_in_a_row() {
        let (pace, quick, slow) = (Pace::default(), Duration::from_micros(300), Duration::from_millis(3));
        let probe = |took: &[Duration]| {
            took.iter().for_each(|took| pace.probed(*took));
            pace.is_quick()
        };
        assert!(!probe(&[]), "nothing is known yet");
        assert!(!probe(&[quick, quick]));
        assert!(probe(&[quick]));
        assert!(probe(&[quick]), "more change nothing");
        pace.slow();
        assert!(!probe(&[quick, quick, slow, quick, quick]));
        assert!(probe(&[quick]));
    }
}
