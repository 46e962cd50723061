//! What an answer tells about its run, read on a copy while it is relayed.
//!
//! An `Observer` takes the bytes as they come, in any chunks, and changes none. It keeps at most a line,
//! an event (`lines::EVENT_LIMIT`) or a small body (`whole::BODY_LIMIT`); what is longer goes unread and
//! only that. What an answer did not tell stays unknown.

use super::event::{self, Reading};
use super::framing::Framing;
use super::lines::{Line, Lines};
use super::pattern::Pattern;
use super::sse::{Event, Events};
use super::usage::Usage;
use super::whole::{Kept, Whole};
use crate::routing::ask::Endpoint;

/// What was learnt from an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    pub prompt_tokens: Option<u32>,
    /// Prompt tokens that the engine did not have to compute.
    pub cached_tokens: Option<u32>,
    pub output_tokens: Option<u32>,
    /// How long the engine loaded the model for this answer.
    pub load_ms: Option<u64>,
    /// Hash of the link with which a request begins that sends this answer's `context` back (Ollama's
    /// generate only).
    pub context: Option<u64>,
    /// Hash of the id that a later request names as its `previous_response_id` (OpenAI's Responses only).
    pub response_id: Option<u64>,
    /// The end of the answer was seen: a terminal marker, or all of a plain body.
    pub complete: bool,
    /// The engine reported an error inside the answer.
    pub error: bool,
    /// Messages with some of the model's output in them.
    pub content_events: u32,
}

/// Where between two messages a stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// What was sent so far ends with a whole message.
    Between,
    /// A message has begun and not ended.
    Within,
}

/// Reads one answer.
#[derive(Debug)]
pub struct Observer {
    endpoint: Endpoint,
    body: Body,
    seen: Seen,
}

/// What was learnt, and how the messages look that tell nothing new.
#[derive(Debug, Default)]
struct Seen {
    observed: Observed,
    /// The latest that told nothing, or only that something was said: most messages are like it.
    usual: Option<(Pattern, Reading)>,
}

#[derive(Debug)]
enum Body {
    Events(Events),
    Lines(Lines),
    Whole(Whole),
}

impl Observer {
    pub fn new(endpoint: Endpoint, content_type: &str) -> Observer {
        let body = match Framing::of(content_type) {
            Framing::Events => Body::Events(Events::default()),
            Framing::Lines => Body::Lines(Lines::default()),
            Framing::Whole => Body::Whole(Whole::default()),
        };
        Observer { endpoint, body, seen: Seen::default() }
    }

    pub fn feed(&mut self, chunk: &[u8]) {
        let seen = &mut self.seen;
        match &mut self.body {
            Body::Events(events) => events.feed(chunk, |event| seen.event(event)),
            Body::Lines(lines) => lines.feed(chunk, |line| seen.line(line)),
            Body::Whole(whole) => whole.feed(chunk),
        }
    }

    /// Whether the bytes so far end between two messages; an error frame has to know.
    pub fn place(&self) -> Place {
        let within = match &self.body {
            Body::Events(events) => events.in_event(),
            Body::Lines(lines) => lines.in_line(),
            Body::Whole(_) => true,
        };
        if within { Place::Within } else { Place::Between }
    }

    /// What was learnt up to here.
    pub fn so_far(&self) -> Observed {
        self.seen.observed
    }

    /// No more bytes will come, for whatever reason.
    pub fn finish(mut self) -> Observed {
        let Seen { mut observed, .. } = match &mut self.body {
            Body::Events(events) => {
                events.finish(|event| self.seen.event(event));
                self.seen
            }
            Body::Lines(lines) => {
                lines.finish(|line| self.seen.line(line));
                self.seen
            }
            Body::Whole(whole) => {
                self.seen.observed.whole(whole.finish());
                self.seen
            }
        };
        if !self.endpoint.is_conversation() {
            // Some servers count zero tokens of output where there is none to count.
            observed.output_tokens = None;
        }
        observed
    }
}

impl Seen {
    fn event(&mut self, event: Event<'_>) {
        self.observed.error |= event.is_error;
        self.observed.complete |= event.is_unread_end;
        if event.data.trim_ascii() == b"[DONE]" {
            self.observed.complete = true;
        } else {
            self.message(event.data);
        }
    }

    fn line(&mut self, line: Line<'_>) {
        if let Line::Text(text) = line {
            self.message(text);
        }
    }

    fn message(&mut self, json: &[u8]) {
        if let Some((pattern, told)) = &self.usual
            && pattern.fits(json)
        {
            self.observed.add(*told);
        } else if let Some(told) = event::read(json) {
            self.observed.add(told);
            if told.is_usual() {
                self.usual = Pattern::of(json).map(|pattern| (pattern, told)).or(self.usual.take());
            }
        }
    }
}

impl Observed {
    fn whole(&mut self, kept: Kept<'_>) {
        match kept {
            Kept::TooLong { closed } => self.complete = closed,
            Kept::All(body) => {
                if let Some(told) = event::read(body) {
                    self.add(told);
                    self.complete = true;
                }
            }
        }
    }

    /// A later message knows better than an earlier one.
    fn add(&mut self, told: Reading) {
        let before = Usage { prompt: self.prompt_tokens, cached: self.cached_tokens, output: self.output_tokens };
        let usage = told.usage.or(before);
        self.prompt_tokens = usage.prompt;
        self.cached_tokens = usage.cached;
        self.output_tokens = usage.output;
        self.load_ms = told.load_ms.or(self.load_ms);
        self.context = told.context.or(self.context);
        self.response_id = told.response_id.or(self.response_id);
        self.complete |= told.is_last;
        self.error |= told.is_error;
        self.content_events = self.content_events.saturating_add(u32::from(told.has_content));
    }
}

#[cfg(test)]
mod tests;
