//! How a node that joins or comes back is given load again: gradually.
//!
//! Its cache is empty and its queue is too, so that every sum speaks for it at once. While it rises it
//! carries at most a growing part of what the others carry, and one request more for each that it has
//! answered. Time alone ends the rise: who gets no requests is no less ready for it.

use std::time::Duration;

use super::moment::Moment;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowStart {
    since: Option<Moment>,
    answered: u32,
}

/// Of the availability, what a node lacks at the start of its rise: three points of ten. Enough to come
/// second among idle nodes for a moment, too little to matter once the others have work.
const LACKING: f64 = 0.3;

impl SlowStart {
    pub fn begin(&mut self, now: Moment) {
        *self = SlowStart { since: Some(now), answered: 0 };
    }

    pub fn answered(&mut self) {
        self.answered = self.answered.saturating_add(1);
    }

    /// When a rise that still lasts began.
    pub fn since(&self, length: Duration, now: Moment) -> Option<Moment> {
        self.since.filter(|since| now.since(*since) < length)
    }

    /// How far the rise has come, from 0; 1 for a node that does not rise.
    pub fn progress(&self, length: Duration, now: Moment) -> f64 {
        let since = self.since(length, now);
        since.map_or(1.0, |since| now.since(since).as_secs_f64() / length.as_secs_f64())
    }

    /// The part of signal 6 that is left to a rising node.
    pub fn availability(&self, length: Duration, now: Moment) -> f64 {
        1.0 - LACKING * (1.0 - self.progress(length, now))
    }

    /// Requests it may run at once, where the others would run `fair` in its place; `None`: no limit.
    pub fn most(&self, fair: f64, length: Duration, now: Moment) -> Option<f64> {
        self.since(length, now)?;
        let by_time = self.progress(length, now) * fair;
        Some(by_time.min(1.0 + f64::from(self.answered)).max(1.0).floor())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(30);

    #[test]
    fn hlt_12_grows_with_time_and_with_answers() {
        let mut rise = SlowStart::default();
        let at = |rise: &SlowStart, secs| rise.most(30.0, LENGTH, Moment::from_secs(secs));
        assert_eq!(at(&rise, 5), None, "it never left");
        rise.begin(Moment::from_secs(0));
        assert_eq!([at(&rise, 0), at(&rise, 15)], [Some(1.0), Some(1.0)], "nothing answered yet");
        (0..9).for_each(|_| rise.answered());
        assert_eq!([at(&rise, 5), at(&rise, 29)], [Some(5.0), Some(10.0)]);
        assert_eq!(at(&rise, 30), None);
        assert_eq!(rise.availability(LENGTH, Moment::from_secs(0)), 0.7);
        assert_eq!(rise.availability(LENGTH, Moment::from_secs(30)), 1.0);
    }
}
