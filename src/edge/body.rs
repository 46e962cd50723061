//! The whole request body, read before a node is chosen.
//!
//! Bounded in four ways: its size on the wire and decoded, the time it may take as a whole, and the
//! memory of all bodies together. What the headers already decide (a length over the limit, an
//! unknown coding, no memory) is refused before a byte is read and before a `100 Continue` is sent.
//! What comes out is plain; the bytes of an uncoded body are the client's, untouched.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Version};
use pingora::http::RequestHeader;
use pingora_core::{Error, ErrorType};
use pingora_proxy::Session;
use thiserror::Error as ThisError;
use tokio::time::{Instant, timeout};

use super::budget::{Budget, Buffer, Length, Spent};
use super::coding::{self, Coding, CodingError, Decoder};
use super::headers;

/// Booked and allocated on the word of a `Content-Length` alone. More is taken only as it arrives,
/// so a lying header costs this much and no more.
const FIRST_BYTES: usize = 64 * 1024;

/// Booked for a body whose length is not told.
const FIRST_BYTES_UNKNOWN: usize = 8 * 1024;

/// Pingora's errors for chunks that are none; it keeps the constants to itself.
const BAD_FRAMING: [ErrorType; 2] = [ErrorType::new("InvalidChunk"), ErrorType::new("InvalidTrailerEnd")];

/// What a body may take.
#[derive(Clone, Debug)]
pub struct BodyLimits {
    /// Size of one body, on the wire and decoded.
    pub body_bytes: usize,
    /// From the first look to the last byte.
    pub read_deadline: Duration,
    pub memory: Budget,
    /// How long one growth may wait for memory.
    pub memory_wait: Duration,
}

/// A body as the engines will see it.
#[derive(Clone, Debug)]
pub struct Body {
    pub bytes: Bytes,
    /// The request came with a `Content-Encoding`, which is no longer true and must not be sent on.
    pub was_coded: bool,
}

#[derive(Debug, ThisError)]
pub enum BodyError {
    /// 413.
    #[error("the request body is larger than {limit_bytes} bytes")]
    TooLarge { limit_bytes: usize },
    /// 408.
    #[error("the request body did not arrive in time")]
    TooSlow,
    /// 503.
    #[error("too many request bodies are in memory")]
    NoMemory,
    /// 415.
    #[error("content coding {0:?} is not supported; send {accepted} or none", accepted = coding::ACCEPTED)]
    UnknownCoding(String),
    /// 400.
    #[error("the request body cannot be decoded: {0}")]
    BadCoding(String),
    /// 400: the chunks are not chunks.
    #[error("the request body is not framed as HTTP has it")]
    BadFraming(Box<Error>),
    /// 400: others may read it as two requests.
    #[error(
        "the request has a bare line feed in its head, another Transfer-Encoding than `chunked`, more than one, or a Content-Length beside it"
    )]
    FramedOddly,
    /// Nobody is there to be answered.
    #[error("the client left while sending its request")]
    ClientGone(Box<Error>),
}

/// Pingora reads the last of several, and others the first; it takes no other coding off than `chunked`, and lets
/// those in front of that pass; and it forgets a length where there is a coding, by which others may have gone.
pub fn is_framed_oddly(session: &Session) -> bool {
    if has_bare_break(&raw_head(session)) {
        return true;
    }
    let request = session.req_header();
    let has_body =
        || request.headers.contains_key(TRANSFER_ENCODING) || declared_bytes(session).is_some_and(|bytes| bytes > 0);
    if request.method == Method::HEAD && has_body() {
        // A server that knows of no such body takes it for the next request.
        return true;
    }
    let mut codings = request.headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    let Some(first) = codings.next() else { return false };
    !is_chunked(first) || codings.next().is_some() || had_length(session)
}

/// Whether the request's target names a place here: a path, a URL, or all of the server. Pingora reads anything else as
/// the name of a host, and its path as the root.
pub fn has_target(session: &Session) -> bool {
    let head = raw_head(session);
    let Some(target) = head.split(|byte| *byte == b' ').nth(1) else { return true };
    target.starts_with(b"/") || target == b"*" || memchr::memmem::find(target, b"://").is_some()
}

/// Whether everybody sees the end of this request's body in the same place: by its one length, or since its method has
/// none. Of chunks, of lists of lengths, of names that some read as these, and where a word in between is expected that
/// cannot be said; their connection ends where more has come.
pub fn ends_plainly(request: &RequestHeader) -> bool {
    const OTHERS: [&str; 4] = ["transfer-encoding", "transfer_encoding", "content_length", "expect"];
    let headers = &request.headers;
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let has_end = match (lengths.next(), lengths.next()) {
        (None, _) => matches!(request.method, Method::GET | Method::HEAD | Method::OPTIONS),
        (Some(length), None) => length.as_bytes().iter().all(u8::is_ascii_digit),
        (Some(_), Some(_)) => false,
    };
    has_end && !OTHERS.iter().any(|name| headers.contains_key(*name))
}

/// Whether the head had a length as it came.
fn had_length(session: &Session) -> bool {
    const LENGTH: &[u8] = b"content-length:";
    raw_head(session)
        .split(|byte| *byte == b'\n')
        .any(|line| line.get(..LENGTH.len()).is_some_and(|start| start.eq_ignore_ascii_case(LENGTH)))
}

/// The head as it came over HTTP/1.
fn raw_head(session: &Session) -> Bytes {
    session.as_downstream().as_http1().map(|http1| http1.get_headers_raw_bytes()).unwrap_or_default()
}

/// Whether a line ends otherwise than lines do: proxies differ about where such a head ends.
fn has_bare_break(head: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', head).any(|at| at == 0 || head[at - 1] != b'\r')
}

/// Whether what the client sends cannot be told apart into chunks.
pub fn is_bad_framing(error: &Error) -> bool {
    BAD_FRAMING.contains(error.etype())
}

/// Reads the body to its end.
pub async fn read(session: &mut Session, limits: &BodyLimits) -> Result<Body, BodyError> {
    let headers = &session.req_header().headers;
    let was_coded = headers.contains_key(CONTENT_ENCODING);
    let codings = coding::of_headers(headers)?;
    let declared = declared_bytes(session);
    if declared.is_some_and(|bytes| bytes > limits.body_bytes) {
        return Err(BodyError::TooLarge { limit_bytes: limits.body_bytes });
    }
    if session.is_body_empty() {
        return Ok(Body { bytes: Bytes::new(), was_coded });
    }

    let mut buffer = limits.memory.buffer(limits.memory_wait);
    let first_bytes = declared.unwrap_or(FIRST_BYTES_UNKNOWN).min(FIRST_BYTES);
    buffer.reserve_total(first_bytes.min(limits.body_bytes)).await?;
    if expects_continue(session) {
        send_continue(session).await?;
    }
    let reading = fill(session, &mut buffer, declared, limits.body_bytes);
    timeout(limits.read_deadline, reading).await.map_err(|_| BodyError::TooSlow)??;
    let bytes = buffer.freeze();
    if codings.is_empty() {
        return Ok(Body { bytes, was_coded });
    }
    let bytes = decode(bytes, codings, limits.clone()).await?;
    Ok(Body { bytes, was_coded })
}

/// Reads on and throws away what comes, after an early answer such as a 413: closing an HTTP/1.1
/// connection with unread bytes resets it, and the client may never see the answer. True if the
/// body ended, so that the connection is clean.
pub async fn discard(session: &mut Session, bytes_max: usize, time_max: Duration) -> bool {
    if expects_continue(session) && session.body_bytes_read() == 0 {
        // It still waits for a 100 that never came; having the answer, it will not send the body.
        return false;
    }
    let discarding = async {
        let mut left_bytes = bytes_max;
        loop {
            match session.read_request_body().await {
                Ok(None) => return true,
                Ok(Some(piece)) if piece.len() <= left_bytes => left_bytes -= piece.len(),
                Ok(Some(_)) | Err(_) => return false,
            }
        }
    };
    timeout(time_max, discarding).await.unwrap_or(false)
}

/// The length that the request says its body has.
pub fn declared_bytes(session: &Session) -> Option<usize> {
    headers::said_length(&session.req_header().headers)?.try_into().ok()
}

/// Whether the client waits for a `100 Continue`. HTTP/1.0 knows none, and over HTTP/2 Pingora
/// drops it, where flow control does the same.
fn expects_continue(session: &Session) -> bool {
    let request = session.req_header();
    let expects = request.headers.get(EXPECT);
    session.as_downstream().as_http1().is_some()
        && request.version == Version::HTTP_11
        && expects.is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// Tells a client that waits for it to send a body which streams through. Called when a node has been reached: some say
/// nothing before they have the body, and the client would wait for as long as it cares to.
pub async fn invite(session: &mut Session) -> pingora_core::Result<()> {
    if !expects_continue(session) || session.response_written().is_some() {
        return Ok(());
    }
    match send_continue(session).await {
        Err(BodyError::ClientGone(error)) => Err(error),
        _ => Ok(()),
    }
}

async fn send_continue(session: &mut Session) -> Result<(), BodyError> {
    // Pingora takes any answer written before the end of the body, even this one, as a reason to
    // close the connection afterwards, unless told otherwise.
    session.set_close_on_response_before_downstream_finish(false);
    let sent = session.as_downstream_mut().write_continue_response().await;
    session.set_close_on_response_before_downstream_finish(true);
    sent.map_err(|e| BodyError::ClientGone(e.into_down()))
}

async fn fill(
    session: &mut Session,
    buffer: &mut Buffer,
    declared: Option<usize>,
    limit_bytes: usize,
) -> Result<(), BodyError> {
    let length = declared.map_or(Length::AtMost(limit_bytes), Length::Told);
    let mut pace = Pace::start();
    while let Some(piece) = next_piece(session).await? {
        pace.note(piece.len())?;
        if piece.len() > limit_bytes - buffer.len() {
            return Err(BodyError::TooLarge { limit_bytes });
        }
        buffer.push(&piece, length).await?;
    }
    Ok(())
}

async fn next_piece(session: &mut Session) -> Result<Option<Bytes>, BodyError> {
    let reading = timeout(PACE_WINDOW, session.read_request_body());
    reading.await.map_err(|_| BodyError::TooSlow)?.map_err(owner_of)
}

/// A body must come with at least `PACE_BYTES` in each `PACE_WINDOW`, or end: a few that dribble must
/// not hold the memory of all.
struct Pace {
    since: Instant,
    bytes: usize,
}

const PACE_WINDOW: Duration = Duration::from_secs(10);
const PACE_BYTES: usize = 64 * 1024;

impl Pace {
    fn start() -> Pace {
        Pace { since: Instant::now(), bytes: 0 }
    }

    fn note(&mut self, bytes: usize) -> Result<(), BodyError> {
        self.bytes += bytes;
        if self.since.elapsed() >= PACE_WINDOW {
            if self.bytes < PACE_BYTES {
                return Err(BodyError::TooSlow);
            }
            *self = Pace::start();
        }
        Ok(())
    }
}

fn owner_of(error: Box<Error>) -> BodyError {
    let error = error.into_down();
    match error.etype() {
        ErrorType::ReadTimedout => BodyError::TooSlow,
        _ if is_bad_framing(&error) => BodyError::BadFraming(error),
        _ => BodyError::ClientGone(error),
    }
}

/// Decodes on a thread that may block: a small body can take a good second to unfold to the limit.
async fn decode(body: Bytes, codings: Vec<Coding>, limits: BodyLimits) -> Result<Bytes, BodyError> {
    let runtime = tokio::runtime::Handle::current();
    let work = tokio::task::spawn_blocking(move || {
        let mut buffer = limits.memory.buffer(limits.memory_wait);
        let mut decoder = Decoder::new(body, &codings, limits.body_bytes)?;
        while let Some(piece) = decoder.next_piece()? {
            runtime.block_on(buffer.push(piece, Length::AtMost(limits.body_bytes)))?;
        }
        Ok(buffer.freeze())
    });
    work.await.unwrap_or_else(|died| Err(BodyError::BadCoding(died.to_string())))
}

impl From<Spent> for BodyError {
    fn from(_: Spent) -> BodyError {
        BodyError::NoMemory
    }
}

impl From<CodingError> for BodyError {
    fn from(error: CodingError) -> BodyError {
        match error {
            CodingError::Unknown(name) => BodyError::UnknownCoding(name),
            CodingError::Bad(why) => BodyError::BadCoding(why),
            CodingError::TooLarge { limit_bytes } => BodyError::TooLarge { limit_bytes },
        }
    }
}

#[cfg(test)]
mod tests;
