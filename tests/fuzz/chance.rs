//! Chance that can be had again: the same seed gives the same draws.

use warmgate::routing::chain::mix;

pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(mix(0, seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = mix(1, self.0);
        self.0
    }

    /// Below `n`; zero if `n` is zero.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
