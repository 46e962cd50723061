//! The beat that keeps a silent stream open through proxies in front of Warmgate.
//!
//! Only between two messages of a stream, never within one, and never to the engine: what it writes says
//! nothing about whether the engine is alive.

use std::time::Duration;

use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use pingora::http::ResponseHeader;
use tokio::time::Instant;

use crate::wire::border::Border;
use crate::wire::framing::Framing;

pub(super) struct Pulse {
    every: Duration,
    due: Instant,
    border: Border,
}

impl Pulse {
    /// Of an answer with this head; `None`: nothing may be written into it.
    pub fn of(header: &ResponseHeader, every: Duration) -> Option<Pulse> {
        let fixed = [CONTENT_LENGTH, CONTENT_ENCODING].iter().any(|name| header.headers.contains_key(name));
        let content_type = header.headers.get(CONTENT_TYPE)?.to_str().ok()?;
        let framing = Framing::of(content_type);
        let may = header.status.is_success() && !fixed && framing != Framing::Whole;
        may.then(|| Pulse { every, due: Instant::now() + every, border: Border::new(framing) })
    }

    pub fn due(&self) -> Instant {
        self.due
    }

    /// A part of the answer goes to the client.
    pub fn passed(&mut self, bytes: &[u8]) {
        self.border.feed(bytes);
        self.due = Instant::now() + self.every;
    }

    /// It is time; what may be written.
    pub fn beat(&mut self) -> Option<&'static [u8]> {
        self.due = Instant::now() + self.every;
        self.border.blank()
    }
}
