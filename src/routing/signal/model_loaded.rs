//! Signal 1: a model in memory answers now, one on disk answers after its load.

use serde::{Deserialize, Serialize};

use super::Signal;
use crate::routing::ask::Ask;
use crate::routing::candidate::{Candidate, Residency};
use crate::units::Span;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelLoaded {
    /// Resident, or being loaded for a request that is still there.
    pub loaded: f64,
    /// Unloaded less than `recent_for` ago: likely still in the file cache.
    pub recent: f64,
    pub on_disk: f64,
    pub recent_for: Span,
}

impl Default for ModelLoaded {
    fn default() -> Self {
        ModelLoaded { loaded: 50.0, recent: 30.0, on_disk: 10.0, recent_for: Span::from_secs(30 * 60) }
    }
}

impl Signal for ModelLoaded {
    fn points(&self, candidate: &Candidate, _: &Ask) -> f64 {
        match candidate.residency {
            Residency::Resident => self.loaded,
            Residency::Unloaded(ago) if ago < self.recent_for.0 => self.recent,
            Residency::Unloaded(_) | Residency::OnDisk => self.on_disk,
        }
    }

    /// What is left of the load.
    fn cost_s(&self, candidate: &Candidate, _: &Ask) -> f64 {
        candidate.first_token.map_or(0.0, |parts| parts.load_s)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[track_caller]
    fn check(residency: Residency, expected: f64) {
        let candidate = Candidate { residency, ..Candidate::plain() };
        assert_eq!(ModelLoaded::default().points(&candidate, &Ask::plain()), expected);
    }

    #[test]
    fn hot_warm_cold() {
        check(Residency::Resident, 50.0);
        check(Residency::Unloaded(Duration::from_secs(1799)), 30.0);
        check(Residency::Unloaded(Duration::from_secs(1800)), 10.0);
        check(Residency::OnDisk, 10.0);
    }
}
