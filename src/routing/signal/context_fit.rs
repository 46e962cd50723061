//! Signal 7: room in the context window for the prompt and its answer.
//!
//! The steps are Ollama Herd's (vector V9).

use serde::{Deserialize, Serialize};

use super::Signal;
use crate::routing::ask::Ask;
use crate::routing::candidate::Candidate;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContextFit {
    /// The window is at least eight times what is needed.
    pub max: f64,
    /// At least three times.
    pub good: f64,
    /// At least one and a half times.
    pub snug: f64,
    /// At least what is needed.
    pub tight: f64,
    /// Less: the engine would cut the prompt or refuse it.
    pub too_small: f64,
}

/// More than any wait that another node could ask for.
const TOO_SMALL_S: f64 = 3600.0;

impl Default for ContextFit {
    fn default() -> Self {
        ContextFit { max: 15.0, good: 12.0, snug: 7.5, tight: 3.0, too_small: -15.0 }
    }
}

impl Signal for ContextFit {
    fn points(&self, candidate: &Candidate, ask: &Ask) -> f64 {
        let (Some(window), needed @ 1..) = (candidate.context_tokens, ask.tokens_needed()) else {
            return 0.0;
        };
        match f64::from(window) / needed as f64 {
            q if q < 1.0 => self.too_small,
            q if q < 1.5 => self.tight,
            q if q < 3.0 => self.snug,
            q if q < 8.0 => self.good,
            _ => self.max,
        }
    }

    /// An answer from a window too small is no answer.
    fn cost_s(&self, candidate: &Candidate, ask: &Ask) -> f64 {
        if ask.fits(candidate.context_tokens) { 0.0 } else { TOO_SMALL_S }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(window: Option<u32>, needed: u32, expected: f64) {
        let candidate = Candidate { context_tokens: window, ..Candidate::plain() };
        let ask = Ask { prompt_tokens: needed, ..Ask::plain() };
        assert_eq!(ContextFit::default().points(&candidate, &ask), expected, "{needed} of {window:?}");
    }

    #[test]
    fn herd_v9() {
        let expected = [15.0, 12.0, 12.0, 7.5, 7.5, 3.0, 3.0, -15.0, 0.0];
        for (needed, points) in [1024, 1025, 2730, 2731, 5461, 5462, 8192, 8193, 0].into_iter().zip(expected) {
            check(Some(8192), needed, points);
        }
    }

    #[test]
    fn the_answer_needs_room_too() {
        let candidate = Candidate { context_tokens: Some(8192), ..Candidate::plain() };
        let ask = Ask { prompt_tokens: 8000, max_output_tokens: Some(400), ..Ask::plain() };
        assert_eq!(ContextFit::default().points(&candidate, &ask), -15.0);
        check(None, 100, 0.0);
    }
}
