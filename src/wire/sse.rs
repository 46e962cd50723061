//! Server-sent events out of a stream's bytes.
//!
//! Follows the event stream format of the HTML standard where engines do, and is more lenient where
//! they are careless: an event that the end of the stream cut off from its blank line still counts. An
//! event longer than `EVENT_LIMIT` is passed over; the next one is read again.

use memchr::memchr;

use super::lines::{EVENT_LIMIT, Line, Lines, empty};

/// Names of the events that end a stream of OpenAI's Responses. They repeat the whole answer and what it
/// was asked, so they are the ones that may be longer than `EVENT_LIMIT`.
const LAST_NAMES: [&[u8]; 3] = [b"response.completed", b"response.incomplete", b"response.failed"];

/// One event: its data lines joined, and what its name tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event<'a> {
    pub data: &'a [u8],
    pub is_error: bool,
    /// It ends the stream, and is too long to be read.
    pub is_unread_end: bool,
}

#[derive(Debug, Default)]
pub(super) struct Events {
    lines: Lines,
    pending: Pending,
}

/// The event whose blank line has not come.
#[derive(Debug, Default)]
struct Pending {
    data: Vec<u8>,
    begun: bool,
    has_data: bool,
    is_error: bool,
    is_last: bool,
    over: bool,
}

impl Events {
    pub fn feed(&mut self, chunk: &[u8], mut each: impl FnMut(Event<'_>)) {
        let pending = &mut self.pending;
        self.lines.feed(chunk, |line| pending.line(line, &mut each));
    }

    pub fn finish(&mut self, mut each: impl FnMut(Event<'_>)) {
        let pending = &mut self.pending;
        self.lines.finish(|line| pending.line(line, &mut each));
        // Of what is too long to be read, only its blank line tells that it is whole.
        pending.is_last = false;
        pending.end(&mut each);
    }

    /// Whether an event has begun and not ended.
    pub fn in_event(&self) -> bool {
        self.lines.in_line() || self.pending.begun
    }

    #[cfg(test)]
    pub fn room(&self) -> usize {
        self.lines.room() + self.pending.data.capacity()
    }
}

impl Pending {
    fn line(&mut self, line: Line<'_>, each: &mut impl FnMut(Event<'_>)) {
        let Line::Text(line) = line else {
            self.begun = true;
            self.over = true;
            return;
        };
        if line.is_empty() {
            return self.end(each);
        }
        self.begun = true;
        let colon = memchr(b':', line).unwrap_or(line.len());
        let (name, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => self.data(value),
            b"event" => {
                self.is_error = value == b"error";
                self.is_last = LAST_NAMES.contains(&value);
            }
            // Older llama.cpp servers name the field so instead of the event.
            b"error" => self.is_error = true,
            // Comments (an empty name), ids, retry times and fields nobody knows.
            _ => {}
        }
    }

    fn data(&mut self, value: &[u8]) {
        if self.over || self.data.len() + value.len() + 1 > EVENT_LIMIT {
            self.over = true;
            self.data = Vec::new();
            return;
        }
        if self.has_data {
            self.data.push(b'\n');
        }
        self.has_data = true;
        self.data.extend_from_slice(value);
    }

    fn end(&mut self, each: &mut impl FnMut(Event<'_>)) {
        let is_unread_end = self.over && self.is_last;
        if (self.has_data && !self.over) || self.is_error || is_unread_end {
            each(Event { data: &self.data, is_error: self.is_error, is_unread_end });
        }
        let mut data = std::mem::take(&mut self.data);
        empty(&mut data);
        *self = Pending { data, ..Pending::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(chunks: &[&[u8]]) -> Vec<(String, bool)> {
        let mut events = Events::default();
        let mut found = vec![];
        let mut keep = |e: Event<'_>| found.push((String::from_utf8_lossy(e.data).into_owned(), e.is_error));
        for chunk in chunks {
            events.feed(chunk, &mut keep);
        }
        events.finish(&mut keep);
        found
    }

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let expected: Vec<_> = expected.iter().map(|data| (data.to_string(), false)).collect();
        assert_eq!(events(&[text.as_bytes()]), expected);
        let single: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(events(&single), expected, "byte by byte");
    }

    #[test]
    fn str_05_field_forms() {
        check("data: a\n\ndata:b\n\n", &["a", "b"]);
        check("data: a\r\n\r\ndata:b\r\n\r\n", &["a", "b"]);
        check("data: a\r\rdata:b\r\r", &["a", "b"]);
        check("\u{feff}data: a\ndata: b\n\n", &["a\nb"]);
        check("data:  a\ndata\n\n", &[" a\n"]);
        check("data: a", &["a"]);
    }

    #[test]
    fn str_07_comments_and_unknown_events_are_passed_over() {
        check(":\n\n:\n\n: wait\ndata: a\n\nid: 7\nretry: 3\n\nevent: zig\ndata: b\n\n", &["a", "b"]);
    }

    #[test]
    fn str_11_an_event_named_error_is_one() {
        assert_eq!(events(&[b"event: error\ndata: x\n\ndata: y\n\n"]), [("x".into(), true), ("y".into(), false)]);
        assert_eq!(events(&[b"error: {}\n\n"]), [("".into(), true)]);
    }

    #[test]
    fn str_06_an_event_over_the_limit_is_passed_over() {
        let half = format!("data: {}\n", "x".repeat(EVENT_LIMIT / 2));
        check(&format!("{half}{half}\ndata: a\n\n"), &["a"]);
        check(&format!("data: {}\n\ndata: a\n\n", "x".repeat(4 << 20)), &["a"]);
    }

    #[test]
    fn str_06_an_end_too_long_to_read_is_known_by_its_name() {
        let ends = |data: &str, after: &str| {
            let (mut events, mut ends) = (Events::default(), false);
            let text = format!("event: response.completed\ndata: {data}{after}");
            events.feed(text.as_bytes(), |e| ends |= e.is_unread_end);
            events.finish(|e| ends |= e.is_unread_end);
            ends
        };
        let long = "x".repeat(EVENT_LIMIT + 1);
        assert!(ends(&long, "\n\n"));
        assert!(!ends(&long, ""), "cut");
        assert!(!ends("x", "\n\n"), "its data tells");
    }

    #[test]
    fn a_begun_event_is_known() {
        let mut events = Events::default();
        for (chunk, begun) in [("data: a\n\n", false), ("da", true), ("ta: b\n", true), ("\n", false), (":\n", true)] {
            events.feed(chunk.as_bytes(), |_| {});
            assert_eq!(events.in_event(), begun, "{chunk:?}");
        }
    }
}
