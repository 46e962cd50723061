//! Requests in, answers out: the node as a Pingora HTTP application.
//!
//! Reads one request, sends it to the list, the switch or the model it is for, and gives the
//! connection back for the next one or cuts it. Every body is bounded, every wrong request gets a
//! sentence.

use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, StatusCode, header};
use pingora::http::ResponseHeader;
use pingora_core::apps::{HttpPersistentSettings, HttpServerApp, ReusedHttpStream};
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::ShutdownWatch;
use serde_json::{Value, json};

use super::behaviour::Order;
use super::desk::Desk;
use super::kind::{self, Kind, Page, Snapshot};
use super::node::Shared;
use super::refusal::Refusal;
use super::shelf::Shelf;
use crate::routing::ask::Endpoint;

/// Larger bodies are refused. Longer than any context window in text, short of a video.
const BODY_BYTES_MAX: usize = 64 << 20;

/// Idle connections are kept for so long.
const KEEPALIVE_S: u64 = 60;

/// A node that listens.
pub struct Face {
    pub shared: Arc<Shared>,
    pub desk: Arc<Desk>,
    /// Like what the desk knows, it goes when the node stops.
    pub shelf: Arc<Shelf>,
}

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    Finish,
    /// Close without ending the answer.
    Cut,
}

/// Whatever Pingora reports about a connection, the client is gone.
pub struct Gone;

impl From<Box<pingora_core::Error>> for Gone {
    fn from(error: Box<pingora_core::Error>) -> Gone {
        log::debug!("simulated node: {error}");
        Gone
    }
}

#[async_trait]
impl HttpServerApp for Face {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        _shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        if !session.read_request().await.ok()? {
            return None;
        }
        session.set_keepalive(Some(KEEPALIVE_S));
        match self.serve(&mut session).await {
            Ok(After::Finish) => {}
            Ok(After::Cut) | Err(Gone) => return None,
        }
        let settings = HttpPersistentSettings::for_session(&session);
        let stream = session.finish().await.ok()??;
        Some(ReusedHttpStream::from_reusable_stream(stream, settings))
    }
}

impl Face {
    async fn serve(&self, session: &mut ServerSession) -> Result<After, Gone> {
        let Some(body) = read_body(session).await? else {
            session.set_keepalive(None);
            return self.refuse(session, &Refusal::BodyTooLarge).await;
        };
        let request = session.req_header();
        let path = request.uri.path().to_owned();
        let method = match request.method {
            Method::HEAD => Method::GET,
            ref other => other.clone(),
        };
        match (self.kind().service(&path), method) {
            (Some(Endpoint::OllamaShow), Method::POST) => self.show(session, &body).await,
            (Some(endpoint), Method::POST) => self.infer(session, endpoint, &body).await,
            (Some(_), _) => self.refuse(session, &Refusal::WrongMethod).await,
            (None, Method::POST) if path == "/sim/behave" => self.behave(session, &body).await,
            (None, Method::GET) => self.page(session, &path).await,
            _ => self.refuse(session, &Refusal::NoSuchPath).await,
        }
    }

    pub fn kind(&self) -> &'static Kind {
        self.shared.params.kind
    }

    /// The refusal in the words and the form of the engine, and of the path's dialect.
    pub async fn refuse(&self, session: &mut ServerSession, refusal: &Refusal) -> Result<After, Gone> {
        let page = (self.kind().refuse)(refusal, session.req_header().uri.path());
        reply_page(session, page).await
    }

    async fn page(&self, session: &mut ServerSession, path: &str) -> Result<After, Gone> {
        let page = match path {
            "/sim/log" => Some(Page::json(&json!(self.shared.journal.records()))),
            "/sim/stats" => Some(Page::json(&self.stats())),
            _ => (self.kind().page)(path, &self.snapshot()),
        };
        match page {
            Some(page) => reply_page(session, page).await,
            None => self.refuse(session, &Refusal::NoSuchPath).await,
        }
    }

    fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            node: &self.shared.params,
            resident: self.desk.resident(),
            demand: self.desk.demand(),
            stats: self.shared.journal.stats(),
            now: SystemTime::now(),
        }
    }

    async fn show(&self, session: &mut ServerSession, body: &[u8]) -> Result<After, Gone> {
        let malformed = |words: &str| Refusal::Malformed(words.to_owned());
        let Ok(body) = serde_json::from_slice::<Value>(body) else {
            return self.refuse(session, &malformed("missing or invalid request body")).await;
        };
        let name = body["model"].as_str().filter(|name| !name.is_empty());
        let Some(name) = name.or(body["name"].as_str()) else {
            return self.refuse(session, &malformed("model is required")).await;
        };
        match self.shared.params.find(name) {
            Some(model) => reply_json(session, 200, &kind::show(model)).await,
            None => self.refuse(session, &Refusal::UnknownModel(name.to_owned())).await,
        }
    }

    async fn behave(&self, session: &mut ServerSession, body: &[u8]) -> Result<After, Gone> {
        match serde_json::from_slice::<Order>(body) {
            Ok(order) => {
                self.shared.mood.set(order);
                reply_json(session, 200, &json!(order)).await
            }
            Err(error) => self.refuse(session, &Refusal::Malformed(error.to_string())).await,
        }
    }

    fn stats(&self) -> Value {
        let census = self.desk.census();
        let mut stats = json!(self.shared.journal.stats());
        stats["node"] = json!(self.shared.params.name);
        stats["running"] = json!(census.running);
        stats["waiting"] = json!(census.waiting);
        stats["loads"] = json!(self.desk.loads());
        stats
    }
}

pub async fn reply_json(session: &mut ServerSession, status: u16, value: &Value) -> Result<After, Gone> {
    reply_page(session, Page::json(value).with_status(status)).await
}

async fn reply_page(session: &mut ServerSession, page: Page) -> Result<After, Gone> {
    tokio::time::sleep(page.after).await;
    reply(session, page.status, page.content_type, page.body).await
}

/// The head of an answer; without a length it is chunked.
pub async fn reply_head(
    session: &mut ServerSession,
    status: u16,
    content_type: &str,
    length: Option<usize>,
) -> Result<(), Gone> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut head = ResponseHeader::build(status, Some(4))?;
    head.insert_header(header::CONTENT_TYPE, content_type)?;
    match length {
        Some(length) => head.insert_header(header::CONTENT_LENGTH, length)?,
        None => head.insert_header(header::TRANSFER_ENCODING, "chunked")?,
    }
    session.write_response_header(Box::new(head)).await?;
    Ok(())
}

pub async fn reply(session: &mut ServerSession, status: u16, content_type: &str, body: Bytes) -> Result<After, Gone> {
    reply_head(session, status, content_type, Some(body.len())).await?;
    if session.req_header().method != Method::HEAD {
        session.write_response_body(body, true).await?;
    }
    Ok(After::Finish)
}

/// The whole body; `None` when it is too large.
async fn read_body(session: &mut ServerSession) -> Result<Option<Bytes>, Gone> {
    if session.get_header_bytes(header::EXPECT).eq_ignore_ascii_case(b"100-continue") {
        session.write_continue_response().await?;
    }
    let mut body = Vec::new();
    while let Some(bytes) = session.read_request_body().await? {
        if body.len() + bytes.len() > BODY_BYTES_MAX {
            return Ok(None);
        }
        body.extend_from_slice(&bytes);
    }
    Ok(Some(body.into()))
}
