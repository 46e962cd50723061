//! Signal 8: warmth. The node that served the last turn holds the conversation in its cache.
//!
//! A bonus that yields to load, never a hard pin. With one slot and nothing else different the pinned
//! node leads by 20 when idle, by 7.3 with one request there, and trails by 2 with two.

use serde::{Deserialize, Serialize};

use super::Signal;
use crate::routing::ask::Ask;
use crate::routing::candidate::Candidate;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Session {
    /// For the node the session is pinned to, when idle.
    pub max: f64,
    /// For a node that holds the whole prompt as a prefix, when the session has no pin.
    pub prefix_max: f64,
    /// For its home, where conversations come whose beginning others have served.
    pub home_max: f64,
    /// How fast all shrink with depth: divided by 1 + `per_depth` x depth.
    pub per_depth: f64,
}

impl Default for Session {
    fn default() -> Self {
        Session { max: 20.0, prefix_max: 10.0, home_max: 5.0, per_depth: 0.5 }
    }
}

impl Signal for Session {
    fn points(&self, candidate: &Candidate, _: &Ask) -> f64 {
        let found = if candidate.pinned { self.max } else { self.prefix_max * candidate.prefix_share };
        (found + self.home_max * candidate.home) / (1.0 + self.per_depth * candidate.depth)
    }

    /// What its cold part of the prompt costs others, whose warm one it takes the place of, and what its next turn
    /// will miss where that is looked for at home.
    fn cost_s(&self, candidate: &Candidate, _: &Ask) -> f64 {
        candidate.external.work_s + candidate.external.displaced_s + candidate.external.strays_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn herd_v14() {
        let expected = [(0, 20.0), (1, 13.3333), (2, 10.0), (3, 8.0), (4, 6.6667), (5, 5.7143), (8, 4.0), (20, 1.8182)];
        for (depth, points) in expected {
            let pinned = Candidate { pinned: true, depth: f64::from(depth), ..Candidate::plain() };
            let got = Session::default().points(&pinned, &Ask::plain());
            assert!((got - points).abs() < 5e-5, "depth {depth}: {got}");
            let prefix = Candidate { pinned: false, prefix_share: 1.0, ..pinned };
            assert_eq!(Session::default().points(&prefix, &Ask::plain()), got / 2.0);
        }
    }

    /// Depth, share of the prompt that is known or expected, how much home counts; points.
    #[track_caller]
    fn check(depth: f64, prefix_share: f64, home: f64, expected: f64) {
        let candidate = Candidate { depth, prefix_share, home, ..Candidate::plain() };
        let got = Session::default().points(&candidate, &Ask::plain());
        assert!((got - expected).abs() < 1e-9, "{got}");
    }

    #[test]
    fn home_is_worth_less_than_a_pin() {
        check(0.0, 0.0, 0.0, 0.0);
        check(0.0, 0.0, 1.0, 5.0);
        check(0.0, 1.0, 1.0, 15.0);
        check(0.0, 0.5, 0.5, 7.5);
        check(2.0, 1.0, 1.0, 7.5);
    }
}
