//! Whether a stream stands between two of its messages, told from the bytes that went by.
//!
//! Keeps no bytes, so that it can watch what is written to a client at no cost. Where it is not sure it
//! says no: after a lone CR, which half of a CRLF may follow, and in any body that is one message.

use super::framing::Framing;

#[derive(Clone, Copy, Debug)]
pub struct Border {
    framing: Framing,
    /// The current line has no bytes yet.
    line_is_empty: bool,
    /// The last line that ended was empty, or none has begun.
    is_between: bool,
}

impl Border {
    pub fn new(framing: Framing) -> Border {
        Border { framing, line_is_empty: true, is_between: true }
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        if bytes.len() > LOOK_BACK {
            // What came before the line before last does not matter.
            (self.line_is_empty, self.is_between) = (false, false);
        }
        for &byte in bytes.get(bytes.len().saturating_sub(LOOK_BACK)..).unwrap_or_default() {
            match byte {
                b'\n' => {
                    self.is_between = self.line_is_empty;
                    self.line_is_empty = true;
                }
                b'\r' => self.is_between = false,
                _ => (self.line_is_empty, self.is_between) = (false, false),
            }
        }
    }

    /// What may be written here and means nothing; `None`: nothing may.
    pub fn blank(&self) -> Option<&'static [u8]> {
        match self.framing {
            Framing::Events => self.is_between.then_some(b":\n\n"),
            // A blank before the next value. Official clients fail on an empty line.
            Framing::Lines => self.line_is_empty.then_some(b" "),
            Framing::Whole => None,
        }
    }
}

/// Enough for a byte, the end of its line and an empty line, each CRLF.
const LOOK_BACK: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(framing: Framing, chunks: &[&str], expected: Option<&str>) {
        let mut border = Border::new(framing);
        chunks.iter().for_each(|chunk| border.feed(chunk.as_bytes()));
        assert_eq!(border.blank(), expected.map(str::as_bytes), "{chunks:?}");
        let mut single = Border::new(framing);
        chunks.concat().bytes().for_each(|byte| single.feed(&[byte]));
        assert_eq!(single.blank(), expected.map(str::as_bytes), "{chunks:?} byte by byte");
    }

    #[test]
    fn str_08_a_comment_goes_between_events_only() {
        for between in ["", "data: a\n\n", "data: a\r\n\r\n", ": ping\n\n", "data: a\n\ndata: b\n\n"] {
            check(Framing::Events, &[between], Some(":\n\n"));
        }
        for within in ["d", "data: a", "data: a\n", "data: a\r\n", "data: a\r\n\r", "data: a\n\nd", "data: a\r\r"] {
            check(Framing::Events, &[within], None);
        }
        check(Framing::Events, &["data: a\r\n", "\r", "\n"], Some(":\n\n"));
        check(Framing::Events, &["data: a\n", "\n"], Some(":\n\n"));
    }

    #[test]
    fn str_08_a_blank_goes_between_lines_only() {
        check(Framing::Lines, &[""], Some(" "));
        check(Framing::Lines, &["{}\n"], Some(" "));
        check(Framing::Lines, &["{}\r\n"], Some(" "));
        check(Framing::Lines, &["{}\n{"], None);
        check(Framing::Whole, &[""], None);
        check(Framing::Whole, &["{}\n\n"], None);
    }
}
