//! A stream of events as a stream of lines.
//!
//! Each event that says something becomes a line at once; only tool calls wait until the model has stopped,
//! since Ollama tells them whole. The last line waits for the end, because counts come after the last word.
//! A stream that breaks off, or says what cannot be read, ends with an error and never with `done:true`.

use super::answer::End;
use super::fault;
use super::gather::{Gather, Problem};
use super::json::Json;
use super::line::{self, Done, Form, Piece, Took};
use super::said::{self, Usage};
use crate::wire::lines::EVENT_LIMIT;
use crate::wire::sse::{Event, Events};

const CUT: &str = "the node's answer ended before it was complete";
const TOO_LONG: &str = "the node sent an event that is too long to be translated";
const UNREADABLE: &str = "the node sent an event that cannot be read";
const NO_WORDS: &str = "the node reported an error without words";

#[derive(Debug)]
pub(super) struct Stream {
    events: Events,
    /// Bytes of the event that has begun. `Events` passes over one that is too long; here it would be
    /// a hole in the text.
    begun: usize,
    talk: Talk,
}

/// What was understood so far.
#[derive(Debug)]
struct Talk {
    form: Form,
    calls: Gather,
    usage: Usage,
    finish: Option<String>,
    marked: bool,
    failed: bool,
    /// It failed by what the model wrote.
    misspoken: bool,
    /// No more bytes come: what cannot be read was cut.
    ended: bool,
}

impl Stream {
    pub fn new(form: Form) -> Stream {
        let talk = Talk {
            form,
            calls: Gather::default(),
            usage: Usage::default(),
            finish: None,
            marked: false,
            failed: false,
            misspoken: false,
            ended: false,
        };
        Stream { events: Events::default(), begun: 0, talk }
    }

    pub fn feed(&mut self, chunk: &[u8], at: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let talk = &mut self.talk;
        // By lines, so that what is counted is one event's.
        for part in chunk.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            self.begun += part.len();
            if self.begun > EVENT_LIMIT {
                talk.fail(TOO_LONG, &mut out);
            }
            if talk.is_over() {
                break;
            }
            self.events.feed(part, |event| talk.event(event, at, &mut out));
            if !self.events.in_event() {
                self.begun = 0;
            }
        }
        out
    }

    /// The last line, and how the answer ends.
    pub fn finish(mut self, at: &str, took: Took) -> (Vec<u8>, End) {
        let mut out = Vec::new();
        let talk = &mut self.talk;
        talk.ended = true;
        if !talk.is_over() {
            self.events.finish(|event| talk.event(event, at, &mut out));
        }
        talk.tell_calls(at, &mut out);
        if talk.finish.is_none() && !talk.marked {
            talk.fail(CUT, &mut out);
        }
        if !talk.failed {
            talk.last(at, took, &mut out);
        }
        let end = match talk.failed {
            true if talk.misspoken => End::Misspoken,
            true => End::Failed,
            false => End::Whole,
        };
        (out, end)
    }
}

impl Talk {
    /// Nothing that comes now is of the answer.
    fn is_over(&self) -> bool {
        self.failed || self.marked
    }

    fn fail(&mut self, message: &str, out: &mut Vec<u8>) {
        if !self.failed {
            line::write_error(message, out);
        }
        self.failed = true;
    }

    fn event(&mut self, event: Event<'_>, at: &str, out: &mut Vec<u8>) {
        let data = event.data.trim_ascii();
        if self.is_over() {
            return;
        }
        if event.is_error {
            self.fail(fault::text(data).as_deref().unwrap_or(NO_WORDS), out);
        } else if data == b"[DONE]" {
            self.marked = true;
            self.tell_calls(at, out);
        } else if !data.is_empty() {
            self.message(data, at, out);
        }
    }

    fn message(&mut self, data: &[u8], at: &str, out: &mut Vec<u8>) {
        let Some(said) = said::read(data) else {
            return self.fail(if self.ended { CUT } else { UNREADABLE }, out);
        };
        if let Some(error) = said.error {
            return self.fail(&error, out);
        }
        self.usage = said.usage.or(self.usage);
        if said.content.or(said.thinking).or(said.logprobs).is_some() {
            let piece = Piece {
                content: said.content.map(Json::Raw),
                thinking: said.thinking.map(Json::Raw),
                logprobs: said.logprobs.map(Json::Raw),
                tool_calls: None,
            };
            line::write(&self.form.object(at, piece, None), out);
        }
        if let Some(Err(problem)) = said.tool_calls.map(|pieces| self.calls.add(pieces)) {
            return self.object_to(problem, out);
        }
        if let Some(finish) = said.finish {
            self.finish = Some(finish.into_owned());
            self.tell_calls(at, out);
        }
    }

    fn tell_calls(&mut self, at: &str, out: &mut Vec<u8>) {
        if self.failed {
            return;
        }
        let is_cut = self.finish.as_deref().map_or(self.ended && !self.marked, line::is_cut);
        match if is_cut { self.calls.take_whole() } else { self.calls.take() } {
            Ok(None) => {}
            Ok(tool_calls) => {
                let piece = Piece { tool_calls, ..Piece::default() };
                line::write(&self.form.object(at, piece, None), out);
            }
            Err(problem) => self.object_to(problem, out),
        }
    }

    fn object_to(&mut self, problem: Problem, out: &mut Vec<u8>) {
        match problem {
            Problem::Node(message) => self.fail(message, out),
            Problem::Model(message) => {
                self.fail(message, out);
                self.misspoken = true;
            }
        }
    }

    fn last(&self, at: &str, took: Took, out: &mut Vec<u8>) {
        let done = Done {
            reason: self.finish.as_deref().map_or("stop", line::done_reason),
            usage: self.usage,
            total: took.total,
            phases: Some((took.first_token, took.total.saturating_sub(took.first_token))),
        };
        line::write(&self.form.object(at, Piece::default(), Some(&done)), out);
    }
}
