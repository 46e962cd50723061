//! A body that is one message, kept until it ends.
//!
//! Keeps at most `BODY_LIMIT`; of a longer body (a large batch of embeddings) it only remembers how it
//! ends. Blanks in front, with which some servers keep a connection alive, cost nothing.

/// Longest body that is looked at.
pub(super) const BODY_LIMIT: usize = 1024 * 1024;

#[derive(Debug, Default)]
pub(super) struct Whole {
    held: Vec<u8>,
    over: bool,
    /// The last byte that was no blank.
    last: u8,
}

/// What there is to look at in the end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kept<'a> {
    All(&'a [u8]),
    /// Too long; whether it ended as an object does.
    TooLong {
        closed: bool,
    },
}

impl Whole {
    pub fn feed(&mut self, chunk: &[u8]) {
        let part = if self.held.is_empty() { chunk.trim_ascii_start() } else { chunk };
        self.last = chunk.trim_ascii_end().last().copied().unwrap_or(self.last);
        if self.over || self.held.len() + part.len() > BODY_LIMIT {
            self.over = true;
            self.held = Vec::new();
        } else {
            self.held.extend_from_slice(part);
        }
    }

    pub fn finish(&self) -> Kept<'_> {
        if self.over { Kept::TooLong { closed: self.last == b'}' } } else { Kept::All(&self.held) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(chunks: &[&[u8]], expected: Kept<'_>) {
        let mut whole = Whole::default();
        chunks.iter().for_each(|chunk| whole.feed(chunk));
        assert_eq!(whole.finish(), expected);
    }

    #[test]
    fn str_16_blanks_in_front_are_not_kept() {
        check(&[b" ", b" \n", b" {", b" }"], Kept::All(b"{ }"));
        check(&[b" ", b""], Kept::All(b""));
    }

    #[test]
    fn a_body_over_the_limit_is_known_by_its_end() {
        let long = vec![b'x'; BODY_LIMIT];
        check(&[&long], Kept::All(&long));
        check(&[&long, b"}", b" \n"], Kept::TooLong { closed: true });
        check(&[&long, b"xx"], Kept::TooLong { closed: false });
    }
}
