//! A call of our own to one node, on a connection of its own: one that manages, or goes on with a stream.
//!
//! The connection is new and used once, so that nothing is ever sent twice because a kept one had gone
//! stale. Dropping an answer closes it, which makes the node stop.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora_core::connectors::http::Connector;
use pingora_core::protocols::http::client::HttpSession;
use pingora_core::{Error, ErrorType};

use crate::edge::fetch::FetchError;
use crate::edge::headers::HOPS;
use crate::edge::node::Node;
use crate::wire::progress::Failure;

pub struct Asker {
    connector: Connector,
}

/// How long to wait: for a connection, and for each piece of the answer.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    pub connect: Duration,
    pub silence: Duration,
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    pub method: Method,
    pub path: String,
    pub body: Bytes,
    /// Warmgates that the client's call came by before this one.
    pub hops: u32,
}

/// A node's answer that has begun.
pub struct Answer {
    pub status: u16,
    session: HttpSession,
    silence: Duration,
}

/// Of an answer that is one message.
const WHOLE_BYTES_MAX: usize = 1 << 20;

impl Asker {
    pub fn new() -> Asker {
        Asker { connector: Connector::new(None) }
    }

    pub async fn ask(&self, node: &Node, question: Question, patience: Patience) -> Result<Answer, FetchError> {
        let header = header(node, &question).map_err(FetchError::Broken)?;
        self.send(node, header, question.body, patience).await
    }

    /// With a head that is the caller's.
    pub async fn send(
        &self,
        node: &Node,
        header: Box<RequestHeader>,
        body: Bytes,
        patience: Patience,
    ) -> Result<Answer, FetchError> {
        let nowhere = || Error::explain(ErrorType::ConnectNoRoute, "the node has no address");
        let address = node.address.load_full().ok_or_else(|| FetchError::Connect(nowhere()))?;
        let mut peer = node.target.peer(*address);
        peer.options.connection_timeout = Some(patience.connect);
        peer.options.total_connection_timeout = Some(patience.connect * 2);
        let (mut session, _) = self.connector.get_http_session(&peer).await.map_err(FetchError::Connect)?;
        session.set_read_timeout(Some(patience.silence));
        session.set_write_timeout(Some(patience.silence));
        let reading = async {
            session.write_request_header(header).await?;
            session.write_request_body(body, true).await?;
            session.finish_request_body().await?;
            loop {
                session.read_response_header().await?;
                match session.response_header().map(|header| header.status) {
                    Some(status) if status.is_informational() => {}
                    Some(status) => return Ok(status.as_u16()),
                    None => return Error::e_explain(ErrorType::InvalidHTTPHeader, "no response header"),
                }
            }
        };
        let status = reading.await.map_err(|error| broken(error, patience.silence))?;
        Ok(Answer { status, session, silence: patience.silence })
    }
}

impl Answer {
    pub fn head(&self) -> Option<&ResponseHeader> {
        self.session.response_header()
    }

    pub async fn next(&mut self) -> Result<Option<Bytes>, FetchError> {
        self.session.read_response_body().await.map_err(|error| broken(error, self.silence))
    }

    /// The whole answer, if it is a small one.
    pub async fn whole(mut self) -> Result<Bytes, FetchError> {
        let mut whole = BytesMut::new();
        while let Some(piece) = self.next().await? {
            if piece.len() > WHOLE_BYTES_MAX - whole.len() {
                return Err(FetchError::TooLarge);
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }
}

impl From<FetchError> for Failure {
    fn from(error: FetchError) -> Failure {
        Failure::silent(error)
    }
}

fn broken(error: Box<Error>, silence: Duration) -> FetchError {
    match error.etype() {
        ErrorType::ReadTimedout | ErrorType::WriteTimedout => FetchError::TimedOut(silence),
        _ => FetchError::Broken(error),
    }
}

fn header(node: &Node, question: &Question) -> pingora_core::Result<Box<RequestHeader>> {
    let target = &node.target;
    let path = target.join(&question.path);
    let mut header = RequestHeader::build(question.method.clone(), path.as_bytes(), Some(8))?;
    header.insert_header(HOST, target.authority())?;
    header.insert_header(HOPS, question.hops.saturating_add(1))?;
    header.insert_header(ACCEPT, HeaderValue::from_static("*/*"))?;
    header.insert_header(CONTENT_TYPE, HeaderValue::from_static("application/json"))?;
    header.insert_header(CONTENT_LENGTH, question.body.len())?;
    if let Some(authorization) = target.authorization() {
        header.insert_header(AUTHORIZATION, authorization)?;
    }
    Ok(Box::new(header))
}
