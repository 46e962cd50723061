//! Small questions to an upstream: probes, telemetry and inquiries.
//!
//! On connections of their own, so that no request ever waits behind a probe and no probe reuses a
//! request's connection. Every answer is bounded in size and in time as a whole. Whatever the
//! status, an answer is an answer; only silence, breakage and excess are errors. Follows no redirects.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, USER_AGENT};
use http::{Method, StatusCode};
use pingora::http::RequestHeader;
use pingora_core::connectors::ConnectorOptions;
use pingora_core::connectors::http::Connector;
use pingora_core::protocols::http::client::HttpSession;
use pingora_core::upstreams::peer::HttpPeer;
use thiserror::Error;
use tokio::time::{Instant, timeout, timeout_at};

use super::headers::HOPS;
use super::resolver::{Resolver, SystemResolver, addresses};
use super::site::Site;
use super::target::Target;

pub mod reason;

use reason::TlsFault;

/// The largest answer that is read. A catalogue of some ten thousand models fits.
pub const ANSWER_BYTES_MAX: usize = 8 << 20;

/// Idle connections kept in all: one for each question of a round, about four an upstream.
const IDLE_CONNECTIONS_MAX: usize = 512;

/// How long a connection may idle. Longer than the usual intervals, shorter than most servers keep
/// it, Ollama's and uvicorn's excepted; theirs are noticed as they close.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// A kept connection may close just as it is used again. That is no fault of the upstream's, so as
/// many are tried as could be stale at once, then a new one.
const STALE_MAX: usize = 2;

/// For a look whether a server that was odd wants TLS; it only gives the problem a better name.
const TLS_LOOK_MAX: Duration = Duration::from_secs(1);

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 4;

const AGENT: &str = concat!("warmgate/", env!("CARGO_PKG_VERSION"));

/// An answer, whatever its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    pub status: StatusCode,
    pub body: Bytes,
}

#[derive(Debug, Error)]
pub enum FetchError {
    #[error("no such host")]
    Resolve(#[from] io::Error),
    #[error("tls error: {0}")]
    Tls(TlsFault),
    #[error("{}", reason::of_connect(.0))]
    Connect(Box<pingora_core::Error>),
    #[error("{}", reason::of_exchange(.0))]
    Broken(Box<pingora_core::Error>),
    #[error("the answer is larger than {ANSWER_BYTES_MAX} bytes")]
    TooLarge,
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
}

/// What is asked: by GET, or with a body by POST.
#[derive(Clone, Copy)]
struct Question<'a> {
    path: &'a str,
    json: Option<&'a [u8]>,
}

/// Asks upstreams. One for the process; it keeps connections.
pub struct Fetcher {
    connector: Connector,
    resolver: Arc<dyn Resolver>,
}

impl Fetcher {
    pub fn new() -> Fetcher {
        Fetcher::with(Arc::new(SystemResolver))
    }

    pub fn with(resolver: Arc<dyn Resolver>) -> Fetcher {
        let options = ConnectorOptions::new(IDLE_CONNECTIONS_MAX);
        Fetcher { connector: Connector::new(Some(options)), resolver }
    }

    /// Asks a server where requests to it are sent; while that is not known, wherever its name leads.
    pub async fn ask_site(&self, site: &Site, path: &str, timeout: Duration) -> Result<Fetched, FetchError> {
        self.put_to_site(site, Question { path, json: None }, timeout).await
    }

    /// The same with a JSON body, by POST. Like any question it may be asked twice, so it must change nothing.
    pub async fn post_to_site(
        &self,
        site: &Site,
        path: &str,
        json: &[u8],
        timeout: Duration,
    ) -> Result<Fetched, FetchError> {
        self.put_to_site(site, Question { path, json: Some(json) }, timeout).await
    }

    /// Asks for `path`, which the target joins to its base path. `timeout` holds from resolving the
    /// name to the last byte.
    pub async fn get(&self, target: &Target, path: &str, timeout: Duration) -> Result<Fetched, FetchError> {
        self.put(target, Question { path, json: None }, timeout).await
    }

    /// The same with a JSON body, by POST; it may be asked twice.
    pub async fn post(
        &self,
        target: &Target,
        path: &str,
        json: &[u8],
        timeout: Duration,
    ) -> Result<Fetched, FetchError> {
        self.put(target, Question { path, json: Some(json) }, timeout).await
    }

    async fn put_to_site(&self, site: &Site, question: Question<'_>, timeout: Duration) -> Result<Fetched, FetchError> {
        let Some(address) = site.address.load_full() else { return self.put(&site.target, question, timeout).await };
        let deadline = Instant::now() + timeout;
        let asking = self.ask_first_reachable(&site.target, question, std::slice::from_ref(&*address), deadline);
        timeout_at(deadline, asking).await.unwrap_or(Err(FetchError::TimedOut(timeout)))
    }

    async fn put(&self, target: &Target, question: Question<'_>, timeout: Duration) -> Result<Fetched, FetchError> {
        let deadline = Instant::now() + timeout;
        let asking = async {
            let addresses = addresses(&*self.resolver, target.url()).await?;
            self.ask_first_reachable(target, question, &addresses, deadline).await
        };
        timeout_at(deadline, asking).await.unwrap_or(Err(FetchError::TimedOut(timeout)))
    }

    /// Asks the first address that takes a connection; what it answers, counts. An address that
    /// swallows packets must leave time for the next.
    async fn ask_first_reachable(
        &self,
        target: &Target,
        question: Question<'_>,
        addresses: &[SocketAddr],
        deadline: Instant,
    ) -> Result<Fetched, FetchError> {
        let addresses = &addresses[..addresses.len().min(ADDRESSES_MAX)];
        let mut last = FetchError::Resolve(io::ErrorKind::NotFound.into());
        for (tried, address) in addresses.iter().enumerate() {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut peer = target.peer(*address);
            peer.options.connection_timeout = Some(left / (addresses.len() - tried) as u32);
            match self.ask(&peer, target, question).await {
                Err(error @ FetchError::Connect(_)) => last = error,
                answer if is_odd(&answer) && self.speaks_tls(target, *address, deadline).await => {
                    return Err(FetchError::Tls(TlsFault::OnlyTls));
                }
                Err(FetchError::Tls(TlsFault::Closed)) if self.speaks_plainly(target, *address, deadline).await => {
                    return Err(FetchError::Tls(TlsFault::NoTls));
                }
                answer => return answer,
            }
        }
        Err(last)
    }

    async fn ask(&self, peer: &HttpPeer, target: &Target, question: Question<'_>) -> Result<Fetched, FetchError> {
        let mut stale = 0;
        loop {
            let opened = self.connector.get_http_session(peer).await;
            let (mut session, reused) = opened.map_err(|error| match reason::of_tls(&error) {
                Some(fault) => FetchError::Tls(fault),
                None => FetchError::Connect(error),
            })?;
            let header = header(target, question).map_err(FetchError::Broken)?;
            match exchange(&mut session, header, question.json).await {
                Ok(answer) => {
                    self.connector.release_http_session(session, peer, Some(IDLE_MAX)).await;
                    return Ok(answer);
                }
                Err(FetchError::Broken(_)) if reused && stale < STALE_MAX => stale += 1,
                Err(FetchError::Broken(error)) => {
                    return Err(reason::of_alert(&error).map_or_else(|| FetchError::Broken(error), FetchError::Tls));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Fetcher {
    /// Whether a server that makes no sense of plain HTTP is one that wants TLS.
    async fn speaks_tls(&self, target: &Target, address: SocketAddr, deadline: Instant) -> bool {
        let peer = target.tls_peer(address);
        !target.url().tls && comes_soon(self.connector.get_http_session(&peer), deadline).await
    }

    /// Whether a server that ends a handshake at once answers plain HTTP. It is shown no credential.
    async fn speaks_plainly(&self, target: &Target, address: SocketAddr, deadline: Instant) -> bool {
        let asking = async {
            let mut header = RequestHeader::build(Method::GET, b"/", Some(1))?;
            header.insert_header(HOST, target.authority())?;
            let (mut session, _) =
                self.connector.get_http_session(&HttpPeer::new(address, false, String::new())).await?;
            session.write_request_header(Box::new(header)).await?;
            session.finish_request_body().await?;
            final_status(&mut session).await
        };
        comes_soon(asking, deadline).await
    }
}

/// Whether it succeeds in a part of the time that is left: a look aside may not take all of it.
async fn comes_soon<T>(look: impl Future<Output = pingora_core::Result<T>>, deadline: Instant) -> bool {
    let left = deadline.saturating_duration_since(Instant::now());
    matches!(timeout((left / 2).min(TLS_LOOK_MAX), look).await, Ok(Ok(_)))
}

/// How servers that want TLS take plain HTTP: they close, answer in TLS, or answer 400.
fn is_odd(answer: &Result<Fetched, FetchError>) -> bool {
    match answer {
        Ok(answer) => answer.status == StatusCode::BAD_REQUEST,
        Err(error) => matches!(error, FetchError::Broken(_)),
    }
}

impl Default for Fetcher {
    fn default() -> Fetcher {
        Fetcher::new()
    }
}

fn header(target: &Target, question: Question) -> pingora_core::Result<Box<RequestHeader>> {
    let method = if question.json.is_some() { Method::POST } else { Method::GET };
    let mut header = RequestHeader::build(method, target.join(question.path).as_bytes(), Some(6))?;
    if let Some(json) = question.json {
        header.insert_header(CONTENT_TYPE, "application/json")?;
        header.insert_header(CONTENT_LENGTH, json.len())?;
    }
    header.insert_header(HOST, target.authority())?;
    header.insert_header(USER_AGENT, AGENT)?;
    header.insert_header(ACCEPT, "*/*")?;
    header.insert_header(HOPS, 1)?;
    if let Some(authorization) = target.authorization() {
        header.insert_header(AUTHORIZATION, authorization)?;
    }
    Ok(Box::new(header))
}

async fn exchange(
    session: &mut HttpSession,
    header: Box<RequestHeader>,
    json: Option<&[u8]>,
) -> Result<Fetched, FetchError> {
    session.write_request_header(header).await.map_err(FetchError::Broken)?;
    if let Some(json) = json {
        let body = Bytes::copy_from_slice(json);
        session.write_request_body(body, true).await.map_err(FetchError::Broken)?;
    }
    session.finish_request_body().await.map_err(FetchError::Broken)?;
    let status = final_status(session).await.map_err(FetchError::Broken)?;
    let mut body = BytesMut::new();
    while let Some(piece) = session.read_response_body().await.map_err(FetchError::Broken)? {
        if piece.len() > ANSWER_BYTES_MAX - body.len() {
            return Err(FetchError::TooLarge);
        }
        body.extend_from_slice(&piece);
    }
    Ok(Fetched { status, body: body.freeze() })
}

/// The status of the answer proper, behind any 1xx.
async fn final_status(session: &mut HttpSession) -> pingora_core::Result<StatusCode> {
    loop {
        session.read_response_header().await?;
        match session.response_header().map(|header| header.status) {
            Some(status) if status.is_informational() => {}
            Some(status) => return Ok(status),
            None => {
                return pingora_core::Error::e_explain(
                    pingora_core::ErrorType::InvalidHTTPHeader,
                    "no response header",
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
