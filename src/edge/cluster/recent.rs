//! What was told last. A channel keeps nothing for who is not there: after a break it is told again.

use std::collections::VecDeque;
use std::time::Duration;

use crate::routing::elsewhere::Turn;
use crate::routing::moment::Moment;

/// Turns with the moments at which they were told, in order.
#[derive(Default)]
pub struct Recent(VecDeque<(Moment, (Moment, Turn))>);

/// What was told longer ago was heard, or is looked up.
const KEPT_FOR: Duration = Duration::from_secs(3);

/// Of a replica that serves 2,000 turns a second; about 2 MB.
const KEPT_MAX: usize = 1 << 13;

impl Recent {
    pub fn add(&mut self, turns: &[(Moment, Turn)], now: Moment) {
        while self.0.front().is_some_and(|(told_at, _)| now.since(*told_at) > KEPT_FOR) {
            self.0.pop_front();
        }
        self.0.extend(turns.iter().map(|turn| (now, turn.clone())));
        self.0.drain(..self.0.len().saturating_sub(KEPT_MAX));
    }

    /// All of it, to be told again.
    pub fn all(&self) -> Vec<(Moment, Turn)> {
        self.0.iter().map(|(_, turn)| turn.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::session::SharedPin;

    fn turn(key: u64) -> (Moment, Turn) {
        let pin = SharedPin { key, root: 1, previous: 0, turns: 1 };
        (Moment(0), Turn { pin, named: None, node: 1, held: None })
    }

    #[test]
    fn the_latest_are_kept_for_a_while() {
        let mut recent = Recent::default();
        let keys = |recent: &Recent| recent.all().iter().map(|(_, turn)| turn.pin.key).collect::<Vec<_>>();
        recent.add(&[turn(1)], Moment::from_secs(10));
        recent.add(&[turn(2)], Moment::from_secs(12));
        assert_eq!(keys(&recent), [1, 2]);
        recent.add(&[turn(3)], Moment::from_secs(14));
        assert_eq!(keys(&recent), [2, 3]);
        recent.add(&vec![turn(4); KEPT_MAX + 5], Moment::from_secs(14));
        assert_eq!(keys(&recent).len(), KEPT_MAX);
    }
}
