//! Where the frames of a stream end, in whatever chunks it comes: with a line, or with a blank one.
//!
//! Lines end with LF or CRLF; one that ends otherwise is not understood, and neither is what follows.

/// How far into a line the stream is.
#[derive(Debug, Default)]
pub struct FrameEnd {
    /// Bytes of the current line, its ending not counted.
    line_bytes: usize,
    after_cr: bool,
}

/// What ends a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Every line, as with lines of JSON.
    Line,
    /// A blank line, as with server-sent events.
    BlankLine,
}

/// A line ended in a way that is not known here.
#[derive(Debug, PartialEq, Eq)]
pub struct Lost;

impl FrameEnd {
    /// Where in these bytes, which follow the last, the current frame ends; `None`: not in them.
    pub fn find(&mut self, bytes: &[u8], ends: Ends) -> Result<Option<usize>, Lost> {
        for (at, &byte) in bytes.iter().enumerate() {
            match byte {
                b'\n' => {
                    self.after_cr = false;
                    let is_blank = std::mem::take(&mut self.line_bytes) == 0;
                    if is_blank || ends == Ends::Line {
                        return Ok(Some(at + 1));
                    }
                }
                _ if self.after_cr => return Err(Lost),
                b'\r' => self.after_cr = true,
                _ => self.line_bytes += 1,
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(chunks: &[&str], ends: Ends, expected: &[Result<Option<usize>, Lost>]) {
        let mut end = FrameEnd::default();
        let found: Vec<_> = chunks.iter().map(|chunk| end.find(chunk.as_bytes(), ends)).collect();
        assert_eq!(found, expected, "{chunks:?}");
    }

    #[test]
    fn frames_end_with_a_line_or_a_blank_one_across_chunks() {
        check(&["{}\n"], Ends::Line, &[Ok(Some(3))]);
        check(&["{}\r", "\n"], Ends::Line, &[Ok(None), Ok(Some(1))]);
        check(&["data: 1\n", "\nda"], Ends::BlankLine, &[Ok(None), Ok(Some(1))]);
        check(&["data: 1\r\n\r", "\n"], Ends::BlankLine, &[Ok(None), Ok(Some(1))]);
        check(&["data: 1\r", "\r"], Ends::BlankLine, &[Ok(None), Err(Lost)]);
    }
}
