//! The latest pieces of an answer on their way to the client.
//!
//! Pingora filters up to a handful of pieces before it writes the first of them, and writes none if one fails.
//! What goes on elsewhere must begin behind what the client has, so that these are kept until it has them.

use std::collections::VecDeque;

use bytes::Bytes;

/// More than Pingora has under way at once (four).
const PIECES_MAX: usize = 16;

#[derive(Default)]
pub(super) struct Outgoing {
    pieces: VecDeque<Bytes>,
    /// Where the last of them ends.
    end: u64,
}

impl Outgoing {
    /// Behind that many bytes.
    pub fn from(given: u64) -> Outgoing {
        Outgoing { pieces: VecDeque::new(), end: given }
    }

    pub fn add(&mut self, piece: &Bytes) {
        self.end += piece.len() as u64;
        if self.pieces.len() >= PIECES_MAX {
            self.pieces.pop_front();
        }
        self.pieces.push_back(piece.clone());
    }

    /// What comes behind that many bytes; `None`: more than is kept.
    pub fn behind(self, given: u64) -> Option<Vec<u8>> {
        let missing = usize::try_from(self.end.saturating_sub(given)).ok()?;
        let kept = Vec::from(self.pieces).concat();
        kept.get(kept.len().checked_sub(missing)?..).map(<[u8]>::to_vec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_client_lacks_is_the_end_of_what_was_passed() {
        let outgoing = |pieces: &[&'static str]| {
            let mut outgoing = Outgoing::from(10);
            pieces.iter().for_each(|piece| outgoing.add(&Bytes::from_static(piece.as_bytes())));
            outgoing
        };
        assert_eq!(outgoing(&["abc", "de"]).behind(15).as_deref(), Some(&b""[..]));
        assert_eq!(outgoing(&["abc", "de"]).behind(12).as_deref(), Some(&b"cde"[..]));
        assert_eq!(outgoing(&[]).behind(10).as_deref(), Some(&b""[..]));
        assert_eq!(outgoing(&["ab"; PIECES_MAX + 1]).behind(12).map(|bytes| bytes.len()), Some(2 * PIECES_MAX));
        assert_eq!(outgoing(&["ab"; PIECES_MAX + 1]).behind(10), None, "the first is forgotten");
    }
}
