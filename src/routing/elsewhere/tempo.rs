//! How often replicas tell each other what: the more there are, the less often each, so that all together hear no
//! more and Redis carries no more.

use std::time::Duration;

/// When one of so many replicas tells the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tempo {
    /// A turn is told as soon as that, with those that come meanwhile: the next may come by another replica.
    pub turns_within: Duration,
    /// Between two messages that say what it has at the nodes.
    pub loads_every: Duration,
    /// A replica that has nothing new to tell says all the same that it lives, and what it has.
    pub heartbeat_every: Duration,
}

/// So long counts what a replica said it has.
pub const LIFE: Duration = Duration::from_millis(1500);

/// So many replicas tell as often as can be.
const REPLICAS_AT_FULL_PACE: usize = 6;

const TURNS_WITHIN: Duration = Duration::from_millis(2);
const LOADS_EVERY: Duration = Duration::from_millis(20);
const HEARTBEAT_EVERY: Duration = Duration::from_millis(200);

/// However many there are: one lost heartbeat makes nobody forgotten.
const HEARTBEATS_IN_LIFE: u32 = 3;

impl Tempo {
    /// Of all replicas together, this one among them.
    pub fn of(replicas: usize) -> Tempo {
        let pace = u32::try_from(replicas.div_ceil(REPLICAS_AT_FULL_PACE)).unwrap_or(u32::MAX).max(1);
        let often = LIFE / HEARTBEATS_IN_LIFE;
        Tempo {
            turns_within: TURNS_WITHIN.saturating_mul(pace).min(often),
            loads_every: LOADS_EVERY.saturating_mul(pace).min(often),
            heartbeat_every: HEARTBEAT_EVERY.saturating_mul(pace).min(often),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::elsewhere::REPLICAS_MAX;

    #[track_caller]
    fn check(replicas: usize, expected_ms: [u64; 3]) {
        let tempo = Tempo::of(replicas);
        let told = [tempo.turns_within, tempo.loads_every, tempo.heartbeat_every].map(|time| time.as_millis() as u64);
        assert_eq!(told, expected_ms, "{replicas} replicas");
    }

    #[test]
    fn many_replicas_tell_less_often_and_are_never_forgotten_for_it() {
        check(0, [2, 20, 200]);
        check(1, [2, 20, 200]);
        check(6, [2, 20, 200]);
        check(7, [4, 40, 400]);
        check(50, [18, 180, 500]);
        check(REPLICAS_MAX, [86, 500, 500]);
        check(usize::MAX, [500, 500, 500]);
        for replicas in 1..=REPLICAS_MAX {
            assert!(Tempo::of(replicas).heartbeat_every * 2 < LIFE, "{replicas}");
        }
    }
}
