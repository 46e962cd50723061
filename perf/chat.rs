//! One streamed chat as a client lives it: when its first token came, and how it ended.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Conn, Reply, Request};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Ollama,
    OpenAi,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The answer came, with the end that its dialect has.
    Whole,
    /// The answer broke off, and its last frame says so.
    Marked,
    /// The answer broke off, and the client saw the connection break.
    Broken,
    /// The answer broke off, and to the client it looks complete.
    LooksWhole,
    /// A status that is no success.
    Refused,
    /// The connection closed before any answer, or none came within the limit.
    NoAnswer,
}

/// What came of one request.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub end: End,
    pub status: u16,
    /// From the request to the first piece of an answer, or to a refusal.
    pub first_token: Option<Duration>,
    pub total: Duration,
    pub node: String,
    pub request_id: String,
    pub attempts: String,
    pub queue_ms: String,
    pub retry_after_s: Option<u64>,
    /// Tokens of the answer that came.
    pub tokens: usize,
    pub text: String,
    /// Of a refusal or an error frame.
    pub message: String,
}

impl Dialect {
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Ollama => "ollama",
            Dialect::OpenAi => "openai",
        }
    }

    pub fn request(self, model: &str, messages: &[Value]) -> Request {
        let body = json!({"model": model, "messages": messages, "stream": true});
        let path = match self {
            Dialect::Ollama => "/api/chat",
            Dialect::OpenAi => "/v1/chat/completions",
        };
        Request::post(path, body.to_string())
    }
}

impl End {
    pub fn name(self) -> &'static str {
        match self {
            End::Whole => "whole",
            End::Marked => "cut, marked",
            End::Broken => "cut, connection broken",
            End::LooksWhole => "cut, looks whole",
            End::Refused => "refused",
            End::NoAnswer => "no answer",
        }
    }
}

impl Outcome {
    fn none(total: Duration, message: impl Into<String>) -> Outcome {
        Outcome {
            end: End::NoAnswer,
            status: 0,
            first_token: None,
            total,
            node: String::new(),
            request_id: String::new(),
            attempts: String::new(),
            queue_ms: String::new(),
            retry_after_s: None,
            tokens: 0,
            text: String::new(),
            message: message.into(),
        }
    }
}

/// Asks, and reads the answer to its end, both for at most `limit`.
pub async fn ask(gate: SocketAddr, dialect: Dialect, request: &Request, limit: Duration) -> Outcome {
    let began = Instant::now();
    let asking = async {
        let reply = Conn::open(gate).await.try_exchange(request).await;
        match reply {
            Ok(reply) => read(dialect, reply, began, limit).await,
            Err(error) => Outcome::none(began.elapsed(), error.to_string()),
        }
    };
    match tokio::time::timeout(limit, asking).await {
        Ok(outcome) => outcome,
        Err(_) => Outcome::none(began.elapsed(), format!("nothing within {limit:?}")),
    }
}

async fn read(dialect: Dialect, mut reply: Reply, began: Instant, limit: Duration) -> Outcome {
    let header = |name: &str| reply.header(name).unwrap_or_default().to_owned();
    let told = Outcome {
        status: reply.status,
        node: header("x-fleet-node"),
        request_id: header("x-request-id"),
        attempts: header("x-fleet-attempts"),
        queue_ms: header("x-fleet-queue-ms"),
        retry_after_s: header("retry-after").parse().ok(),
        ..Outcome::none(Duration::ZERO, "")
    };
    let (mut bytes, mut first_token) = (Vec::new(), None);
    let broken = loop {
        // Twice the limit is never reached: what is here has the limit of the whole.
        match tokio::time::timeout(limit * 2, reply.piece()).await {
            Ok(Ok(Some(piece))) => {
                first_token.get_or_insert_with(|| began.elapsed());
                bytes.extend_from_slice(&piece);
            }
            Ok(Ok(None)) => break None,
            Ok(Err(error)) => break Some(error.to_string()),
            Err(_) => break Some("silence".to_owned()),
        }
    };
    let total = began.elapsed();
    if told.status != 200 {
        let message = String::from_utf8_lossy(&bytes).into_owned();
        return Outcome { end: End::Refused, first_token: Some(total), total, message, ..told };
    }
    let frames = Frames::of(dialect, &bytes);
    let end = match (&frames, &broken) {
        (Frames { error: Some(_), .. }, _) => End::Marked,
        (_, Some(_)) => End::Broken,
        (Frames { is_whole: true, .. }, None) => End::Whole,
        _ => End::LooksWhole,
    };
    let message = frames.error.or(broken).unwrap_or_default();
    Outcome { end, first_token, total, tokens: frames.tokens, text: frames.text, message, ..told }
}

/// What the frames of an answer say.
#[derive(Default)]
struct Frames {
    text: String,
    tokens: usize,
    error: Option<String>,
    is_whole: bool,
}

impl Frames {
    fn of(dialect: Dialect, bytes: &[u8]) -> Frames {
        let mut frames = Frames::default();
        let text = String::from_utf8_lossy(bytes);
        for line in text.lines() {
            let data = match dialect {
                Dialect::Ollama => Some(line),
                Dialect::OpenAi => line.strip_prefix("data: "),
            };
            match data {
                Some("[DONE]") => frames.is_whole = true,
                Some(data) => frames.read(dialect, data),
                None => {}
            }
        }
        frames
    }

    fn read(&mut self, dialect: Dialect, data: &str) {
        let Ok(frame) = serde_json::from_str::<Value>(data) else { return };
        if !frame["error"].is_null() {
            self.error = Some(frame["error"].to_string());
        }
        let content = match dialect {
            Dialect::Ollama => &frame["message"]["content"],
            Dialect::OpenAi => &frame["choices"][0]["delta"]["content"],
        };
        if let Some(content) = content.as_str().filter(|content| !content.is_empty()) {
            self.tokens += 1;
            self.text.push_str(content);
        }
        self.is_whole |= frame["done"] == json!(true);
    }
}
