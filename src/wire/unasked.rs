//! Takes out of a stream of OpenAI's the one event that only Warmgate asked for: counts without choices.
//!
//! An event leaves with its last byte, in the chunk it came in. Only the beginning of one whose end has not
//! come is kept back, since it may be the one; no reader can use it before that. An event longer than
//! `HELD_LIMIT` is none, and passes as it comes. Lines end with LF or CRLF; a stream that ends them
//! otherwise is passed on unchanged from there.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::frame_end::{Ends, FrameEnd};

/// Most that is kept back. An event of counts has some hundred bytes.
const HELD_LIMIT: usize = 16 * 1024;

/// The filter of one stream.
#[derive(Debug, Default)]
pub struct Unasked {
    /// The beginning of an event.
    held: Vec<u8>,
    /// The event is too long to be the one: the rest of it passes as it comes.
    passing: bool,
    end: FrameEnd,
    /// A line ended in a way that is not known here.
    lost: bool,
}

impl Unasked {
    /// What of a chunk goes to the client; `None`: all of it, as it came.
    pub fn feed(&mut self, chunk: &[u8]) -> Option<Vec<u8>> {
        if self.lost {
            return None;
        }
        let mut changed = !self.held.is_empty();
        let mut passed = Vec::with_capacity(self.held.len().saturating_add(chunk.len()));
        let mut rest = chunk;
        while let Some(end) = self.end_of_event(rest) {
            let (event, after) = rest.split_at_checked(end)?;
            changed |= !self.end(event, &mut passed);
            rest = after;
        }
        changed |= !self.keep(rest, &mut passed);
        changed.then_some(passed)
    }

    /// The stream is over: what was kept back.
    pub fn finish(self) -> Vec<u8> {
        self.held
    }

    /// Where in these bytes the current event ends; `None`: not in them.
    fn end_of_event(&mut self, bytes: &[u8]) -> Option<usize> {
        let found = self.end.find(bytes, Ends::BlankLine);
        self.lost |= found.is_err();
        found.ok().flatten()
    }

    /// An event with its last bytes; false: it is taken out.
    fn end(&mut self, last: &[u8], passed: &mut Vec<u8>) -> bool {
        if std::mem::take(&mut self.passing) {
            passed.extend_from_slice(last);
            return true;
        }
        let event = if self.held.is_empty() {
            Cow::Borrowed(last)
        } else {
            self.held.extend_from_slice(last);
            Cow::Owned(std::mem::take(&mut self.held))
        };
        let stays = !is_counts_alone(&event);
        if stays {
            passed.extend_from_slice(&event);
        }
        stays
    }

    /// The beginning of an event, or more of it; false: it is kept back.
    fn keep(&mut self, part: &[u8], passed: &mut Vec<u8>) -> bool {
        let fits = self.held.len().saturating_add(part.len()) <= HELD_LIMIT;
        if fits && !self.passing && !self.lost {
            self.held.extend_from_slice(part);
            return part.is_empty();
        }
        self.passing = true;
        passed.append(&mut std::mem::take(&mut self.held));
        passed.extend_from_slice(part);
        true
    }
}

/// Whether an event has counts, an empty list of choices, and says nothing else.
fn is_counts_alone(event: &[u8]) -> bool {
    // Most events have no counts; this finds that out without reading them.
    if !event.windows(USAGE.len()).any(|part| part == USAGE) {
        return false;
    }
    let mut data = event.split(|&b| b == b'\n').filter_map(|line| line.strip_prefix(b"data:"));
    let (Some(only), None) = (data.next(), data.next()) else { return false };
    serde_json::from_slice(only).is_ok_and(|Chunk { choices, usage, others }| {
        let says = |(name, value): (&String, &Option<IgnoredAny>)| value.is_some() && !USUAL.contains(&name.as_str());
        choices.is_empty() && usage.is_some() && !others.iter().any(says)
    })
}

const USAGE: &[u8] = br#""usage""#;

/// What such an event carries besides: what it belongs to, padding, and llama.cpp's times.
const USUAL: [&str; 8] =
    ["id", "object", "created", "model", "system_fingerprint", "service_tier", "obfuscation", "timings"];

#[derive(Deserialize)]
struct Chunk {
    choices: Vec<IgnoredAny>,
    usage: Option<Counts>,
    #[serde(flatten)]
    others: BTreeMap<String, Option<IgnoredAny>>,
}

/// An object, whatever it counts.
#[derive(Deserialize)]
struct Counts {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WORD: &str = r#"data: {"choices":[{"index":0,"delta":{"content":"usage"}}],"usage":null}"#;
    const COUNTS: &str = r#"data: {"id":"c","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4}}"#;
    const DONE: &str = "data: [DONE]";

    fn passed(chunks: &[&[u8]]) -> Vec<u8> {
        let mut filter = Unasked::default();
        let mut passed: Vec<u8> =
            chunks.iter().flat_map(|chunk| filter.feed(chunk).unwrap_or_else(|| chunk.to_vec())).collect();
        passed.extend(filter.finish());
        passed
    }

    #[track_caller]
    fn check(stream: &str, expected: &str) {
        assert_eq!(String::from_utf8_lossy(&passed(&[stream.as_bytes()])), expected, "in one chunk");
        for size in [1, 2, 3, 7, 64] {
            let chunks: Vec<&[u8]> = stream.as_bytes().chunks(size).collect();
            assert_eq!(String::from_utf8_lossy(&passed(&chunks)), expected, "in chunks of {size}");
        }
    }

    #[test]
    fn acc_01_only_the_event_of_counts_alone_is_taken_out() {
        for end in ["\n\n", "\r\n\r\n"] {
            let stream = [WORD, COUNTS, DONE, ""].join(end);
            check(&stream, &[WORD, DONE, ""].join(end));
        }
        check(&format!(": ping\n\n{COUNTS}\n\nevent: zig\ndata: {{}}\n\n"), ": ping\n\nevent: zig\ndata: {}\n\n");
        check(&format!("id: 1\n{}\n\n", COUNTS.replace("data: ", "data:")), "");
    }

    #[test]
    fn acc_01_counts_beside_choices_and_choices_without_counts_stay() {
        for data in [
            r#"{"choices":[{"index":0,"delta":{}}],"usage":{"prompt_tokens":9}}"#,
            r#"{"choices":[],"prompt_filter_results":[]}"#,
            r#"{"choices":[],"usage":null}"#,
            r#"{"usage":{"prompt_tokens":9}}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":9}"#,
            r#"{"error":{"message":"\"choices\":[],\"usage\":{}"}}"#,
        ] {
            let stream = format!("data: {data}\n\n{DONE}\n\n");
            check(&stream, &stream);
        }
    }

    #[test]
    fn counts_beside_an_error_or_anything_else_that_speaks_stay() {
        for more in [r#""error":{"message":"runner stopped"}"#, r#""error":"x""#, r#""prompt_filter_results":[]"#] {
            let event = format!("data: {{\"choices\":[],{more},\"usage\":{{\"prompt_tokens\":1}}}}\n\n");
            check(&event, &event);
        }
        let usual =
            r#""object":"chat.completion.chunk","created":1,"model":"m","system_fingerprint":null,"error":null"#;
        check(&format!("data: {{\"choices\":[],{usual},\"usage\":{{}}}}\n\n"), "");
    }

    #[test]
    fn whole_events_are_never_kept_back() {
        let mut filter = Unasked::default();
        let word = format!("{WORD}\n\n");
        assert_eq!(filter.feed(word.as_bytes()), None, "as it came, uncopied");
        let and_more = format!("{word}data: {{");
        assert_eq!(filter.feed(and_more.as_bytes()).as_deref(), Some(word.as_bytes()));
        assert_eq!(filter.feed(b"}\n\n").as_deref(), Some(&b"data: {}\n\n"[..]));
        assert_eq!(filter.finish(), b"");
    }

    #[test]
    fn a_stream_that_ends_within_an_event_is_given_back_whole() {
        let cut = format!("{WORD}\n\n{}", &COUNTS[..20]);
        check(&cut, &cut);
        check(COUNTS, COUNTS);
    }

    #[test]
    fn str_06_a_long_event_passes_as_it_comes() {
        let long = format!("data: {}\n\n", "x".repeat(HELD_LIMIT));
        check(&format!("{long}{COUNTS}\n\n{long}"), &format!("{long}{long}"));
        let mut filter = Unasked::default();
        let (begin, end) = long.split_at(HELD_LIMIT + 1);
        assert_eq!(filter.feed(begin.as_bytes()), None);
        assert_eq!(filter.feed(&end.as_bytes()[..1]), None);
        assert!(filter.held.is_empty());
    }

    #[test]
    fn str_05_lines_that_end_with_cr_alone_pass_unchanged() {
        let stream = [WORD, COUNTS, DONE, ""].join("\r\r");
        check(&stream, &stream);
    }

    proptest! {
        #[test]
        fn any_bytes_pass_in_any_chunks(bytes in proptest::collection::vec(
            prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'd'), any::<u8>()], 0..200
        ), size in 1_usize..20) {
            let chunks: Vec<&[u8]> = bytes.chunks(size).collect();
            prop_assert_eq!(passed(&chunks), bytes);
        }
    }
}
