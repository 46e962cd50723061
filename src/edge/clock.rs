//! Where time enters. The only reader of the operating system's clocks on behalf of the core.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::routing::moment::Moment;

/// Hands out moments that count from the start of the process.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    pub fn start() -> Clock {
        Clock { origin: Instant::now() }
    }

    pub fn now(&self) -> Moment {
        Moment(self.origin.elapsed().as_micros() as u64)
    }
}

/// Milliseconds since 1970, for people and logs; never for decisions.
pub fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
