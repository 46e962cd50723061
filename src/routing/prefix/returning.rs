//! Whether a conversation that rests will go on: from how many do, and how soon.

use std::time::Duration;

use crate::routing::estimate::Ratio;

/// How conversations go on, learnt over all of them.
#[derive(Clone, Copy, Debug)]
pub struct Returning {
    /// Turns that went on from another, of all turns.
    share: Ratio,
    /// How many of the pauses between turns were so long, old ones fading; each step is longer by `STEP`.
    pauses: [f64; STEPS],
    /// How many were at least that long, by step: a decision asks for each node.
    longer: [f64; STEPS + 1],
}

const STEPS: usize = 28;
const STEP: f64 = 1.4;
/// Where the first step ends.
const FIRST_S: f64 = 0.2;

/// Share of the past that a new pause leaves in place.
const KEPT: f64 = 0.99;

/// What holds until something is seen: most chats go on, in half a minute in the mean.
const SHARE: f64 = 0.7;
const PAUSE_S: f64 = 30.0;
/// How many turns have to be seen before they weigh as much as that.
const PRIOR_TURNS: f64 = 5.0;

impl Default for Returning {
    fn default() -> Returning {
        let longer = |step: i32| (-FIRST_S * STEP.powi(step) / PAUSE_S).exp();
        let pauses = std::array::from_fn(|step| match step as i32 {
            0 => PRIOR_TURNS * (1.0 - longer(0)),
            step => PRIOR_TURNS * (longer(step - 1) - longer(step)),
        });
        let mut returning = Returning { share: Ratio::default(), pauses, longer: [0.0; STEPS + 1] };
        returning.add_up();
        returning
    }
}

impl Returning {
    /// A turn came; `pause`: since the end of the one that it goes on from.
    pub fn turn(&mut self, pause: Option<Duration>) {
        self.share.learn(if pause.is_some() { 1.0 } else { 0.0 }, 1.0);
        if let Some(pause) = pause {
            self.pauses.iter_mut().for_each(|count| *count *= KEPT);
            self.pauses[(place(pause) as usize).min(STEPS - 1)] += 1.0;
            self.add_up();
        }
    }

    fn add_up(&mut self) {
        let mut sum = 0.0;
        for (longer, count) in self.longer.iter_mut().zip(&self.pauses).rev() {
            sum += count;
            *longer = sum;
        }
    }

    /// How likely a conversation is to go on that has rested for so long: of those that go on, as many as rested
    /// longer. What has rested longer than any has ended.
    pub fn chance(&self, rested: Duration) -> f64 {
        let share = self.share.value_with(SHARE, PRIOR_TURNS).clamp(0.01, 0.99);
        let rests = share * self.longer(rested);
        rests / (rests + 1.0 - share)
    }

    /// Share of the pauses that were longer.
    fn longer(&self, rested: Duration) -> f64 {
        let at = place(rested).min(STEPS as f64);
        let longer = self.longer.get(at.ceil() as usize).copied().unwrap_or_default();
        let within = self.pauses.get(at as usize).map_or(0.0, |count| count * (at.ceil() - at));
        let all = self.longer[0];
        if all > 0.0 { (longer + within) / all } else { 0.0 }
    }
}

/// In which step a pause ends, and how far into it.
fn place(pause: Duration) -> f64 {
    let steps = (pause.as_secs_f64() / FIRST_S).max(f64::MIN_POSITIVE).log(STEP) + 1.0;
    if steps < 1.0 { pause.as_secs_f64() / FIRST_S } else { steps }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rests_long_has_ended() {
        let mut returning = Returning::default();
        let chance = |returning: &Returning, millis| returning.chance(Duration::from_millis(millis));
        assert!((0.6..0.8).contains(&chance(&returning, 0)), "most go on");
        for n in 0..400 {
            returning.turn((n % 5 != 0).then_some(Duration::from_secs(2)));
        }
        assert!((0.7..0.9).contains(&chance(&returning, 0)), "four of five go on: {}", chance(&returning, 0));
        assert!(chance(&returning, 1000) > 0.7, "none that goes on has done so: {}", chance(&returning, 1000));
        assert!(chance(&returning, 4000) < 0.2, "{}", chance(&returning, 4000));
        assert!(chance(&returning, 60_000) < 0.05, "{}", chance(&returning, 60_000));
        let chances: Vec<f64> = (0..1000).map(|n| chance(&returning, n * 50)).collect();
        assert!(chances.is_sorted_by(|a, b| a >= b), "never likelier with time");
    }

    #[test]
    fn any_length_has_its_step() {
        let mut returning = Returning::default();
        for pause in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(1), Duration::MAX] {
            returning.turn(Some(pause));
            assert!((0.0..=1.0).contains(&returning.chance(pause)), "{pause:?}");
        }
    }
}
