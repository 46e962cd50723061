//! Prompts that a model on a node has still to compute, in the order in which they were sent.
//!
//! Engines compute prompts one after the other, or a few in turns, which comes to the same sum. How much of
//! the first one is done is told by how long it has been at it.

use std::collections::VecDeque;

use super::estimate::{Cost, Work};
use super::fleet::LeaseId;
use super::moment::Moment;

#[derive(Clone, Debug, Default)]
pub struct Line {
    entries: VecDeque<(LeaseId, Work)>,
    work: Work,
    /// When the first one was begun.
    began_at: Moment,
}

impl Line {
    pub fn join(&mut self, lease: LeaseId, work: Work, now: Moment) {
        if self.entries.is_empty() {
            (self.began_at, self.work) = (now, Work::default());
        }
        self.entries.push_back((lease, work));
        self.work = self.work + work;
    }

    /// One has its first byte, or has ended without.
    pub fn leave(&mut self, lease: LeaseId, now: Moment) {
        let Some(place) = self.entries.iter().position(|(of, _)| *of == lease) else { return };
        if let Some((_, work)) = self.entries.remove(place) {
            self.work = self.work - work;
        }
        if place == 0 {
            self.began_at = now;
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether that one is computed now.
    pub fn is_first(&self, lease: LeaseId) -> bool {
        self.entries.front().is_some_and(|(first, _)| *first == lease)
    }

    /// When the one that is computed now was begun.
    pub fn began_at(&self) -> Moment {
        self.began_at
    }

    /// The works in order.
    pub fn works(&self) -> impl Iterator<Item = Work> {
        self.entries.iter().map(|(_, work)| *work)
    }

    /// Seconds until all of it is computed. What takes longer than it should may take as long again.
    pub fn seconds(&self, cost: &Cost, now: Moment) -> f64 {
        let Some((_, first)) = self.entries.front() else { return 0.0 };
        let first_s = cost.seconds(*first);
        let passed_s = now.since(self.began_at).as_secs_f64();
        let done_s = if first_s > 0.0 { first_s - (first_s - passed_s).abs().min(2.0 * first_s) } else { 0.0 };
        (cost.seconds(self.work) - done_s).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Cost = Cost { prompt_s: 0.0, kilotoken_s: 1.0, megapair_s: 0.0 };

    fn at(secs: u64) -> Moment {
        Moment::from_secs(secs)
    }

    #[track_caller]
    fn check(line: &Line, secs: u64, expected_s: f64) {
        let seconds = line.seconds(&COST, at(secs));
        assert!((seconds - expected_s).abs() < 1e-9, "{seconds} s, not {expected_s}");
    }

    #[test]
    fn what_is_ahead_shrinks_as_it_is_done() {
        let mut line = Line::default();
        check(&line, 0, 0.0);
        line.join(LeaseId(1), Work::of(4000, 0), at(0));
        line.join(LeaseId(2), Work::of(3000, 1000), at(1));
        check(&line, 1, 5.0);
        check(&line, 3, 3.0);
        check(&line, 4, 2.0);
        check(&line, 5, 3.0);
        line.leave(LeaseId(1), at(5));
        check(&line, 5, 2.0);
        check(&line, 6, 1.0);
        line.leave(LeaseId(2), at(7));
        check(&line, 9, 0.0);
        assert_eq!(line.len(), 0);
        line.join(LeaseId(3), Work::of(1000, 0), at(20));
        check(&line, 20, 1.0);
    }

    #[test]
    fn who_leaves_unheard_takes_its_work_along() {
        let mut line = Line::default();
        line.join(LeaseId(1), Work::of(4000, 0), at(0));
        line.join(LeaseId(2), Work::of(2000, 0), at(0));
        line.leave(LeaseId(2), at(0));
        line.leave(LeaseId(9), at(0));
        check(&line, 0, 4.0);
    }
}
