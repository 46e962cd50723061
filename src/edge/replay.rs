//! A request body that can be sent again, as often as attempts need it.
//!
//! Pingora 0.9.1 keeps at most 64 KiB for a retry. So, once a body is read, the client's session is
//! put inside a session of our own that feeds the body from memory to each attempt; `restore` puts
//! it back at the end, for the connection to be used again. That session also lets go of an attempt
//! that is silent for too long or, before its first byte, was asked to move to another node. And it
//! keeps the head of an answer until the first byte after it, so that an attempt which fails in
//! between can still be made elsewhere.
//!
//! Nothing else touches `custom::server::Session`, a hidden trait: hence Pingora's exact version.

mod cork;
mod pulse;
mod session;
mod timer;

use std::os::fd::RawFd;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, EXPECT, TRAILER, TRANSFER_ENCODING};
use parking_lot::Mutex;
use pingora_core::protocols::http::ServerSession;
use pingora_core::{Error, ErrorType};
use pingora_proxy::Session;
use tokio::sync::{Notify, watch};

use super::departure::Stage;
use cork::Cork;
use session::ReplaySession;

/// Pieces a body is cut into. The proxy's pipe to an HTTP/1.1 upstream has four places, and while a
/// finished upload fills it the proxy does not look at the client until the upstream says
/// something (proxy_h1.rs, `send_permit`): a client that leaves during prefill would go unnoticed.
const PIECES_MAX: usize = 3;

/// A body up to this is one piece, and one up to three times this fewer than three: each costs a write and two wakes.
const PIECE_BYTES_MIN: usize = 256 * 1024;

/// Of an answer that ends before its first byte, and whose head was kept.
pub const EMPTY: ErrorType = ErrorType::Custom("Empty");
const FIRST_BYTE_LATE: ErrorType = ErrorType::Custom("FirstByteLate");
const MOVED_AWAY: ErrorType = ErrorType::Custom("MovedAway");
const STALLED: ErrorType = ErrorType::Custom("Stalled");
const STOPPING: ErrorType = ErrorType::Custom("Stopping");

/// How long an attempt may be silent. `None`: for ever.
#[derive(Clone, Copy, Debug, Default)]
pub struct Patience {
    /// From the end of its request header to its response header.
    pub first_byte: Option<Duration>,
    /// Between two pieces of its answer; until the first piece the longer of the two holds, since
    /// some engines send their header before they have read the prompt.
    pub idle: Option<Duration>,
}

/// How an answer is handed to the client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivery {
    /// The head of a good answer waits for the first byte after it, or for the first heartbeat.
    pub holds_head: bool,
    /// How often a stream that says nothing is kept open, from its head on. `None`: never.
    pub heartbeat: Option<Duration>,
}

/// Why an attempt was let go of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Its first-byte limit passed.
    FirstByteLate,
    /// Its `Mover` said so, before anything of its answer went to the client.
    MovedAway,
    /// Its answer had begun and then paused for too long.
    Stalled,
    /// The process ends and cannot wait for it any longer.
    Stopping,
}

impl Cut {
    /// The cut behind an error of `error_while_proxy`. Pingora blames the client for it, as it came
    /// up on that side; the caller turns it round (`Error::as_up`).
    pub fn of(error: &Error) -> Option<Cut> {
        match error.etype() {
            kind if *kind == FIRST_BYTE_LATE => Some(Cut::FirstByteLate),
            kind if *kind == MOVED_AWAY => Some(Cut::MovedAway),
            kind if *kind == STALLED => Some(Cut::Stalled),
            kind if *kind == STOPPING => Some(Cut::Stopping),
            _ => None,
        }
    }

    fn into_error(self) -> Box<Error> {
        match self {
            Cut::FirstByteLate => Error::explain(FIRST_BYTE_LATE, "no response header in time"),
            Cut::MovedAway => Error::explain(MOVED_AWAY, "asked to move before its answer"),
            Cut::Stalled => Error::explain(STALLED, "the answer paused for too long"),
            Cut::Stopping => Error::explain(STOPPING, "the process ends"),
        }
    }
}

/// The error for an answer that ends before its first byte; the node's.
pub fn empty() -> Box<Error> {
    Error::explain(EMPTY, "a good status and no body").into_up()
}

/// The handle to a replaying session; kept beside it until the request is over.
pub struct Replay {
    shared: Arc<Shared>,
}

impl Replay {
    /// Puts the client's session, its body read, inside a replaying one. What must be set on the
    /// real session (keep-alive, timeouts of its own kind) is set before. One at a time. `stage` says when to
    /// part with the client.
    pub fn install(session: &mut Session, body: Bytes, stage: watch::Receiver<Stage>) -> Replay {
        debug_assert!(!session.downstream_session.is_custom(), "installed twice");
        let first = Attempt { number: 0, body, patience: Patience::default(), delivery: Delivery::default() };
        let shared = Arc::new(Shared {
            returned: Mutex::new(None),
            attempt: Mutex::new(first),
            moved_up_to: AtomicU64::new(0),
            moves: Notify::new(),
            cork: Mutex::new(None),
            given_bytes: AtomicU64::new(0),
            is_last: AtomicBool::new(false),
        });
        let inner = std::mem::replace(&mut session.downstream_session, placeholder());
        let replaying = ReplaySession::new(inner, Arc::clone(&shared), stage);
        *session.downstream_session = ServerSession::new_custom(Box::new(replaying));
        Replay { shared }
    }

    /// Has an answer that is still to come say that its connection ends with it.
    pub fn make_last(&self) {
        self.shared.is_last.store(true, Ordering::Relaxed);
    }

    /// Says what the next attempt sends, how long it may be silent and how its answer is handed on. Called for each
    /// attempt, before it begins (in `upstream_peer`); the attempt before it can no longer be moved.
    pub fn prepare(&self, body: Bytes, patience: Patience, delivery: Delivery) -> Mover {
        let mut attempt = self.shared.attempt.lock();
        let number = attempt.number + 1;
        *attempt = Attempt { number, body, patience, delivery };
        Mover { shared: Arc::downgrade(&self.shared), number }
    }

    /// Returns when the client leaves while no attempt runs, such as in a queue between two of them.
    /// To be raced against what the request waits for; dropping it loses nothing.
    pub async fn client_left(&self, session: &mut Session) -> Box<Error> {
        // Whatever ran before is over: its deadline must not end this wait.
        self.shared.attempt.lock().number += 1;
        match session.downstream_session.read_body_or_idle(true).await {
            Err(error) => error.into_down(),
            Ok(_) => Error::explain(ErrorType::ReadError, "the client sent on after its request").into_down(),
        }
    }

    /// Bytes of answers that went to the client. Pingora drops what it has passed through its filters and not
    /// yet written when the next piece fails there.
    pub fn given_bytes(&self) -> u64 {
        self.shared.given_bytes.load(Ordering::Relaxed)
    }

    /// The attempt has this connection, and its head is about to be written.
    pub fn connected(&self, socket: RawFd) {
        let has_body = !self.shared.attempt.lock().body.is_empty();
        *self.shared.cork.lock() = has_body.then(|| Cork::put_into(socket)).flatten();
    }

    /// Makes a request header fit the prepared body: exactly one framing, no expectation.
    pub fn frame(&self, headers: &mut HeaderMap) {
        headers.remove(EXPECT);
        headers.remove(TRANSFER_ENCODING);
        headers.remove(TRAILER);
        headers.insert(CONTENT_LENGTH, self.shared.attempt.lock().body.len().into());
    }

    /// The most bytes one write to the upstream carries; write timeouts scale with it.
    pub fn piece_bytes(&self) -> usize {
        piece_bytes(self.shared.attempt.lock().body.len())
    }

    /// Puts the real session back. Called in `logging`, the last hook before Pingora decides
    /// whether the connection can serve another request.
    pub fn restore(self, session: &mut Session) {
        // There is no way down from `dyn Session`; the replaying one leaves what it holds when it
        // is dropped.
        *session.downstream_session = ServerSession::new_custom(Box::new(()));
        if let Some(inner) = self.shared.returned.lock().take() {
            session.downstream_session = inner;
        }
    }
}

/// Moves one attempt away from its node. Outlives the attempt harmlessly and holds no memory of it.
#[derive(Clone, Debug)]
pub struct Mover {
    shared: Weak<Shared>,
    number: u64,
}

impl Mover {
    /// Ends the attempt if nothing of its answer went to the client; does nothing to a later one.
    pub fn move_away(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.moved_up_to.fetch_max(self.number, Ordering::SeqCst);
            shared.moves.notify_waiters();
        }
    }
}

/// What the handle and the replaying session know together.
struct Shared {
    returned: Mutex<Option<Box<ServerSession>>>,
    attempt: Mutex<Attempt>,
    /// Of answers, what the client's session has taken.
    given_bytes: AtomicU64,
    /// Its connection ends with this request.
    is_last: AtomicBool,
    /// Attempts up to this number are to end; they count from one.
    moved_up_to: AtomicU64,
    /// Told of each change of it.
    moves: Notify,
    /// In the connection of the attempt that is about to begin.
    cork: Mutex<Option<Cork>>,
}

impl Shared {
    /// Returns when this attempt is to end. They count from one; zero was never prepared and cannot be moved.
    async fn moved(&self, number: u64) {
        loop {
            let mut news = pin!(self.moves.notified());
            // From here on no news is lost.
            news.as_mut().enable();
            if number > 0 && self.moved_up_to.load(Ordering::SeqCst) >= number {
                return;
            }
            news.await;
        }
    }
}

#[derive(Clone)]
struct Attempt {
    number: u64,
    body: Bytes,
    patience: Patience,
    delivery: Delivery,
}

fn piece_bytes(body_bytes: usize) -> usize {
    body_bytes.div_ceil(PIECES_MAX).max(PIECE_BYTES_MIN)
}

/// Pingora's own stand-in, which must never be asked anything.
fn placeholder() -> Box<ServerSession> {
    Box::new(ServerSession::new_custom(Box::new(())))
}

#[cfg(test)]
mod tests;
