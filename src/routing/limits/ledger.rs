//! What this replica has booked in the account of all replicas, as far as that has said so.
//!
//! An account that is lost and begun anew, as when Redis is emptied, gets back from each replica its own part.

use super::{Minute, SECONDS};
use crate::routing::moment::Moment;

#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Of the account: a later one is another. Zero: none was heard of.
    born: u64,
    pub(super) requests: Minute,
    pub(super) tokens: Minute,
}

/// What was booked in one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub at: Moment,
    pub requests: u64,
    pub tokens: u64,
}

/// A change of the account that is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Booked {
    pub requests_add: u64,
    pub requests_back: u64,
    pub tokens_add: u64,
    pub tokens_back: u64,
}

impl Ledger {
    /// The account of that birth was changed for who came at `at`. Gives what stood in one before and is to be booked
    /// anew, this change with it if it was made in an account that is gone since.
    pub(super) fn note(&mut self, born: u64, booked: Booked, at: Moment, now: Moment) -> Vec<Part> {
        self.turn(now);
        if born < self.born {
            let Booked { requests_add: requests, tokens_add: tokens, .. } = booked;
            return [Part { at, requests, tokens }]
                .into_iter()
                .filter(|part| part.requests + part.tokens > 0)
                .collect();
        }
        let gone = if born > self.born { self.forget() } else { Vec::new() };
        self.born = born;
        let second = super::second(at);
        if second + SECONDS as u64 > self.requests.newest {
            self.requests.add(second, booked.requests_add);
            self.tokens.add(second, booked.tokens_add);
        }
        self.requests.take_back(second, booked.requests_back);
        self.tokens.take_back(second, booked.tokens_back);
        gone
    }

    pub(super) fn turn(&mut self, now: Moment) {
        self.requests.turn(super::second(now));
        self.tokens.turn(super::second(now));
    }

    fn forget(&mut self) -> Vec<Part> {
        let newest = self.requests.newest;
        let part = |second: u64| {
            let (requests, tokens) = (self.requests.count_of(second), self.tokens.count_of(second));
            Part { at: Moment::from_secs(second), requests, tokens }
        };
        let oldest = (newest + 1).saturating_sub(SECONDS as u64);
        let parts = (oldest..=newest).map(part).filter(|part| part.requests + part.tokens > 0).collect();
        (self.requests, self.tokens) = (Minute { newest, ..Minute::default() }, Minute { newest, ..Minute::default() });
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Moment {
        Moment::from_secs(secs)
    }

    fn one(tokens: u64) -> Booked {
        Booked { requests_add: 1, tokens_add: tokens, ..Booked::default() }
    }

    fn part(second: u64, requests: u64, tokens: u64) -> Part {
        Part { at: at(second), requests, tokens }
    }

    #[test]
    fn what_stood_in_a_lost_account_is_given_back_once() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.note(5, one(10), at(100), at(100)), []);
        assert_eq!(ledger.note(5, one(20), at(130), at(130)), []);
        let less = Booked { tokens_back: 5, ..Booked::default() };
        assert_eq!(ledger.note(5, less, at(100), at(131)), []);
        assert_eq!(ledger.note(9, one(7), at(140), at(140)), [part(100, 1, 5), part(130, 1, 20)]);
        assert_eq!(ledger.note(9, one(7), at(140), at(140)), []);
        assert_eq!((ledger.requests.sum, ledger.tokens.sum), (2, 14));
    }

    #[test]
    fn what_was_booked_in_an_account_that_is_gone_is_booked_anew() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.note(9, one(7), at(140), at(140)), []);
        assert_eq!(ledger.note(5, one(3), at(139), at(141)), [part(139, 1, 3)]);
        assert_eq!((ledger.requests.sum, ledger.tokens.sum), (1, 7));
    }

    #[test]
    fn what_is_over_a_minute_old_is_not_missed() {
        let mut ledger = Ledger::default();
        ledger.note(5, one(10), at(100), at(100));
        assert_eq!(ledger.note(9, one(1), at(161), at(161)), []);
        assert_eq!(ledger.note(9, one(1), at(50), at(161)), []);
        assert_eq!(ledger.requests.sum, 1, "one of long ago is not added");
    }
}
