//! Where time enters. The only reader of the operating system's clocks on behalf of the core.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::routing::moment::Moment;

/// Before the start: what the process before this one learnt has its moment, too.
const PAST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Hands out moments that count on from a past in which nothing happened.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    pub fn start() -> Clock {
        Clock { origin: Instant::now() }
    }

    pub fn now(&self) -> Moment {
        Moment((PAST + self.origin.elapsed()).as_micros() as u64)
    }
}

/// Milliseconds since 1970, for people and logs; never for decisions.
pub fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
