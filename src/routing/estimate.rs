//! What is known of a model's speed on an upstream, from what was seen.
//!
//! Reading does not change anything; learning takes one sample. Rates are ratios of decayed sums, so a
//! short prompt, whose time is mostly overhead, weighs as little as it should.

/// Speeds of one model on one upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Speed {
    prefill: Ratio,
    service_s: Ratio,
    load_s: Ratio,
    decode: Ratio,
}

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
