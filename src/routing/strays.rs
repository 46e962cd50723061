//! Whether conversations come here that others began.
//!
//! Replicas that hear nothing of each other, or a table too small for who is there, show by second turns of
//! conversations of which nothing is known here: strays. Only second turns are counted, so that long conversations
//! hide nothing, and what a restart forgot is forgiven as soon as new conversations go on. Where strays are more than
//! now and then, conversations are placed by their home (`select::home`); where there are none, nothing changes.

use super::aged::Aged;
use super::ask::Ask;
use super::estimate::Ratio;
use super::name;

/// The share of strays among second turns, by model; the latest twenty count most.
pub struct Strays(Aged<Ratio>);

/// Of more models that answer, those are forgotten whose second turns came longest ago.
pub const MODELS_MAX: usize = 1024;

/// As if so many second turns had come before the first, and none of them a stray.
const PRIOR_TURNS: f64 = 4.0;

/// Up to this share it is chance: somebody who comes back late, a client that makes up what was said before.
const SHARE_MIN: f64 = 0.2;

/// From here on home counts in full. Two replicas that hear nothing of each other see 0.5.
const SHARE_FULL: f64 = 0.35;

impl Default for Strays {
    fn default() -> Strays {
        Strays(Aged::new(MODELS_MAX))
    }
}

impl Strays {
    /// The second turn of a conversation was answered.
    pub(super) fn second_turn(&mut self, ask: &Ask, is_stray: bool) {
        let model = name::fold_hash(&ask.model);
        let mut share = self.0.remove(model).unwrap_or_default();
        share.learn(f64::from(u8::from(is_stray)), 1.0);
        self.0.insert(model, share);
    }

    /// How much home counts for that model, 0 to 1.
    pub fn strength(&self, model: &str) -> f64 {
        if self.0.is_empty() {
            return 0.0;
        }
        let share = self.0.get(name::fold_hash(model)).map_or(0.0, |share| share.value_with(0.0, PRIOR_TURNS));
        ((share - SHARE_MIN) / (SHARE_FULL - SHARE_MIN)).clamp(0.0, 1.0)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn max_models(&self) -> usize {
        self.0.max_entries()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Second turns, `x` a stray; then how much home counts.
    #[track_caller]
    fn check(turns: &str, expected: f64) {
        let mut strays = Strays::default();
        let ask = Ask::plain();
        turns.chars().for_each(|turn| strays.second_turn(&ask, turn == 'x'));
        let got = strays.strength(&ask.model);
        assert!((got - expected).abs() < 0.05, "{turns}: {got}");
        assert_eq!(strays.strength("another"), 0.0, "each model for itself");
    }

    #[test]
    fn home_counts_once_second_turns_are_strays() {
        check("", 0.0);
        check(&".".repeat(40), 0.0);
        check("x", 0.0);
        check("xx", 0.85);
        check("xxx", 1.0);
        // Some among many are chance, half of them are another replica, and silence shows within a dozen.
        check(&(".".repeat(40) + "xxxx"), 0.0);
        check(&".x".repeat(20), 1.0);
        check(&(".".repeat(40) + &"xx.".repeat(4)), 0.43);
        // What a restart forgot is over soon.
        check(&("x".repeat(4) + &".".repeat(16)), 0.0);
    }

    #[test]
    fn the_table_is_bounded() {
        let mut strays = Strays::default();
        for model in 0..3 * MODELS_MAX {
            strays.second_turn(&Ask { model: format!("m{model}"), ..Ask::plain() }, true);
        }
        assert!((MODELS_MAX / 2..=MODELS_MAX).contains(&strays.len()), "{}", strays.len());
        assert_eq!((strays.max_models(), strays.strength("m0")), (MODELS_MAX, 0.0));
    }
}
