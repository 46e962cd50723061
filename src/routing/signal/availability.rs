//! Signal 6: how far the node can be relied on.
//!
//! Health checks, recent failures and slow start are joined into one number before it comes here; a
//! node that is out altogether never becomes a candidate.

use serde::{Deserialize, Serialize};

use super::Signal;
use crate::routing::ask::Ask;
use crate::routing::candidate::Candidate;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Availability {
    pub max: f64,
}

/// What a failed attempt costs, seconds.
const FAILURE_S: f64 = 5.0;

/// Keeps the cost of a node that hardly ever works finite.
const LEAST: f64 = 0.01;

impl Default for Availability {
    fn default() -> Self {
        Availability { max: 10.0 }
    }
}

impl Signal for Availability {
    fn points(&self, candidate: &Candidate, _: &Ask) -> f64 {
        self.max * candidate.availability.clamp(0.0, 1.0)
    }

    /// The times it has to be tried before it works, beyond the first.
    fn cost_s(&self, candidate: &Candidate, _: &Ask) -> f64 {
        let availability = candidate.availability.clamp(LEAST, 1.0);
        FAILURE_S * (1.0 - availability) / availability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_a_level() {
        for (availability, expected) in [(0.0, 0.0), (0.2, 2.0), (0.75, 7.5), (1.0, 10.0)] {
            let candidate = Candidate { availability, ..Candidate::plain() };
            assert_eq!(Availability::default().points(&candidate, &Ask::plain()), expected);
        }
    }
}
