//! Lines out of chunks that know nothing of lines.
//!
//! A line ends with LF, CR or CRLF, even when a read falls between the two. JSON writes none of these
//! inside a value, so one splitter serves both NDJSON and server-sent events. A line that lies in one chunk
//! is lent from it, not copied; one longer than `EVENT_LIMIT` is told as too long and not kept.

use memchr::memchr2;

/// Longest line, and longest event, that is looked at. Ollama's last line carries the `context`, some
/// six bytes a token: this holds that of 80,000 tokens.
pub(super) const EVENT_LIMIT: usize = 512 * 1024;

/// Room that stays with a stream between lines; an open stream should cost little.
const KEPT_ROOM: usize = 4 * 1024;

const BOM: &[u8] = b"\xef\xbb\xbf";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    Text(&'a [u8]),
    TooLong,
}

#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The beginning of a line whose end has not come.
    held: Vec<u8>,
    /// The line is over the limit; its bytes are dropped until it ends.
    over: bool,
    /// The last byte was a CR, so an LF now belongs to it.
    after_cr: bool,
    /// The first line, which may begin with a byte order mark, is over.
    begun: bool,
}

impl Lines {
    pub fn feed(&mut self, chunk: &[u8], mut each: impl FnMut(Line<'_>)) {
        let mut rest = chunk;
        if self.after_cr && !rest.is_empty() {
            self.after_cr = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(at) = memchr2(b'\n', b'\r', rest) {
            let (line, ending) = rest.split_at(at);
            self.end(line, &mut each);
            rest = match ending {
                [b'\r', b'\n', after @ ..] => after,
                [b'\r'] => {
                    self.after_cr = true;
                    &[]
                }
                [_, after @ ..] => after,
                [] => &[],
            };
        }
        self.hold(rest);
    }

    /// Gives a last line that nothing ended.
    pub fn finish(&mut self, mut each: impl FnMut(Line<'_>)) {
        if self.in_line() {
            self.end(&[], &mut each);
        }
    }

    /// Whether a line has begun and not ended.
    pub fn in_line(&self) -> bool {
        self.over || !self.held.is_empty()
    }

    #[cfg(test)]
    pub fn room(&self) -> usize {
        self.held.capacity()
    }

    fn end(&mut self, rest: &[u8], each: &mut impl FnMut(Line<'_>)) {
        if !self.held.is_empty() {
            self.hold(rest);
        }
        let line = if self.held.is_empty() { rest } else { &self.held };
        if self.over || line.len() > EVENT_LIMIT {
            each(Line::TooLong);
        } else {
            let mark = if self.begun { &[] } else { BOM };
            each(Line::Text(line.strip_prefix(mark).unwrap_or(line)));
        }
        self.begun = true;
        self.over = false;
        empty(&mut self.held);
    }

    fn hold(&mut self, part: &[u8]) {
        if self.over || self.held.len() + part.len() > EVENT_LIMIT {
            self.over = true;
            self.held = Vec::new();
        } else {
            self.held.extend_from_slice(part);
        }
    }
}

/// Empties a buffer and gives back what one large event made it grow to.
pub(super) fn empty(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.shrink_to(KEPT_ROOM);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::default();
        let mut found = vec![];
        let mut keep = |line: Line<'_>| {
            found.push(match line {
                Line::Text(text) => String::from_utf8_lossy(text).into_owned(),
                Line::TooLong => "too long".into(),
            });
        };
        for chunk in chunks {
            lines.feed(chunk, &mut keep);
        }
        lines.finish(&mut keep);
        found
    }

    #[track_caller]
    fn check(chunks: &[&[u8]], expected: &[&str]) {
        assert_eq!(lines(chunks), expected);
    }

    #[test]
    fn str_04_lines_do_not_match_chunks() {
        check(&[b"a\nb\nc", b"d\ne"], &["a", "b", "cd", "e"]);
        check(&[b"a", b"", b"\n"], &["a"]);
        check(&[], &[]);
    }

    #[test]
    fn str_05_every_line_ending_ends_one_line() {
        check(&[b"a\nb\n\n"], &["a", "b", ""]);
        check(&[b"a\r\nb\r\n\r\n"], &["a", "b", ""]);
        check(&[b"a\rb\r\r"], &["a", "b", ""]);
        check(&[b"a\r", b"\nb\r", b"", b"\n\r", b"\n"], &["a", "b", ""]);
    }

    #[test]
    fn a_byte_order_mark_is_no_text() {
        check(&[b"\xef\xbb", b"\xbfa\n\xef\xbb\xbfb"], &["a", "\u{feff}b"]);
    }

    #[test]
    fn str_06_a_line_over_the_limit_is_not_kept() {
        let long = vec![b'x'; EVENT_LIMIT + 1];
        check(&[&long, b"\nb"], &["too long", "b"]);
        check(&[&long[1..], b"x", b"x\n", b"b\n"], &["too long", "b"]);
        let mut whole = long;
        whole.extend_from_slice(b"\nb\n");
        check(&[&whole], &["too long", "b"]);
        assert_eq!(lines(&[&whole[1..]])[0].len(), EVENT_LIMIT);
    }
}
