//! How reliable an upstream has been lately.
//!
//! Each failed attempt halves the trust that is left; trust comes back with time and at once with a
//! success, so that there is always a way back. A node that fails in milliseconds and therefore looks
//! idle is held back by this.

use std::time::Duration;

use super::moment::Moment;

/// Failures in a row, and when the last one was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    failures: u32,
    last_failure: Moment,
}

/// After this long without an attempt a failure is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// More halvings than these change nothing that can be seen.
const MAX_COUNTED: u32 = 8;

impl Record {
    pub fn fail(&mut self, now: Moment) {
        self.failures = (self.current(now) + 1).min(MAX_COUNTED);
        self.last_failure = now;
    }

    pub fn succeed(&mut self) {
        self.failures = 0;
    }

    /// 1: nothing speaks against it; towards 0 with every failure in a row.
    pub fn trust(&self, now: Moment) -> f64 {
        let failures = self.current(now);
        let forgotten = now.since(self.last_failure).as_secs_f64() / FORGOTTEN_AFTER.as_secs_f64();
        1.0 - (1.0 - 0.5f64.powi(failures as i32)) * (1.0 - forgotten.min(1.0))
    }

    fn current(&self, now: Moment) -> u32 {
        if now.since(self.last_failure) < FORGOTTEN_AFTER { self.failures } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn falls_with_failures_and_returns_with_time_or_success() {
        let mut record = Record::default();
        assert_eq!(record.trust(Moment(0)), 1.0);
        record.fail(Moment::from_secs(100));
        assert_eq!(record.trust(Moment::from_secs(100)), 0.5);
        record.fail(Moment::from_secs(100));
        assert_eq!(record.trust(Moment::from_secs(100)), 0.25);
        assert_eq!(record.trust(Moment::from_secs(130)), 0.625);
        assert_eq!(record.trust(Moment::from_secs(160)), 1.0);
        record.succeed();
        assert_eq!(record.trust(Moment::from_secs(101)), 1.0);
    }
}
