//! Signal 2: room for the model. Tight memory means evictions, swapping and failed loads.
//!
//! The steps are Ollama Herd's (vector V12); unknown memory is neutral rather than optimistic.

use serde::{Deserialize, Serialize};

use super::Signal;
use crate::routing::ask::Ask;
use crate::routing::candidate::Candidate;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryFit {
    pub resident: f64,
    /// Free memory is more than twice the need.
    pub ample: f64,
    /// More than 1.5 times.
    pub good: f64,
    /// More than 1.2 times.
    pub snug: f64,
    /// At least the need.
    pub tight: f64,
    /// Fits only if models that nobody uses are evicted.
    pub evicting: f64,
    /// Memory or need unknown.
    pub unknown: f64,
}

impl Default for MemoryFit {
    fn default() -> Self {
        MemoryFit { resident: 20.0, ample: 20.0, good: 15.0, snug: 8.0, tight: 3.0, evicting: 1.0, unknown: 10.0 }
    }
}

impl Signal for MemoryFit {
    fn points(&self, candidate: &Candidate, _: &Ask) -> f64 {
        if candidate.is_resident() {
            return self.resident;
        }
        let (Some(memory), Some(need)) = (candidate.memory, candidate.need_bytes.filter(|need| *need > 0)) else {
            return self.unknown;
        };
        match memory.free_bytes as f64 / need as f64 {
            ratio if ratio > 2.0 => self.ample,
            ratio if ratio > 1.5 => self.good,
            ratio if ratio > 1.2 => self.snug,
            ratio if ratio >= 1.0 => self.tight,
            _ if memory.free_without_idle_bytes >= need => self.evicting,
            _ => 0.0,
        }
    }

    /// Others' models that make room are loaded again.
    fn cost_s(&self, candidate: &Candidate, _: &Ask) -> f64 {
        candidate.external.evicted_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::candidate::{Memory, Residency};

    #[track_caller]
    fn check(need_tenths_gb: u64, expected: f64) {
        let memory =
            Memory { total_bytes: 64_000_000_000, free_bytes: 45_000_000_000, free_without_idle_bytes: 50_000_000_000 };
        let candidate = Candidate {
            residency: Residency::OnDisk,
            need_bytes: Some(need_tenths_gb * 100_000_000),
            memory: Some(memory),
            ..Candidate::plain()
        };
        assert_eq!(MemoryFit::default().points(&candidate, &Ask::plain()), expected, "{need_tenths_gb}");
    }

    #[test]
    fn herd_v12() {
        for (need, points) in [(220, 20.0), (225, 15.0), (250, 15.0), (300, 8.0), (370, 8.0), (375, 3.0), (450, 3.0)] {
            check(need, points);
        }
    }

    #[test]
    fn beyond_what_is_free() {
        check(451, 1.0);
        check(501, 0.0);
    }

    #[test]
    fn resident_and_unknown() {
        let fit = MemoryFit::default();
        assert_eq!(fit.points(&Candidate::plain(), &Ask::plain()), 20.0);
        let unknown = Candidate { residency: Residency::OnDisk, ..Candidate::plain() };
        assert_eq!(fit.points(&unknown, &Ask::plain()), 10.0);
    }
}
