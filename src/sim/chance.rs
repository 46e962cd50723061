//! A seeded source of numbers: the same seed and stream, the same numbers.

use crate::routing::chain::mix;

#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// Streams of one seed have nothing to do with each other.
    pub fn new(seed: u64, stream: u64) -> Chance {
        Chance(mix(mix(0, seed), stream))
    }

    pub fn number(&mut self) -> u64 {
        self.0 = mix(self.0, 1);
        self.0
    }

    /// Evenly from 0 to 1, without 1.
    pub fn share(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Evenly from 0 to below `count`; 0 of none.
    pub fn below(&mut self, count: usize) -> usize {
        ((self.share() * count as f64) as usize).min(count.saturating_sub(1))
    }

    /// From an exponential distribution: pauses between arrivals that know nothing of each other.
    pub fn pause(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.share()).ln()
    }

    /// From a log-normal distribution with that mean, whose logarithm has the standard deviation `spread`.
    pub fn around(&mut self, mean: f64, spread: f64) -> f64 {
        // Box and Muller, 1958.
        let radius = (-2.0 * (1.0 - self.share()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * self.share()).cos();
        mean * (spread * normal - spread * spread / 2.0).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_kept() {
        let mut chance = Chance::new(1, 1);
        let mut mean = |draw: fn(&mut Chance) -> f64| (0..20_000).map(|_| draw(&mut chance)).sum::<f64>() / 20_000.0;
        assert!((mean(|chance| chance.pause(2.0)) - 2.0).abs() < 0.1);
        assert!((mean(|chance| chance.around(2.0, 0.5)) - 2.0).abs() < 0.1);
        assert!((mean(|chance| chance.below(5) as f64) - 2.0).abs() < 0.1);
    }

    #[test]
    fn seeds_and_streams_differ_and_repeat() {
        let first = |seed, stream| Chance::new(seed, stream).number();
        assert_eq!(first(1, 1), first(1, 1));
        assert!(first(1, 1) != first(1, 2) && first(1, 1) != first(2, 1) && first(1, 2) != first(2, 1));
    }
}
