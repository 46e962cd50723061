//! Signal 5: large models to strong nodes, small ones to the others.
//!
//! Decoding is bound by memory bandwidth, so where it is known it decides; else the amount of memory
//! stands for strength. Constants and steps are Ollama Herd's (vectors V7 and V8).

use serde::{Deserialize, Serialize};

use super::Signal;
use crate::routing::ask::Ask;
use crate::routing::candidate::Candidate;
use crate::units::ByteSize;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Role {
    /// The most a node's bandwidth gives.
    pub max: f64,
    /// What any bandwidth gives.
    pub base: f64,
    /// GB/s that give one more point.
    pub gb_s_per_point: f64,
    /// What a small model gives a node without bandwidth; less the stronger the node.
    pub small_max: f64,
    /// What a small model gives at least.
    pub small_min: f64,
    /// Share of the bandwidth's points given to middling models and taken from small ones.
    pub middle: f64,
    /// Models above this size are large.
    pub large: ByteSize,
    /// Models below this size are small.
    pub small: ByteSize,
}

impl Default for Role {
    fn default() -> Self {
        Role {
            max: 25.0,
            base: 5.0,
            gb_s_per_point: 40.0,
            small_max: 18.0,
            small_min: 3.0,
            middle: 0.6,
            large: ByteSize(20_000_000_000),
            small: ByteSize(8_000_000_000),
        }
    }
}

enum Size {
    Large,
    Middle,
    Small,
}

impl Signal for Role {
    fn points(&self, candidate: &Candidate, _: &Ask) -> f64 {
        let Some(bytes) = candidate.model_bytes else { return 0.0 };
        let size = self.size(bytes);
        match (candidate.bandwidth_bytes_s, candidate.memory) {
            (Some(bytes_s), _) => self.by_bandwidth(size, bytes_s / 1e9),
            (None, Some(memory)) => by_memory(size, memory.total_bytes),
            (None, None) => 0.0,
        }
    }

    /// Nothing: learned speeds say themselves which node is strong.
    fn cost_s(&self, _: &Candidate, _: &Ask) -> f64 {
        0.0
    }
}

impl Role {
    fn size(&self, bytes: u64) -> Size {
        match bytes {
            b if b > self.large.0 => Size::Large,
            b if b < self.small.0 => Size::Small,
            _ => Size::Middle,
        }
    }

    fn by_bandwidth(&self, size: Size, gb_s: f64) -> f64 {
        let strength = self.max.min(self.base + gb_s / self.gb_s_per_point);
        match size {
            Size::Large => strength,
            Size::Middle => self.middle * strength,
            Size::Small => self.small_min.max(self.small_max - self.middle * strength),
        }
    }
}

const GIB: u64 = 1 << 30;

fn by_memory(size: Size, total_bytes: u64) -> f64 {
    match (size, total_bytes) {
        (Size::Large, total) if total >= 128 * GIB => 15.0,
        (Size::Large, total) if total >= 32 * GIB => 5.0,
        (Size::Large, _) => 0.0,
        (Size::Middle, _) => 5.0,
        (Size::Small, total) if total <= 32 * GIB => 15.0,
        (Size::Small, total) if total <= 128 * GIB => 8.0,
        (Size::Small, _) => 3.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::candidate::Memory;

    /// Points for models of 30, 10 and 4 GB.
    #[track_caller]
    fn check(bandwidth_gb_s: Option<f64>, memory_gib: Option<u64>, expected: [f64; 3]) {
        let got = [30, 10, 4].map(|gb: u64| {
            let candidate = Candidate {
                model_bytes: Some(gb * 1_000_000_000),
                bandwidth_bytes_s: bandwidth_gb_s.map(|gb_s| gb_s * 1e9),
                memory: memory_gib.map(|gib| Memory {
                    total_bytes: gib * GIB,
                    free_bytes: 0,
                    free_without_idle_bytes: 0,
                }),
                ..Candidate::plain()
            };
            Role::default().points(&candidate, &Ask::plain())
        });
        for (got, expected) in got.iter().zip(expected) {
            assert!((got - expected).abs() < 1e-9, "{bandwidth_gb_s:?} {memory_gib:?}: {got} is not {expected}");
        }
    }

    #[test]
    fn herd_v7() {
        check(Some(68.0), None, [6.7, 4.02, 13.98]);
        check(Some(100.0), None, [7.5, 4.5, 13.5]);
        check(Some(150.0), None, [8.75, 5.25, 12.75]);
        check(Some(200.0), None, [10.0, 6.0, 12.0]);
        check(Some(273.0), None, [11.825, 7.095, 10.905]);
        check(Some(400.0), None, [15.0, 9.0, 9.0]);
        check(Some(546.0), None, [18.65, 11.19, 6.81]);
        check(Some(819.0), None, [25.0, 15.0, 3.0]);
        check(Some(3350.0), None, [25.0, 15.0, 3.0]);
    }

    #[test]
    fn herd_v8() {
        check(None, Some(16), [0.0, 5.0, 15.0]);
        check(None, Some(32), [5.0, 5.0, 15.0]);
        check(None, Some(64), [5.0, 5.0, 8.0]);
        check(None, Some(128), [15.0, 5.0, 8.0]);
        check(None, Some(256), [15.0, 5.0, 3.0]);
    }

    #[test]
    fn nothing_known_is_neutral() {
        check(None, None, [0.0; 3]);
    }
}
