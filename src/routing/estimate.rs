//! What is known of a model's speed on an upstream, from what was seen.
//!
//! Reading does not change anything; learning takes one sample. Rates are ratios of decayed sums, so a
//! short prompt, whose time is mostly overhead, weighs as little as it should. What is long past weighs less
//! against what comes now.

mod prefill;
mod work;

pub use prefill::Prefill;
pub use work::{Cost, Work};

use super::moment::Moment;

use serde::{Deserialize, Serialize};

/// Speeds of one model on one upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Speed {
    prefill: Prefill,
    service_s: Ratio,
    load_s: Ratio,
    decode: Ratio,
    answer_s: Ratio,
    read_s: Ratio,
}

/// What was learnt in all, without how it was learnt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    pub prefill_s_per_token: Option<f64>,
    pub service_s: Option<f64>,
    pub load_s: Option<f64>,
    pub decode_tokens_per_s: Option<f64>,
}

/// What another run learnt counts as so many prompts of usual length: the machine may have changed.
const RECALLED_PROMPTS: u32 = 4;

/// The prompt by which speeds of prefill are told and compared.
const TYPICAL_TOKENS: u32 = 2000;

impl Speed {
    /// A prompt was computed in `seconds`, with no wait or load before.
    pub fn learn_prefill(&mut self, work: Work, seconds: f64, now: Moment) {
        self.prefill.learn(work, seconds, now);
        self.read_s.learn(seconds, 1.0);
    }

    /// A request held its slot for `seconds`.
    pub fn learn_service(&mut self, seconds: f64) {
        self.service_s.learn(seconds, 1.0);
    }

    /// A first token came `seconds` later than prefill explains, since the model had to be loaded.
    pub fn learn_load(&mut self, seconds: f64) {
        self.load_s.learn(seconds, 1.0);
    }

    /// An answer was written in `seconds`, of so many `tokens` if that was told.
    pub fn learn_answer(&mut self, tokens: Option<u32>, seconds: f64) {
        self.answer_s.learn(seconds, 1.0);
        if let Some(tokens) = tokens {
            self.decode.learn(f64::from(tokens), seconds);
        }
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
    pub fn recall(&mut self, pace: &Pace, now: Moment) {
        if let Some(prefill) = pace.prefill_s_per_token {
            let seconds = prefill * f64::from(TYPICAL_TOKENS);
            (0..RECALLED_PROMPTS).for_each(|_| self.prefill.learn(Work::of(TYPICAL_TOKENS, 0), seconds, now));
        }
        pace.service_s.into_iter().for_each(|seconds| self.learn_service(seconds));
        pace.load_s.into_iter().for_each(|seconds| self.learn_load(seconds));
        if let Some(decode) = pace.decode_tokens_per_s.filter(|decode| *decode > 0.0) {
            self.decode.learn(f64::from(TYPICAL_TOKENS), f64::from(TYPICAL_TOKENS) / decode);
        }
    }

    /// What computing a prompt costs here; `None`: never seen.
    pub fn prefill(&self) -> Option<Cost> {
        self.prefill.cost()
    }

    /// Seconds to read one token of a prompt of usual length; `None`: never seen.
    pub fn prefill_s_per_token(&self) -> Option<f64> {
        let whole = Work::of(TYPICAL_TOKENS, 0);
        self.prefill.cost().map(|cost| cost.seconds(whole) / f64::from(TYPICAL_TOKENS))
    }

    pub fn service_s(&self) -> Option<f64> {
        self.service_s.value()
    }

    pub fn load_s(&self) -> Option<f64> {
        self.load_s.value()
    }

    pub fn decode_tokens_per_s(&self) -> Option<f64> {
        self.decode.value()
    }

    /// Seconds that an answer takes of which at most so many tokens are wanted.
    pub fn answer_s(&self, max_tokens: Option<u32>) -> Option<f64> {
        let most = max_tokens.zip(self.decode.value()).filter(|(_, rate)| *rate > 0.0);
        let most_s = most.map_or(f64::INFINITY, |(tokens, rate)| f64::from(tokens) / rate);
        self.answer_s.value().map(|seconds| seconds.min(most_s))
    }

    /// Seconds of prefill that a request has taken on average.
    pub fn read_s(&self) -> Option<f64> {
        self.read_s.value()
    }
}

/// Share of the past that a new sample leaves in place: about the last twenty samples count.
const KEPT: f64 = 0.95;

/// A quotient of two sums in which old samples fade.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ratio {
    above: f64,
    below: f64,
}

impl Ratio {
    pub fn learn(&mut self, above: f64, below: f64) {
        if above.is_finite() && below.is_finite() && above >= 0.0 && below > 0.0 {
            self.above = KEPT * self.above + above;
            self.below = KEPT * self.below + below;
        }
    }

    pub fn value(&self) -> Option<f64> {
        (self.below > 0.0).then(|| self.above / self.below)
    }

    /// With a prior value that weighs as much as `weight` of what is below.
    pub fn value_with(&self, prior: f64, weight: f64) -> f64 {
        (self.above + prior * weight) / (self.below + weight)
    }
}

/// The middle of `values`, the lower of two; `None` of none.
pub fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    let middle = values.len().saturating_sub(1) / 2;
    if values.is_empty() {
        return None;
    }
    Some(*values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_no_longer_than_it_may_be() {
        let mut speed = Speed::default();
        assert_eq!(speed.answer_s(Some(5)), None);
        speed.learn_answer(Some(100), 10.0);
        assert_eq!((speed.answer_s(None), speed.answer_s(Some(50))), (Some(10.0), Some(5.0)));
    }

    #[test]
    fn another_run_begins_with_what_was_known() {
        let mut speed = Speed::default();
        assert_eq!(speed.pace(), None);
        for second in 0..100 {
            speed.learn_prefill(Work::of(2000, 0), 1.0, Moment::from_secs(second));
        }
        speed.learn_service(3.0);
        speed.learn_answer(Some(100), 2.0);
        let mut next = Speed::default();
        next.recall(&speed.pace().unwrap_or_default(), Moment::from_secs(1));
        let near = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => (a / b - 1.0).abs() < 0.02,
            (a, b) => a == b,
        };
        assert!(near(next.prefill_s_per_token(), speed.prefill_s_per_token()), "{next:?}");
        assert!(near(next.decode_tokens_per_s(), Some(50.0)) && near(next.service_s(), Some(3.0)), "{next:?}");
        assert_eq!(next.load_s(), None);
        let mut broken = Speed::default();
        let nan = Some(f64::NAN);
        broken.recall(
            &Pace { prefill_s_per_token: nan, service_s: nan, load_s: nan, decode_tokens_per_s: nan },
            Moment::default(),
        );
        assert_eq!(broken, Speed::default());
    }

    #[test]
    fn nonsense_is_not_learnt() {
        let mut speed = Speed::default();
        for nonsense in [f64::NAN, f64::INFINITY, -1.0] {
            speed.learn_service(nonsense);
            speed.learn_load(nonsense);
            speed.learn_answer(None, nonsense);
            speed.learn_prefill(Work::of(5, 0), nonsense, Moment(0));
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
