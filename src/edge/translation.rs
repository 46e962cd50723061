//! One attempt in another dialect than the client's: a client that speaks Ollama at an engine that
//! speaks OpenAI.
//!
//! What is said is `wire::translate`'s; here it is set into the exchange: the path that is called, the
//! answer's framing, and the times that only the edge knows.

use std::time::{Instant, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::request::Parts;
use http::response::Parts as AnswerParts;
use http::{HeaderValue, Uri, Version};

use crate::date::rfc3339;
use crate::routing::ask::Endpoint;
use crate::wire::translate::{Answer, Ending, Took};

pub struct Translation {
    /// The path of the engine's that is called.
    pub called: Endpoint,
    /// The path that the client called, and the model as it wrote it.
    asked: Endpoint,
    model: String,
    began: Instant,
    first_byte: Option<Instant>,
    answer: Option<Answer>,
}

impl Translation {
    pub fn new(called: Endpoint, asked: Endpoint, model: &str) -> Translation {
        let (began, model) = (Instant::now(), model.to_string());
        Translation { called, asked, model, began, first_byte: None, answer: None }
    }

    /// Makes the request's head one for the engine's path.
    pub fn address(&self, request: &mut Parts) {
        request.uri = Uri::from_static(self.called.path());
        request.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }

    /// The engine's answer begins; makes its head one for the client.
    pub fn begin(&mut self, response: &mut AnswerParts, version: Version) {
        let headers = &mut response.headers;
        let engine_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let answer = Answer::new(self.asked, &self.model, response.status.as_u16(), engine_type);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type()));
        headers.remove(CONTENT_LENGTH);
        if version >= Version::HTTP_11 && version < Version::HTTP_2 {
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        self.answer = Some(answer);
    }

    /// What a chunk of the engine's comes to; `None`: nothing yet.
    pub fn feed(&mut self, chunk: &[u8]) -> Option<Bytes> {
        self.first_byte.get_or_insert_with(Instant::now);
        let bytes = self.answer.as_mut()?.feed(chunk, &rfc3339(SystemTime::now()));
        (!bytes.is_empty()).then(|| bytes.into())
    }

    /// The engine's answer is over, for whatever reason.
    pub fn finish(&mut self) -> Option<Ending> {
        let now = Instant::now();
        let first_token = self.first_byte.unwrap_or(now) - self.began;
        let took = Took { first_token, total: now - self.began };
        Some(self.answer.take()?.finish(&rfc3339(SystemTime::now()), took))
    }
}
