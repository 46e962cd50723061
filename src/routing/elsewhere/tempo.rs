//! How often replicas tell each other what: the more there are, the less often each.
//!
//! What one tells is carried to all, so that what Redis carries grows with the square of their number. What each says
//! waits for so much more that all together carry no more than is named here, as far as nobody is forgotten for it.

use std::time::Duration;

/// When one of so many replicas tells the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tempo {
    /// A turn is told as soon as that, with those that come meanwhile: the next may come by another replica.
    pub turns_within: Duration,
    /// Between two messages that say what has changed of what it has at the nodes.
    pub loads_every: Duration,
    /// A replica that has nothing new to tell says all the same that it lives.
    pub heartbeat_every: Duration,
    /// All that it has at the nodes is said so often, should somebody have missed a change.
    pub all_every: Duration,
}

/// So long counts what a replica said it has.
pub const LIFE: Duration = Duration::from_millis(1500);

/// Messages to one replica each that Redis carries in a second: a third of its thread at 8 us each.
pub const DELIVERIES_PER_S: u32 = 40_000;

const TURNS_WITHIN: Duration = Duration::from_millis(2);
const LOADS_EVERY: Duration = Duration::from_millis(20);
const HEARTBEAT_EVERY: Duration = Duration::from_millis(200);
const ALL_EVERY: Duration = Duration::from_millis(1000);

/// However many there are: one lost heartbeat makes nobody forgotten.
const HEARTBEATS_IN_LIFE: u32 = 3;

/// Loads are the dearer part of a message: turns are told so many times as often, as far as that is often enough.
const TURNS_PER_LOADS: u32 = 4;

impl Tempo {
    /// Of all replicas together, this one among them.
    pub fn of(replicas: usize) -> Tempo {
        let replicas = u32::try_from(replicas).unwrap_or(u32::MAX);
        let deliveries = replicas.saturating_mul(replicas);
        let often = LIFE / HEARTBEATS_IN_LIFE;
        let apart = (Duration::from_secs(1).saturating_mul(deliveries) / DELIVERIES_PER_S).min(often);
        Tempo {
            turns_within: TURNS_WITHIN.max(apart),
            loads_every: LOADS_EVERY.max(apart.saturating_mul(TURNS_PER_LOADS)).min(often),
            heartbeat_every: HEARTBEAT_EVERY.max(apart.saturating_mul(2 * TURNS_PER_LOADS)).min(often),
            all_every: ALL_EVERY,
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
        check(8, [2, 20, 200]);
        check(20, [10, 40, 200]);
        check(30, [22, 90, 200]);
        check(50, [62, 250, 500]);
        check(100, [250, 500, 500]);
        check(usize::MAX, [500, 500, 500]);
        for replicas in 1..=REPLICAS_MAX {
            let tempo = Tempo::of(replicas);
            assert!(tempo.heartbeat_every * 2 < LIFE && tempo.all_every < LIFE, "{replicas}");
            assert!(tempo.loads_every <= tempo.heartbeat_every, "{replicas}");
        }
    }

    #[test]
    fn all_together_carry_no_more_than_is_named() {
        for replicas in 1..=140 {
            let each = Tempo::of(replicas).turns_within.as_secs_f64();
            let carried = (replicas * replicas) as f64 / each;
            assert!(carried <= f64::from(DELIVERIES_PER_S) + 1.0, "{replicas}: {carried}");
        }
    }
}
