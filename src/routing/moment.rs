//! A point in time, handed in by the caller.
//!
//! The core never asks what time it is; it is told. A `Moment` counts microseconds from any fixed
//! origin (the product: process start; the simulator: zero), so moments of one run compare and
//! subtract, and moments of two runs mean nothing to each other.

use std::ops::Add;
use std::time::Duration;

/// Microseconds since the run's origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    /// After every other.
    pub const MAX: Moment = Moment(u64::MAX);

    pub fn from_secs(secs: u64) -> Self {
        Moment(secs * 1_000_000)
    }

    /// So long before this, at most the origin.
    pub fn before(self, by: Duration) -> Self {
        Moment(self.0.saturating_sub(u64::try_from(by.as_micros()).unwrap_or(u64::MAX)))
    }

    /// How long after `earlier` this is; zero if it is not after it at all.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, by: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(by.as_micros()).unwrap_or(u64::MAX)))
    }
}
