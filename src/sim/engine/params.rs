//! What an engine is made of: its models, its memory, its speeds.
//!
//! All of it is fixed when the engine starts. Speeds belong to a model on a node, as they do in life:
//! the same weights run at another rate elsewhere.

use std::time::Duration;

use super::cache::CacheParams;

/// One node's engine.
#[derive(Clone, Debug)]
pub struct EngineParams {
    pub models: Vec<ModelParams>,
    /// What resident models may take together.
    pub memory_bytes: u64,
    /// Jobs that may wait for a model or a slot, over all models; one more is refused as busy.
    pub max_waiting: usize,
    /// How long an idle model stays in memory; `None`: until it is displaced. A job may say otherwise.
    pub keep_alive: Option<Duration>,
}

/// How long a model is to stay in memory after a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAlive {
    For(Duration),
    /// Until it is displaced.
    Forever,
}

impl KeepAlive {
    pub(super) fn length(self) -> Option<Duration> {
        match self {
            KeepAlive::For(length) => Some(length),
            KeepAlive::Forever => None,
        }
    }
}

/// One model on one node.
#[derive(Clone, Debug)]
pub struct ModelParams {
    pub name: String,
    /// Requests that run at once; at least one.
    pub slots: u32,
    /// Memory it takes while resident.
    pub memory_bytes: u64,
    /// How long loading takes.
    pub load: Duration,
    /// In memory from the beginning, as far as memory reaches.
    pub resident_at_start: bool,
    pub prefill: PrefillCost,
    /// Of a job that runs alone; must be above zero.
    pub decode_tokens_per_s: f64,
    pub decode_load: DecodeLoad,
    pub cache: CacheParams,
    /// Context window of a slot when a job does not ask for another.
    pub context_tokens: u32,
    /// The most a job may ask for.
    pub context_tokens_max: u32,
}

impl ModelParams {
    /// The context window that a job's wish comes to.
    pub fn context_for(&self, asked: Option<u32>) -> u32 {
        asked.map_or(self.context_tokens, |tokens| tokens.min(self.context_tokens_max))
    }
}

/// What a full batch adds to the time between two tokens of each of its jobs. A job's rate is settled
/// when it gets its slot, by the jobs that have one then, itself among them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DecodeLoad {
    /// For each job.
    pub job_s: f64,
    /// For each token of their prompts and answers.
    pub token_s: f64,
}

/// How long computing a prompt takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PrefillCost {
    Linear {
        tokens_per_s: f64,
    },
    /// Attention compares each computed token with all before it: quadratic in the context.
    Quadratic {
        fixed_s: f64,
        token_s: f64,
        pair_s: f64,
    },
}

impl PrefillCost {
    /// Seconds for the last `uncached` of `context` tokens.
    pub fn seconds(self, uncached: u32, context: u32) -> f64 {
        let (new, all) = (f64::from(uncached), f64::from(context));
        match self {
            PrefillCost::Linear { tokens_per_s } => new / tokens_per_s,
            PrefillCost::Quadratic { fixed_s, token_s, pair_s } => {
                let cached = all - new;
                fixed_s + token_s * new + pair_s * (all * all - cached * cached) / 2.0
            }
        }
    }
}

/// Thirty years: a rate of nearly zero means never, and must not overflow the calendar.
const SECONDS_MAX: f64 = 1e9;

/// Seconds as a length of time; nonsense (negative, not a number) is none at all.
pub(super) fn seconds(seconds: f64) -> Duration {
    if seconds.is_nan() {
        return Duration::ZERO;
    }
    Duration::from_micros((seconds.clamp(0.0, SECONDS_MAX) * 1e6).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cost: PrefillCost, uncached: u32, context: u32, expected_s: f64) {
        let seconds = cost.seconds(uncached, context);
        assert!((seconds - expected_s).abs() < 1e-9, "{seconds}");
    }

    #[test]
    fn prefill_costs() {
        let linear = PrefillCost::Linear { tokens_per_s: 1000.0 };
        check(linear, 2000, 2000, 2.0);
        check(linear, 500, 30_000, 0.5);
        let quadratic = PrefillCost::Quadratic { fixed_s: 0.1, token_s: 0.001, pair_s: 0.000_002 };
        check(quadratic, 1000, 1000, 0.1 + 1.0 + 1.0);
        check(quadratic, 1000, 2000, 0.1 + 1.0 + 3.0);
    }

    #[test]
    fn nonsense_lengths_are_harmless() {
        assert_eq!(seconds(-1.0), Duration::ZERO);
        assert_eq!(seconds(f64::NAN), Duration::ZERO);
        assert_eq!(seconds(f64::INFINITY), Duration::from_secs(1_000_000_000));
    }
}
