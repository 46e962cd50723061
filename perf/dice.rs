//! A seeded source of numbers and texts.

use warmgate::routing::chain::mix;

pub struct Dice(u64);

impl Dice {
    /// The same numbers for the same seed and stream.
    pub fn new(seed: u64, stream: u64) -> Dice {
        Dice(mix(seed, stream))
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = mix(self.0, 1);
        self.0
    }

    /// Evenly from 0 to 1, without 1.
    pub fn share(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Evenly between the two.
    pub fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.share()
    }

    /// Evenly from 0 to below `count`.
    pub fn below(&mut self, count: usize) -> usize {
        ((self.share() * count as f64) as usize).min(count.saturating_sub(1))
    }

    /// From an exponential distribution: the pauses of arrivals that know nothing of each other.
    pub fn pause(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.share()).ln()
    }

    /// Words of letters, different from the first one on.
    pub fn text(&mut self, chars: usize) -> String {
        let mut text = String::with_capacity(chars + 8);
        while text.len() < chars {
            let mut letters = self.roll();
            for _ in 0..7 {
                text.push(char::from(b'a' + (letters % 26) as u8));
                letters /= 26;
            }
            text.push(' ');
        }
        text.truncate(chars);
        text
    }
}
