//! Taking turns between lines of unequal weight: weighted fair queueing in virtual time.
//!
//! The virtual clock goes on by one turn divided among the lines that wait, and each line carries the
//! time up to which it was served. A line that comes back early goes on from there, so that coming one
//! at a time gains nothing; one that comes back late begins at the present, so that pausing saves
//! nothing up; and since the clock goes on with every turn, newcomers cannot keep a line from its next
//! turn for ever (Demers, Keshav and Shenker, 1989).

use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub struct Turns<K> {
    now: f64,
    lines: BTreeMap<K, Line>,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    served_until: f64,
    waiting: usize,
    weight: f64,
}

impl<K> Default for Turns<K> {
    fn default() -> Turns<K> {
        Turns { now: 0.0, lines: BTreeMap::new() }
    }
}

impl<K: Ord + Copy> Turns<K> {
    /// One more waits in that line.
    pub fn join(&mut self, line: K, weight: f64) {
        let now = self.now;
        let joined = self.lines.entry(line).or_insert(Line { served_until: now, waiting: 0, weight });
        if joined.waiting == 0 {
            joined.served_until = joined.served_until.max(now);
        }
        joined.waiting += 1;
    }

    /// One less waits there, since it had its turn.
    pub fn serve(&mut self, line: K) {
        let weights: f64 = self.lines.values().filter(|line| line.waiting > 0).map(|line| line.weight).sum();
        if let Some(served) = self.lines.get_mut(&line) {
            served.served_until += 1.0 / served.weight;
            self.now += 1.0 / weights;
        }
        self.leave(line);
    }

    /// One less waits there.
    pub fn leave(&mut self, line: K) {
        if let Some(left) = self.lines.get_mut(&line) {
            left.waiting = left.waiting.saturating_sub(1);
        }
        let now = self.now;
        self.lines.retain(|_, line| line.waiting > 0 || line.served_until > now);
    }

    /// When its next turns come, one after the other.
    pub fn of(&self, line: K) -> impl Iterator<Item = f64> + use<K> {
        let Line { served_until, weight, .. } =
            self.lines.get(&line).copied().unwrap_or(Line { served_until: self.now, waiting: 0, weight: 1.0 });
        (1..).map(move |turn| served_until + f64::from(turn) / weight)
    }

    pub fn is_idle(&self) -> bool {
        self.lines.values().all(|line| line.waiting == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two lines that always have somebody waiting, by weight: who has the first turns.
    #[track_caller]
    fn check(weights: [f64; 2], expected: &str) {
        let mut turns = Turns::default();
        let names = ['a', 'b'];
        names.iter().zip(weights).for_each(|(name, weight)| turns.join(*name, weight));
        let served: String = (0..expected.len())
            .map(|_| {
                let next = |name: &char| turns.of(*name).next().unwrap_or(f64::INFINITY);
                let first = if next(&'b') < next(&'a') { 'b' } else { 'a' };
                turns.serve(first);
                turns.join(first, weights[usize::from(first == 'b')]);
                first
            })
            .collect();
        assert_eq!(served, expected);
    }

    #[test]
    fn turns_go_by_weight_even_to_those_who_come_one_at_a_time() {
        check([1.0, 1.0], "abababab");
        check([3.0, 1.0], "aaabaaabaaab");
    }

    #[test]
    fn newcomers_without_end_do_not_starve_a_second_turn() {
        let mut turns = Turns::default();
        turns.join(0, 1.0);
        turns.join(0, 1.0);
        turns.serve(0);
        let waited = (1..100).take_while(|newcomer| {
            turns.join(*newcomer, 1.0);
            let sooner = turns.of(*newcomer).next() < turns.of(0).next();
            turns.serve(*newcomer);
            sooner
        });
        assert!(waited.count() < 4);
    }

    #[test]
    fn nothing_is_remembered_of_lines_whose_time_has_passed() {
        let mut turns = Turns::default();
        for line in 0..1000 {
            turns.join(line, 1.0);
            turns.serve(line);
        }
        assert!(turns.lines.len() <= 2 && turns.is_idle());
    }
}
