//! The answer to one accepted job, given as it is made.
//!
//! The connection is watched all the while: when the client goes, the job is cancelled at once and
//! its slot is free. The journal learns the end in one place, `settle`.

use std::sync::Arc;

use bytes::Bytes;
use pingora_core::protocols::http::ServerSession;
use serde_json::Value;

use super::app::{After, Gone, reply_head, reply_json};
use super::desk::Ticket;
use super::journal::{Entry, Outcome};
use super::shelf::Shelf;
use super::text::{self, Token};
use super::voice::{Ending, Voice, responses};
use crate::routing::ask::Endpoint;
use crate::sim::engine::{Usage, What};

/// A job, and how to tell of it.
pub struct Answer {
    pub voice: Voice,
    pub ticket: Ticket,
    pub entry: Entry,
    /// Ollama's `done_reason`, should it come to its end.
    pub reason: &'static str,
    pub prompt: Vec<Token>,
    /// The answer, a token each.
    pub pieces: Vec<String>,
    pub embedding_length: u32,
    /// Where the response is to be kept, if it is.
    pub shelf: Option<Arc<Shelf>>,
    /// Chunks after which the connection is to be cut.
    pub die_after: Option<usize>,
}

/// Why an answer broke off.
enum Break {
    ClientGone,
    /// The node was told to cut the connection.
    Died,
}

impl From<Gone> for Break {
    fn from(_: Gone) -> Break {
        Break::ClientGone
    }
}

impl Answer {
    pub async fn give(mut self, session: &mut ServerSession) -> After {
        let stream = self.voice.call.stream;
        let given = if stream { self.give_stream(session).await } else { self.give_whole(session).await };
        self.settle(given)
    }

    async fn give_stream(&mut self, session: &mut ServerSession) -> Result<Usage, Break> {
        loop {
            match self.next_event(session).await? {
                What::Started => {}
                What::FirstToken(usage) => {
                    self.entry.used(&usage);
                    self.entry.first_token();
                    self.begin(session, &usage).await?;
                    self.send_token(session, 0).await?;
                }
                What::Token { number } => self.send_token(session, number as usize - 1).await?,
                What::Done(usage) => {
                    if usage.output_tokens == 0 {
                        self.begin(session, &usage).await?;
                    }
                    self.end_stream(session, usage).await?;
                    return Ok(usage);
                }
            }
        }
    }

    async fn give_whole(&mut self, session: &mut ServerSession) -> Result<Usage, Break> {
        let usage = loop {
            match self.next_event(session).await? {
                What::FirstToken(_) => self.entry.first_token(),
                What::Done(usage) => break usage,
                What::Started | What::Token { .. } => {}
            }
        };
        if self.die_after.is_some() {
            return Err(Break::Died);
        }
        self.keep();
        reply_json(session, 200, &self.whole(usage)).await?;
        Ok(usage)
    }

    fn whole(&self, usage: Usage) -> Value {
        let (voice, call) = (&self.voice, &self.voice.call);
        if call.endpoint.is_conversation() {
            return voice.whole(&self.ending(usage));
        }
        if call.endpoint == Endpoint::OpenAiRerank {
            return (voice.kind.rerank)(&voice.model, &call.ranking.ranked(), &usage);
        }
        let embed = |input: &Vec<Token>| text::embedding(input, self.embedding_length);
        voice.embeddings(&call.inputs.iter().map(embed).collect::<Vec<_>>(), &usage)
    }

    /// Before the client can have read the id to go on from.
    fn keep(&self) {
        if let Some(shelf) = &self.shelf {
            shelf.put(&responses::id(&self.voice), self.voice.call.continued(&self.pieces));
        }
    }

    async fn next_event(&mut self, session: &mut ServerSession) -> Result<What, Break> {
        tokio::select! {
            event = self.ticket.next() => event.ok_or(Break::ClientGone),
            _ = client_gone(session) => Err(Break::ClientGone),
        }
    }

    async fn begin(&mut self, session: &mut ServerSession, usage: &Usage) -> Result<(), Break> {
        reply_head(session, 200, self.voice.content_type(true), None).await?;
        for frame in self.voice.opening(usage) {
            send(session, frame, false).await?;
        }
        self.die_if_due(0)
    }

    async fn send_token(&mut self, session: &mut ServerSession, index: usize) -> Result<(), Break> {
        let piece = self.pieces.get(index).map_or("", String::as_str);
        if let Some(frame) = self.voice.piece(index, piece) {
            send(session, frame, false).await?;
        }
        self.die_if_due(index + 1)
    }

    async fn end_stream(&self, session: &mut ServerSession, usage: Usage) -> Result<(), Break> {
        if self.die_after.is_some() {
            return Err(Break::Died);
        }
        self.keep();
        let frames = self.voice.closing(&self.ending(usage));
        let last = frames.len() - 1;
        for (index, frame) in frames.into_iter().enumerate() {
            send(session, frame, index == last).await?;
        }
        Ok(())
    }

    fn die_if_due(&self, chunks_sent: usize) -> Result<(), Break> {
        if self.die_after == Some(chunks_sent) {
            return Err(Break::Died);
        }
        Ok(())
    }

    fn ending(&self, usage: Usage) -> Ending {
        let mut context = self.prompt.clone();
        self.pieces.iter().for_each(|piece| text::cut(piece, &mut context));
        Ending { usage, reason: self.reason, text: self.pieces.concat(), context }
    }

    fn settle(mut self, given: Result<Usage, Break>) -> After {
        let usage = match given {
            Ok(usage) => Some(usage),
            Err(_) => self.ticket.cancel(),
        };
        if let Some(usage) = usage {
            self.entry.used(&usage);
        }
        let (outcome, after) = match given {
            Ok(_) => (Outcome::Done, After::Finish),
            Err(Break::ClientGone) => (Outcome::Cancelled, After::Cut),
            Err(Break::Died) => (Outcome::Misbehaved, After::Cut),
        };
        self.entry.end(outcome);
        after
    }
}

/// Returns when the client has closed its connection, or sends what it should not.
pub async fn client_gone(session: &mut ServerSession) {
    // True: the body was read to its end before.
    let _ = session.read_body_or_idle(true).await;
}

async fn send(session: &mut ServerSession, bytes: Bytes, end: bool) -> Result<(), Gone> {
    session.write_response_body(bytes, end).await?;
    Ok(())
}
