//! What is known of a model's speed on an upstream, from what was seen.
//!
//! Reading does not change anything; learning takes one sample. Rates are ratios of decayed sums, so a
//! short prompt, whose time is mostly overhead, weighs as little as it should.

use serde::{Deserialize, Serialize};

/// Speeds of one model on one upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Speed {
    prefill: Ratio,
    service_s: Ratio,
    load_s: Ratio,
    decode: Ratio,
}

/// What was learnt in all, without how it was learnt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    pub prefill_s_per_token: Option<f64>,
    pub service_s: Option<f64>,
    pub load_s: Option<f64>,
    pub decode_tokens_per_s: Option<f64>,
}

/// What another run learnt counts as little more than a request of that size: the machine may have changed.
const RECALLED_TOKENS: u32 = 2048;

/// Tokens of imagined, instantaneous prefill: keeps a few tiny prompts from looking like a slow node.
const PRIOR_TOKENS: f64 = 256.0;

impl Speed {
    /// A first token came after `seconds`, with `tokens` to read and no wait or load before.
    pub fn learn_prefill(&mut self, tokens: u32, seconds: f64) {
        self.prefill.learn(seconds, f64::from(tokens));
    }

    /// A request held its slot for `seconds`.
    pub fn learn_service(&mut self, seconds: f64) {
        self.service_s.learn(seconds, 1.0);
    }

    /// A first token came `seconds` later than prefill explains, since the model had to be loaded.
    pub fn learn_load(&mut self, seconds: f64) {
        self.load_s.learn(seconds, 1.0);
    }

    /// `tokens` were written in `seconds`.
    pub fn learn_decode(&mut self, tokens: u32, seconds: f64) {
        self.decode.learn(f64::from(tokens), seconds);
    }

    /// `None`: nothing is known.
    pub fn pace(&self) -> Option<Pace> {
        let pace = Pace {
            prefill_s_per_token: self.prefill_s_per_token(),
            service_s: self.service_s(),
            load_s: self.load_s(),
            decode_tokens_per_s: self.decode_tokens_per_s(),
        };
        (pace != Pace::default()).then_some(pace)
    }

    /// Begins with what another run knew.
    pub fn recall(&mut self, pace: &Pace) {
        if let Some(prefill) = pace.prefill_s_per_token {
            self.learn_prefill(RECALLED_TOKENS, prefill * (f64::from(RECALLED_TOKENS) + PRIOR_TOKENS));
        }
        pace.service_s.into_iter().for_each(|seconds| self.learn_service(seconds));
        pace.load_s.into_iter().for_each(|seconds| self.learn_load(seconds));
        if let Some(decode) = pace.decode_tokens_per_s.filter(|decode| *decode > 0.0) {
            self.learn_decode(RECALLED_TOKENS, f64::from(RECALLED_TOKENS) / decode);
        }
    }

    /// Seconds to read one token; `None`: never seen.
    pub fn prefill_s_per_token(&self) -> Option<f64> {
        self.prefill.value(PRIOR_TOKENS)
    }

    pub fn service_s(&self) -> Option<f64> {
        self.service_s.value(0.0)
    }

    pub fn load_s(&self) -> Option<f64> {
        self.load_s.value(0.0)
    }

    pub fn decode_tokens_per_s(&self) -> Option<f64> {
        self.decode.value(0.0)
    }
}

/// Share of the past that a new sample leaves in place: about the last twenty samples count.
const KEPT: f64 = 0.95;

/// A quotient of two sums in which old samples fade.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Ratio {
    above: f64,
    below: f64,
}

impl Ratio {
    fn learn(&mut self, above: f64, below: f64) {
        if above.is_finite() && below.is_finite() && above >= 0.0 && below > 0.0 {
            self.above = KEPT * self.above + above;
            self.below = KEPT * self.below + below;
        }
    }

    fn value(&self, prior_below: f64) -> Option<f64> {
        (self.below > 0.0).then(|| self.above / (self.below + prior_below))
    }
}

/// The middle of `values`, the lower of two; `None` of none.
pub fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_a_change_of_speed() {
        let mut speed = Speed::default();
        assert_eq!(speed.prefill_s_per_token(), None);
        for _ in 0..100 {
            speed.learn_prefill(2000, 1.0);
        }
        let before = speed.prefill_s_per_token().unwrap_or_default();
        assert!((before - 0.0005).abs() < 0.00002, "{before}");
        for _ in 0..100 {
            speed.learn_prefill(2000, 2.0);
        }
        let after = speed.prefill_s_per_token().unwrap_or_default();
        assert!((after - 0.001).abs() < 0.00004, "{after}");
    }

    #[test]
    fn another_run_begins_with_what_was_known() {
        let mut speed = Speed::default();
        assert_eq!(speed.pace(), None);
        speed.learn_prefill(500, 0.25);
        speed.learn_service(3.0);
        speed.learn_decode(100, 2.0);
        let mut next = Speed::default();
        next.recall(&speed.pace().unwrap_or_default());
        let near = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => (a - b).abs() < 1e-9,
            (a, b) => a == b,
        };
        assert!(near(next.prefill_s_per_token(), speed.prefill_s_per_token()), "{next:?}");
        assert!(near(next.decode_tokens_per_s(), Some(50.0)) && near(next.service_s(), Some(3.0)), "{next:?}");
        assert_eq!(next.load_s(), None);
        let mut broken = Speed::default();
        let nan = Some(f64::NAN);
        broken.recall(&Pace { prefill_s_per_token: nan, service_s: nan, load_s: nan, decode_tokens_per_s: nan });
        assert_eq!(broken, Speed::default());
    }

    #[test]
    fn tiny_prompts_do_not_look_like_a_slow_node() {
        let mut speed = Speed::default();
        speed.learn_prefill(5, 0.050);
        let per_token = speed.prefill_s_per_token().unwrap_or_default();
        assert!(2000.0 * per_token < 0.5, "{per_token}");
    }

    #[test]
    fn nonsense_is_not_learnt() {
        let mut speed = Speed::default();
        for nonsense in [f64::NAN, f64::INFINITY, -1.0] {
            speed.learn_service(nonsense);
            speed.learn_decode(5, 0.0);
        }
        assert_eq!(speed, Speed::default());
    }

    #[test]
    fn the_middle() {
        assert_eq!(median([].into_iter()), None);
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.0));
    }
}
