//! Signal 4: how long until the first token, as far as speeds are known.

use serde::{Deserialize, Serialize};

use super::Signal;
use crate::routing::ask::Ask;
use crate::routing::candidate::Candidate;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Latency {
    /// The most this signal takes away.
    pub max: f64,
    /// Seconds that cost one point.
    pub seconds_per_point: f64,
}

impl Default for Latency {
    fn default() -> Self {
        Latency { max: 25.0, seconds_per_point: 10.0 }
    }
}

impl Signal for Latency {
    fn points(&self, candidate: &Candidate, _: &Ask) -> f64 {
        let expected_s = candidate.first_token.map_or(0.0, |parts| parts.total_s());
        0.0 - (expected_s / self.seconds_per_point).min(self.max)
    }

    /// Its own prefill, at this node's speed.
    fn cost_s(&self, candidate: &Candidate, _: &Ask) -> f64 {
        candidate.first_token.map_or(0.0, |parts| parts.prefill_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::candidate::FirstToken;

    #[track_caller]
    fn check(first_token: Option<FirstToken>, expected: f64) {
        let candidate = Candidate { first_token, ..Candidate::plain() };
        assert_eq!(Latency::default().points(&candidate, &Ask::plain()), expected);
    }

    #[test]
    fn ten_seconds_a_point() {
        check(None, 0.0);
        check(Some(FirstToken { wait_s: 5.0, load_s: 8.0, prefill_s: 2.0 }), -1.5);
        check(Some(FirstToken { wait_s: 9000.0, ..FirstToken::default() }), -25.0);
    }
}
