//! What computing a prompt costs, fitted to the times that were seen.
//!
//! Seconds = a a prompt + b a token + c a pair of tokens, none below zero, by least squares over decayed sums.
//! Of the four ways to leave out some of them the simplest is kept unless another explains clearly more: a few
//! samples alike say nothing of how cost grows with length. A time beyond reason counts as the last that is within.

use super::work::{Cost, Work};
use crate::routing::moment::Moment;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prefill {
    /// Sums of products of the three units of work, by weight.
    products: [[f64; 3]; 3],
    /// The same with the seconds.
    seconds: [f64; 3],
    squares: f64,
    samples: f64,
    /// The largest that was seen of late.
    largest: f64,
    learnt_at: Moment,
    cost: Option<Cost>,
}

/// Share of the past that a new sample leaves in place.
const KEPT: f64 = 0.98;

/// What is so old weighs half.
const HALF_LIFE_S: f64 = 600.0;

/// Samples before the shape is judged, and before any is doubted.
const ENOUGH: f64 = 8.0;

/// A sample counts as no more than so many times what was expected, and no less than that part of it.
const DOUBTED: f64 = 4.0;

/// A more complex fit must leave less than this share of the error.
const BETTER: f64 = 0.8;

/// Errors below this share of the whole are noise, however they fit.
const NOISE: f64 = 1e-4;

/// Keeps a few tiny prompts from looking like a slow node, and equations from having no solution.
const RIDGE: f64 = 0.05;

/// Which of the three are used, the simplest first.
const SHAPES: [&[usize]; 4] = [&[1], &[0, 1], &[1, 2], &[0, 1, 2]];

impl Prefill {
    pub fn learn(&mut self, work: Work, seconds: f64, now: Moment) {
        if !seconds.is_finite() || seconds < 0.0 {
            return;
        }
        let seconds = self.within_reason(work, seconds);
        self.largest = work.kilotokens.max(KEPT * self.largest);
        let units = [work.prompts, work.kilotokens, work.megapairs];
        // Times scatter with their length: a long one must not decide alone.
        let weight = 1.0 / (0.25 + work.kilotokens + work.megapairs / 10.0).powf(1.5);
        let kept = KEPT * 0.5f64.powf(now.since(self.learnt_at).as_secs_f64() / HALF_LIFE_S);
        for (row, unit) in self.products.iter_mut().zip(units) {
            for (sum, other) in row.iter_mut().zip(units) {
                *sum = kept * *sum + weight * unit * other;
            }
        }
        for (sum, unit) in self.seconds.iter_mut().zip(units) {
            *sum = kept * *sum + weight * unit * seconds;
        }
        self.squares = kept * self.squares + weight * seconds * seconds;
        self.samples = kept * self.samples + 1.0;
        self.learnt_at = now;
        self.cost = Some(self.fit());
    }

    pub fn cost(&self) -> Option<Cost> {
        self.cost
    }

    fn within_reason(&self, work: Work, seconds: f64) -> f64 {
        // Of what is larger than anything seen, nobody knows what is reasonable.
        let judged = self.samples >= ENOUGH && work.kilotokens <= 2.0 * self.largest;
        match self.cost.map(|cost| cost.seconds(work)).filter(|_| judged) {
            Some(expected) if expected > 0.0 => seconds.clamp(expected / DOUBTED, expected * DOUBTED),
            _ => seconds,
        }
    }

    fn fit(&self) -> Cost {
        let mut best = (f64::INFINITY, [0.0; 3]);
        for shape in SHAPES.iter().take(if self.samples < ENOUGH { 1 } else { SHAPES.len() }) {
            let Some(solution) = self.solve(shape) else { continue };
            let error = self.error(&solution);
            if error < BETTER * best.0 && (best.0.is_infinite() || best.0 > NOISE * self.squares) {
                best = (error, solution);
            }
        }
        let [prompt_s, kilotoken_s, megapair_s] = best.1;
        Cost { prompt_s, kilotoken_s, megapair_s }
    }

    fn error(&self, solution: &[f64; 3]) -> f64 {
        let mut error = self.squares;
        for (row, by_row) in solution.iter().enumerate() {
            error -= 2.0 * by_row * self.seconds[row];
            for (column, by_column) in solution.iter().enumerate() {
                error += by_row * by_column * self.products[row][column];
            }
        }
        error.max(0.0)
    }

    /// The least squares of that shape; `None`: it has none without something below zero.
    fn solve(&self, shape: &[usize]) -> Option<[f64; 3]> {
        let size = shape.len();
        let mut rows = [[0.0; 4]; 3];
        for (at, unit) in shape.iter().enumerate() {
            for (column, other) in shape.iter().enumerate() {
                rows[at][column] = self.products[*unit][*other];
            }
            // Of the token alone: the others are not looked at before there are samples enough.
            rows[at][at] += if *unit == 1 { RIDGE } else { 1e-9 };
            rows[at][3] = self.seconds[*unit];
        }
        for pivot in 0..size {
            if rows[pivot][pivot].abs() < 1e-12 {
                return None;
            }
            for row in 0..size {
                if row != pivot {
                    let factor = rows[row][pivot] / rows[pivot][pivot];
                    let subtract = rows[pivot];
                    rows[row].iter_mut().zip(subtract).for_each(|(value, less)| *value -= factor * less);
                }
            }
        }
        let mut solution = [0.0; 3];
        for (at, unit) in shape.iter().enumerate() {
            solution[*unit] = rows[at][3] / rows[at][at];
        }
        solution.iter().all(|value| value.is_finite() && *value >= 0.0).then_some(solution)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::chain::mix;

    fn at(secs: u64) -> Moment {
        Moment::from_secs(secs)
    }

    #[track_caller]
    fn check(prefill: &Prefill, work: Work, expected_s: f64, within: f64) {
        let seconds = prefill.cost().expect("learnt").seconds(work);
        assert!((seconds / expected_s - 1.0).abs() < within, "{seconds} s, not {expected_s}: {:?}", prefill.cost());
    }

    /// Learns prompts of many sizes, a part of each cached, by a true cost.
    fn taught(truth: Cost, noise: f64) -> Prefill {
        let mut prefill = Prefill::default();
        for n in 0..200 {
            let chance = |salt: u64| (mix(n, salt) >> 11) as f64 / (1u64 << 53) as f64;
            let all = 100.0 * (600.0f64).powf(chance(1));
            let work = Work::of(all as u32, (all * chance(2) * 0.8) as u32);
            prefill.learn(work, truth.seconds(work) * (1.0 + noise * (chance(3) - 0.5)), at(n));
        }
        prefill
    }

    #[test]
    fn a_quadratic_cost_is_found() {
        let truth = Cost { prompt_s: 0.066, kilotoken_s: 0.057, megapair_s: 0.0088 };
        for (all, cached) in [(1000, 0), (10_000, 0), (50_000, 0), (50_000, 48_000)] {
            let work = Work::of(all, cached);
            check(&taught(truth, 0.0), work, truth.seconds(work), 0.05);
            check(&taught(truth, 0.4), work, truth.seconds(work), 0.2);
        }
    }

    #[test]
    fn a_linear_cost_stays_linear() {
        let truth = Cost { prompt_s: 0.0, kilotoken_s: 0.6, megapair_s: 0.0 };
        let work = Work::of(100_000, 0);
        check(&taught(truth, 0.4), work, truth.seconds(work), 0.1);
        check(&taught(truth, 0.4), Work::of(200, 0), 0.12, 0.3);
    }

    #[test]
    fn follows_a_change_of_speed() {
        let mut prefill = Prefill::default();
        assert_eq!(prefill.cost(), None);
        for (n, seconds) in (0..100).map(|_| 1.0).chain((0..200).map(|_| 2.0)).enumerate() {
            prefill.learn(Work::of(2000, 0), seconds, at(n as u64));
            if n == 99 {
                check(&prefill, Work::of(2000, 0), 1.0, 0.02);
            }
        }
        check(&prefill, Work::of(2000, 0), 2.0, 0.05);
    }

    #[test]
    fn what_is_long_past_gives_way_at_once() {
        let mut prefill = Prefill::default();
        (0..100).for_each(|n| prefill.learn(Work::of(2000, 0), 1.0, at(n)));
        (0..5).for_each(|n| prefill.learn(Work::of(2000, 0), 2.0, at(10_000 + n)));
        check(&prefill, Work::of(2000, 0), 2.0, 0.1);
    }

    #[test]
    fn one_time_beyond_reason_changes_little() {
        let mut prefill = Prefill::default();
        (0..50).for_each(|n| prefill.learn(Work::of(2000, 0), 1.0, at(n)));
        prefill.learn(Work::of(2000, 0), 600.0, at(50));
        check(&prefill, Work::of(2000, 0), 1.0, 0.15);
    }

    #[test]
    fn tiny_prompts_do_not_look_like_a_slow_node() {
        let mut prefill = Prefill::default();
        prefill.learn(Work::of(5, 0), 0.050, at(0));
        let seconds = prefill.cost().expect("learnt").seconds(Work::of(2000, 0));
        assert!(seconds < 0.5, "{seconds}");
        (0..100).for_each(|n| prefill.learn(Work::of(5, 0), 0.050, at(n)));
        let seconds = prefill.cost().expect("learnt").seconds(Work::of(2000, 0));
        assert!(seconds < 0.5, "{seconds}");
    }
}
