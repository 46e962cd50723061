//! What replicas publish for each other: bytes on one channel, many small things in one message.
//!
//! Ages are told and no moments, and a message says when it was sent by the wall clock, so that one which was held
//! up somewhere is not taken for news. What cannot be read, or is of another version, is left alone.

use serde::{Deserialize, Serialize};

use crate::routing::elsewhere::{NodeLoad, Turn};
use crate::routing::moment::Moment;

/// Of the form below and of what hashes mean: another number, another meaning.
const VERSION: u8 = 2;

/// What is longer is nobody's of ours.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    version: u8,
    pub replica: u64,
    /// Of which upstreams it tells: a hash of the names that are configured.
    pub fleet: u64,
    sent_ms: u64,
    /// `None`: they are as they were.
    pub loads: Option<Vec<NodeLoad>>,
    turns: Vec<(u32, Turn)>,
}

impl Message {
    /// `now` is the moment of `wall_ms`.
    pub fn new(
        (replica, fleet): (u64, u64),
        loads: Option<Vec<NodeLoad>>,
        turns: &[(Moment, Turn)],
        now: Moment,
        wall_ms: u64,
    ) -> Message {
        let age = |at: Moment| u32::try_from(now.since(at).as_millis()).unwrap_or(u32::MAX);
        let turns = turns.iter().map(|(at, turn)| (age(*at), turn.clone())).collect();
        Message { version: VERSION, replica, fleet, sent_ms: wall_ms, loads, turns }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).unwrap_or_default()
    }

    pub fn of(bytes: &[u8]) -> Option<Message> {
        // The version comes first, whatever follows.
        let known = bytes.first() == Some(&VERSION) && bytes.len() <= MESSAGE_BYTES_MAX;
        if known { postcard::from_bytes(bytes).ok() } else { None }
    }

    /// How long it was under way, as far as clocks agree.
    pub fn under_way_ms(&self, wall_ms: u64) -> u64 {
        wall_ms.saturating_sub(self.sent_ms)
    }

    /// The turns, and how long ago each was when it is `wall_ms`.
    pub fn turns(&self, wall_ms: u64) -> impl Iterator<Item = (u64, &Turn)> {
        let under_way = self.under_way_ms(wall_ms);
        self.turns.iter().map(move |(age, turn)| (u64::from(*age).saturating_add(under_way), turn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::elsewhere::Held;
    use crate::routing::session::SharedPin;

    fn turn() -> Turn {
        let pin = SharedPin { key: 1, root: 2, previous: 3, turns: 4 };
        Turn { pin, named: Some(5), node: 6, held: Some(Held { model: 7, prompt_tokens: 8, links: vec![(9, 10)] }) }
    }

    #[test]
    fn what_was_sent_is_read_with_its_age() {
        let sent = Message::new((11, 12), Some(Vec::new()), &[(Moment(1_000_000), turn())], Moment(1_500_000), 100_000);
        let read = Message::of(&sent.to_bytes()).expect("a message");
        assert_eq!(read, sent);
        assert_eq!(read.turns(100_030).map(|(age, turn)| (age, turn.clone())).collect::<Vec<_>>(), [(530, turn())]);
        assert_eq!(read.turns(99_000).next().map(|(age, _)| age), Some(500), "a clock that is behind");
    }

    #[test]
    fn bytes_from_outside_never_end_the_process() {
        let good = Message::new((11, 12), None, &[(Moment(0), turn())], Moment(0), 0).to_bytes();
        for cut in 0..good.len() {
            assert_eq!(Message::of(&good[..cut]), None, "{cut}");
        }
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut turned = good.clone();
                turned[at] ^= 1 << bit;
                let _ = Message::of(&turned);
            }
        }
        assert_eq!(Message::of(b"\x03something"), None);
    }
}
