//! An engine's answer on its way to a client that speaks Ollama.
//!
//! One `Answer` an exchange: feed it every chunk, send what it gives, and finish it when no more bytes come,
//! for whatever reason. What kind of answer it is follows from its status and content type. A stream is
//! translated as it comes; a body that is one message has to be held, up to a named limit.

use super::fault;
use super::gather::{Gather, Problem};
use super::json::Json;
use super::line::{self, Done, Form, Piece, Took};
use super::said;
use super::stream::Stream;
use super::vectors;
use crate::routing::ask::{Dialect, Endpoint};
use crate::wire::error;
use crate::wire::framing::Framing;

/// Longest plain answer of a conversation. A million characters of answer fit.
const TEXT_LIMIT: usize = 4 * 1024 * 1024;

/// Longest body of vectors: 1,000 of 4,096 numbers, with all their digits.
const VECTORS_LIMIT: usize = 64 * 1024 * 1024;

/// As much of an error's body as is read for its words.
const FAULT_LIMIT: usize = 64 * 1024;

#[derive(Debug)]
pub struct Answer {
    form: Form,
    status: u16,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Stream(Box<Stream>),
    Text(Held),
    Vectors(Held),
    Fault(Held),
}

/// The end of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// What is to be sent yet.
    pub bytes: Vec<u8>,
    pub end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client has the whole answer, or a whole error of the engine's.
    Whole,
    /// The node failed, and a stream's last line has said so.
    Failed,
    /// The node failed, and nothing can say so within this body: it has to be aborted.
    Untold,
    /// The node did its work, but what the model wrote cannot be said in Ollama's words; the bytes say so.
    /// Ollama does the same where it cannot read a call: it answers with an error, and calls nothing.
    Misspoken,
}

/// Why a body that is one message cannot be translated.
enum Unfit {
    Node,
    Model(&'static str),
}

/// Told where the model wrote what cannot be translated: nobody's gateway failed.
const MISSPOKEN_STATUS: u16 = 500;

impl Answer {
    /// `endpoint` and `model` are the client's: the path it called, the model as it wrote it. `status` and
    /// `content_type` are those of the engine's answer.
    pub fn new(endpoint: Endpoint, model: &str, status: u16, content_type: &str) -> Answer {
        let form = Form { endpoint, model: model.to_owned() };
        let body = if !(200..300).contains(&status) {
            Body::Fault(Held::up_to(FAULT_LIMIT))
        } else if !endpoint.is_conversation() {
            Body::Vectors(Held::up_to(VECTORS_LIMIT))
        } else if Framing::of(content_type) == Framing::Events {
            Body::Stream(Box::new(Stream::new(form.clone())))
        } else {
            Body::Text(Held::up_to(TEXT_LIMIT))
        };
        Answer { form, status, body }
    }

    /// The content type of what the client gets. Its length is not known before the end.
    pub fn content_type(&self) -> &'static str {
        match self.body {
            Body::Stream(_) => "application/x-ndjson",
            _ => "application/json; charset=utf-8",
        }
    }

    /// What a chunk comes to. `created_at` is now, as Ollama writes times.
    pub fn feed(&mut self, chunk: &[u8], created_at: &str) -> Vec<u8> {
        match &mut self.body {
            Body::Stream(stream) => stream.feed(chunk, created_at),
            Body::Text(held) | Body::Vectors(held) | Body::Fault(held) => held.feed(chunk),
        }
    }

    pub fn finish(self, created_at: &str, took: Took) -> Ending {
        let whole = match self.body {
            Body::Stream(stream) => {
                let (bytes, end) = stream.finish(created_at, took);
                return Ending { bytes, end };
            }
            Body::Fault(held) => Ok(fault_body(self.status, &held.bytes)),
            Body::Text(held) => {
                held.whole().ok_or(Unfit::Node).and_then(|body| text_body(body, &self.form, created_at, took))
            }
            Body::Vectors(held) => {
                let vectors = held.whole().and_then(|body| vectors::translate(body, &self.form, took.total));
                vectors.ok_or(Unfit::Node)
            }
        };
        match whole {
            Ok(bytes) => Ending { bytes, end: End::Whole },
            Err(Unfit::Node) => Ending { bytes: Vec::new(), end: End::Untold },
            Err(Unfit::Model(message)) => {
                Ending { bytes: error::body(Dialect::Ollama, MISSPOKEN_STATUS, message), end: End::Misspoken }
            }
        }
    }
}

fn fault_body(status: u16, body: &[u8]) -> Vec<u8> {
    let message = fault::text(body).unwrap_or_else(|| format!("the node answered {status} without a reason"));
    error::body(Dialect::Ollama, status, &message)
}

/// A conversation's plain answer: one object with everything in it.
fn text_body(body: &[u8], form: &Form, at: &str, took: Took) -> Result<Vec<u8>, Unfit> {
    let said = said::read(body).filter(|said| said.has_choice).ok_or(Unfit::Node)?;
    let reason = said.finish.as_deref().unwrap_or("stop");
    let mut calls = Gather::default();
    said.tool_calls.map_or(Ok(()), |pieces| calls.add(pieces))?;
    let piece = Piece {
        content: said.content.map(Json::Raw),
        thinking: said.thinking.map(Json::Raw),
        tool_calls: if line::is_cut(reason) { calls.take_whole() } else { calls.take() }?,
        logprobs: said.logprobs.map(Json::Raw),
    };
    // How long the prompt took does not show: all came at once.
    let done = Done { reason: line::done_reason(reason), usage: said.usage, total: took.total, phases: None };
    Ok(form.object(at, piece, Some(&done)).to_bytes())
}

impl From<Problem> for Unfit {
    fn from(problem: Problem) -> Unfit {
        match problem {
            Problem::Node(_) => Unfit::Node,
            Problem::Model(message) => Unfit::Model(message),
        }
    }
}

/// A body kept until its end.
#[derive(Debug)]
struct Held {
    bytes: Vec<u8>,
    limit: usize,
    over: bool,
}

impl Held {
    fn up_to(limit: usize) -> Held {
        Held { bytes: Vec::new(), limit, over: false }
    }

    /// Keeps a chunk. JSON's blanks in front, with which servers keep a connection alive, are handed on.
    fn feed(&mut self, chunk: &[u8]) -> Vec<u8> {
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let blanks = if self.bytes.is_empty() { chunk.iter().take_while(|byte| is_blank(byte)).count() } else { 0 };
        let (blanks, text) = chunk.split_at(blanks);
        let room = self.limit - self.bytes.len();
        self.over |= text.len() > room;
        self.bytes.extend_from_slice(&text[..text.len().min(room)]);
        blanks.to_vec()
    }

    fn whole(&self) -> Option<&[u8]> {
        (!self.over).then_some(&self.bytes)
    }
}
