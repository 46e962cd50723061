//! A count over the last stretch of time, without keeping what was counted.
//!
//! Two spans are counted, the running one and the one before; of the latter as much counts as still lies
//! within the window.

use std::time::Duration;

use super::moment::Moment;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recent {
    began: Moment,
    current: f64,
    before: f64,
}

impl Recent {
    pub fn add(&mut self, count: f64, window: Duration, now: Moment) {
        *self = self.turned(window, now);
        self.current += count;
    }

    /// Nothing was counted of late.
    pub fn is_zero(&self) -> bool {
        self.current == 0.0 && self.before == 0.0
    }

    /// Of the `window` up to `now`.
    pub fn sum(&self, window: Duration, now: Moment) -> f64 {
        if self.is_zero() {
            return 0.0;
        }
        let turned = self.turned(window, now);
        let passed = now.since(turned.began).as_secs_f64() / window.as_secs_f64().max(f64::MIN_POSITIVE);
        turned.current + (1.0 - passed).clamp(0.0, 1.0) * turned.before
    }

    /// With the span that `now` lies in as the running one.
    fn turned(&self, window: Duration, now: Moment) -> Recent {
        let passed = now.since(self.began);
        match () {
            _ if passed < window => *self,
            _ if passed < 2 * window => Recent { began: self.began + window, current: 0.0, before: self.current },
            _ => Recent { began: now, ..Recent::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_slides() {
        let window = Duration::from_secs(10);
        let mut recent = Recent::default();
        recent.add(6.0, window, Moment::from_secs(5));
        let at = |secs| recent.sum(window, Moment::from_secs(secs));
        assert_eq!([at(9), at(15), at(18), at(40)].map(|sum| sum.round() as u32), [6, 3, 1, 0]);
    }
}
