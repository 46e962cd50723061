//! The work of computing prompts, and what that costs in time.

use std::ops::{Add, Sub};

/// What there is to compute of one prompt, or of several together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    pub prompts: f64,
    /// Thousands of tokens that are not cached.
    pub kilotokens: f64,
    /// Millions of pairs: each computed token attends to all before it.
    pub megapairs: f64,
}

/// Seconds for each unit of work; none is negative.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    pub prompt_s: f64,
    pub kilotoken_s: f64,
    pub megapair_s: f64,
}

impl Work {
    /// A prompt of which the first `cached` tokens are there.
    pub fn of(prompt_tokens: u32, cached: u32) -> Work {
        let (all, cached) = (f64::from(prompt_tokens) / 1e3, f64::from(cached.min(prompt_tokens)) / 1e3);
        Work { prompts: 1.0, kilotokens: all - cached, megapairs: (all * all - cached * cached) / 2.0 }
    }

    /// Tokens in the middle of a prompt of which those before are there.
    pub fn between(from: u32, to: u32) -> Work {
        Work { prompts: 0.0, ..Work::of(to, from) }
    }
}

impl Cost {
    /// What is taken for it while nothing was seen of any node: two thousand tokens a second.
    pub const ASSUMED: Cost = Cost { prompt_s: 0.0, kilotoken_s: 0.5, megapair_s: 0.0 };

    pub fn seconds(&self, work: Work) -> f64 {
        self.prompt_s * work.prompts + self.kilotoken_s * work.kilotokens + self.megapair_s * work.megapairs
    }
}

impl Add for Work {
    type Output = Work;

    fn add(self, more: Work) -> Work {
        Work {
            prompts: self.prompts + more.prompts,
            kilotokens: self.kilotokens + more.kilotokens,
            megapairs: self.megapairs + more.megapairs,
        }
    }
}

impl Sub for Work {
    type Output = Work;

    fn sub(self, less: Work) -> Work {
        Work {
            prompts: self.prompts - less.prompts,
            kilotokens: self.kilotokens - less.kilotokens,
            megapairs: self.megapairs - less.megapairs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(prompt: u32, cached: u32, kilotokens: f64, megapairs: f64) {
        let work = Work::of(prompt, cached);
        assert!((work.kilotokens - kilotokens).abs() < 1e-9 && (work.megapairs - megapairs).abs() < 1e-9, "{work:?}");
    }

    #[test]
    fn what_is_cached_is_no_work() {
        check(2000, 0, 2.0, 2.0);
        check(2000, 1000, 1.0, 1.5);
        check(2000, 9000, 0.0, 0.0);
        let cost = Cost { prompt_s: 0.1, kilotoken_s: 1.0, megapair_s: 2.0 };
        assert!((cost.seconds(Work::of(2000, 1000)) - 4.1).abs() < 1e-9);
        assert!((cost.seconds(Work::between(1000, 2000)) - 4.0).abs() < 1e-9);
    }
}
