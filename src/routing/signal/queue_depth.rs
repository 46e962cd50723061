//! Signal 3: work that is ahead of this request.
//!
//! Without a floor: a node with a thousand waiting must lose to an idle one, however warm it is.

use serde::{Deserialize, Serialize};

use super::Signal;
use crate::routing::ask::Ask;
use crate::routing::candidate::Candidate;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueDepth {
    /// Points lost for each full set of slots that is busy or waited for.
    pub per_depth: f64,
    /// The same for requests that run for other models on the node.
    pub per_other: f64,
    /// By expected time: seconds that a busy node costs which has had twice as many requests of late as were its due.
    pub per_due_s: f64,
}

impl Default for QueueDepth {
    fn default() -> Self {
        QueueDepth { per_depth: 6.0, per_other: 2.0, per_due_s: 20.0 }
    }
}

impl Signal for QueueDepth {
    fn points(&self, candidate: &Candidate, _: &Ask) -> f64 {
        0.0 - self.per_depth * candidate.depth - self.per_other * candidate.other_depth
    }

    /// The wait for those ahead, how near the node is to its limits, and how far beyond its share of the work.
    fn cost_s(&self, candidate: &Candidate, _: &Ask) -> f64 {
        let wait_s = candidate.first_token.map_or(0.0, |parts| parts.wait_s);
        wait_s + candidate.external.pressure_s + self.per_due_s * candidate.ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(depth: f64, other_depth: f64, expected: f64) {
        let candidate = Candidate { depth, other_depth, ..Candidate::plain() };
        assert_eq!(QueueDepth::default().points(&candidate, &Ask::plain()), expected);
    }

    #[test]
    fn being_ahead_of_its_due_costs_time_and_no_points() {
        for (ahead, expected_s) in [(0.0, 0.0), (0.1, 2.0), (1.0, 20.0)] {
            let candidate = Candidate { ahead, ..Candidate::plain() };
            assert_eq!(QueueDepth::default().cost_s(&candidate, &Ask::plain()), expected_s);
            assert_eq!(QueueDepth::default().points(&candidate, &Ask::plain()), 0.0);
        }
    }

    #[test]
    fn has_no_floor() {
        check(0.0, 0.0, 0.0);
        check(1.0, 0.0, -6.0);
        check(0.5, 3.0, -9.0);
        check(1000.0, 0.0, -6000.0);
    }
}
