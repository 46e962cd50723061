//! The replaying session itself: the body comes from memory, everything else from the client.
//!
//! The proxy calls `enable_retry_buffering` once for each attempt, after the request header went
//! out and before it looks at the body: there the session rewinds. It owns the client's session and
//! leaves it in `Shared::returned` when dropped, however that comes about.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::Stream;
use http::HeaderMap;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora_core::Result;
use pingora_core::protocols::Digest;
use pingora_core::protocols::http::custom::CustomMessageWrite;
use pingora_core::protocols::http::custom::server::Session as CustomSession;
use pingora_core::protocols::http::{HttpTask, ServerSession};
use pingora_core::protocols::l4::socket::SocketAddr;
use tokio::sync::watch;
use tokio::time::Instant;

use super::super::departure::{Stage, cut_off};
use super::cork::Cork;
use super::pulse::Pulse;
use super::timer::{Timer, late};
use super::{Attempt, Cut, Patience, Shared, empty, piece_bytes, placeholder};

type MessageReader = Box<dyn Stream<Item = Result<Bytes>> + Unpin + Send + Sync + 'static>;

pub(super) struct ReplaySession {
    inner: Box<ServerSession>,
    shared: Arc<Shared>,
    stage: watch::Receiver<Stage>,
    attempt: Attempt,
    sent_bytes: usize,
    /// Until the body has followed the head.
    cork: Option<Cork>,
    deadline: Option<Instant>,
    /// Wakes at the deadline or before.
    timer: Timer,
    /// The head of a good answer, until its first byte.
    held: Option<Box<ResponseHeader>>,
    /// One that a heartbeat sent on its way; it counts as written from then on.
    sent: Option<Box<ResponseHeader>>,
    pulse: Option<Pulse>,
}

/// How far a request has come.
enum Phase {
    /// An attempt runs and nothing of its answer went to the client.
    Awaiting,
    /// One is over and the next has not begun.
    Between,
    /// The answer's header went to the client.
    Answering,
    /// So it did, and the attempt is over: somebody else goes on with the answer.
    GoingOn,
}

impl ReplaySession {
    pub(super) fn new(inner: Box<ServerSession>, shared: Arc<Shared>, stage: watch::Receiver<Stage>) -> ReplaySession {
        let attempt = shared.attempt.lock().clone();
        ReplaySession {
            inner,
            shared,
            stage,
            attempt,
            sent_bytes: 0,
            cork: None,
            deadline: None,
            timer: Timer::default(),
            held: None,
            sent: None,
            pulse: None,
        }
    }

    fn next_piece(&mut self) -> Option<Bytes> {
        let body = &self.attempt.body;
        if self.sent_bytes >= body.len() {
            return None;
        }
        let end = body.len().min(self.sent_bytes + piece_bytes(body.len()));
        let piece = body.slice(self.sent_bytes..end);
        self.sent_bytes = end;
        Some(piece)
    }

    fn is_sent(&self) -> bool {
        self.sent_bytes >= self.attempt.body.len()
    }

    /// Part of the answer is with the client: nobody else is sent this body, and a stream may last for hours.
    fn let_go_of_body(&mut self) {
        if self.attempt.body.is_empty() || self.sent_bytes < self.attempt.body.len() {
            return;
        }
        (self.attempt.body, self.sent_bytes) = (Bytes::new(), 0);
        let mut shared = self.shared.attempt.lock();
        if shared.number == self.attempt.number {
            shared.body = Bytes::new();
        }
    }

    /// Where the request is. A 100 or 103 is no answer; HTTP/1.1 sessions remember those, too.
    fn phase(&self) -> Phase {
        let has_begun = self.written().is_some_and(|header| !header.status.is_informational());
        let runs = self.attempt.number == self.shared.attempt.lock().number;
        match (has_begun, runs) {
            (true, true) => Phase::Answering,
            (true, false) => Phase::GoingOn,
            (false, true) => Phase::Awaiting,
            (false, false) => Phase::Between,
        }
    }

    /// Notes that a part of the answer has come.
    fn heard(&mut self, task: &HttpTask) {
        let Patience { first_byte, idle } = self.attempt.patience;
        let limit = match task {
            HttpTask::Header(..) => idle.map(|idle| idle.max(first_byte.unwrap_or(idle))),
            _ => idle,
        };
        self.deadline = limit.map(|limit| Instant::now() + limit);
    }

    /// Waits for the client to leave or the attempt to be cut.
    async fn wait(&mut self) -> Result<Option<Bytes>> {
        if let Some(cork) = self.cork {
            cork.pull().await;
            self.cork = None;
        }
        loop {
            let due = self.pulse.as_ref().map(Pulse::due);
            let cut = match self.phase() {
                Phase::Between => return self.inner.read_body_or_idle(true).await,
                Phase::Answering => tokio::select! {
                    left = self.inner.read_body_or_idle(true) => return left,
                    () = self.timer.late(self.deadline) => return Err(Cut::Stalled.into_error()),
                    () = cut_off(&mut self.stage) => return Err(Cut::Stopping.into_error()),
                    () = late(due) => None,
                },
                Phase::GoingOn => tokio::select! {
                    left = self.inner.read_body_or_idle(true) => return left,
                    () = cut_off(&mut self.stage) => return Err(Cut::Stopping.into_error()),
                    () = late(due) => None,
                },
                Phase::Awaiting => tokio::select! {
                    left = self.inner.read_body_or_idle(true) => return left,
                    () = self.timer.late(self.deadline) => Some(Cut::FirstByteLate),
                    () = self.shared.moved(self.attempt.number) => Some(Cut::MovedAway),
                    () = cut_off(&mut self.stage) => Some(Cut::Stopping),
                    () = late(due) => None,
                },
            };
            let Some(cut) = cut else {
                self.beat().await?;
                continue;
            };
            // A header that has come meanwhile wins: one turn to read it from the socket, one to take
            // it from the pipe, whereupon the proxy drops this future.
            for _ in 0..2 {
                tokio::task::yield_now().await;
            }
            return Err(cut.into_error());
        }
    }

    /// Hands a part of the answer to the client, or keeps the head for now; true at the end.
    async fn hand_on(&mut self, task: HttpTask) -> Result<bool> {
        self.settle().await?;
        if matches!(task, HttpTask::Header(..)) {
            self.say_whether_it_closes();
        }
        if let HttpTask::Header(header, false) = &task
            && !header.status.is_informational()
        {
            let beats = matches!(*self.inner, ServerSession::H1(_));
            let every = self.attempt.delivery.heartbeat.filter(|_| beats);
            self.pulse = every.and_then(|every| Pulse::of(header, every));
        }
        let task = match task {
            HttpTask::Header(header, false) if self.attempt.delivery.holds_head && header.status.is_success() => {
                self.held = Some(header);
                return Ok(false);
            }
            HttpTask::Body(bytes, false) if bytes.as_ref().is_none_or(Bytes::is_empty) => return Ok(false),
            HttpTask::Done | HttpTask::Trailer(_) if self.held.take().is_some() => return Err(empty()),
            task @ HttpTask::Failed(_) => {
                self.held = None;
                task
            }
            task => task,
        };
        if let Some(header) = self.held.take() {
            self.say_whether_it_closes();
            self.inner.response_duplex_vec(vec![HttpTask::Header(header, false)]).await?;
        }
        if let (HttpTask::Body(Some(bytes), _), Some(pulse)) = (&task, &mut self.pulse) {
            pulse.passed(bytes);
        }
        let bytes = match &task {
            HttpTask::Body(Some(bytes), _) => bytes.len(),
            _ => 0,
        };
        let ended = self.inner.response_duplex_vec(vec![task]).await?;
        self.shared.given_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if bytes > 0 {
            self.let_go_of_body();
        }
        if ended {
            self.pulse = None;
        }
        Ok(ended)
    }

    /// Keeps the client's side of a silent answer open. May be dropped while it writes: what is begun
    /// then is finished by `settle`, since these tasks of an HTTP/1 session can be taken up again.
    async fn beat(&mut self) -> Result<()> {
        let Some(pulse) = &mut self.pulse else { return Ok(()) };
        let blank = pulse.beat();
        if let Some(header) = self.held.take() {
            self.say_whether_it_closes();
            self.sent = Some(header.clone());
            self.inner.send_downstream_proxy_task(HttpTask::Header(header, false));
        } else if let Some(blank) = blank {
            self.inner.send_downstream_proxy_task(HttpTask::Body(Some(Bytes::from_static(blank)), false));
        }
        self.settle().await
    }

    /// Finishes what a heartbeat began to write; nothing may be written before.
    async fn settle(&mut self) -> Result<()> {
        if self.inner.has_pending_downstream_proxy_tasks() {
            self.inner.write_downstream_proxy_tasks().await?;
        }
        Ok(())
    }

    /// The last answer on an HTTP/1 connection says so, as each is that begins while we stop.
    fn say_whether_it_closes(&mut self) {
        if self.shared.is_last.load(Ordering::Relaxed) || *self.stage.borrow() != Stage::Serving {
            self.inner.set_keepalive(None);
        }
    }

    /// The head that the client was sent, or is being sent.
    fn written(&self) -> Option<&ResponseHeader> {
        let written = self.inner.response_written();
        match &self.sent {
            Some(sent) if written.is_none_or(|header| header.status.is_informational()) => Some(sent),
            _ => written,
        }
    }
}

impl Drop for ReplaySession {
    fn drop(&mut self) {
        let inner = std::mem::replace(&mut self.inner, placeholder());
        *self.shared.returned.lock() = Some(inner);
    }
}

#[async_trait]
impl CustomSession for ReplaySession {
    // The request body, from memory.

    fn enable_retry_buffering(&mut self) {
        self.attempt = self.shared.attempt.lock().clone();
        self.cork = self.shared.cork.lock().take();
        let fits_one_piece = self.attempt.body.len() <= piece_bytes(self.attempt.body.len());
        self.sent_bytes = if fits_one_piece { self.attempt.body.len() } else { 0 };
        (self.held, self.pulse) = (None, None);
        self.deadline = self.attempt.patience.first_byte.map(|limit| Instant::now() + limit);
    }

    /// Asked before the attempt begins as well, hence of the prepared body.
    fn is_body_empty(&mut self) -> bool {
        self.shared.attempt.lock().body.is_empty()
    }

    fn is_body_done(&mut self) -> bool {
        self.is_sent()
    }

    async fn read_body_bytes(&mut self) -> Result<Option<Bytes>> {
        Ok(self.next_piece())
    }

    async fn read_body_or_idle(&mut self, no_body_expected: bool) -> Result<Option<Bytes>> {
        if !no_body_expected && let Some(piece) = self.next_piece() {
            return Ok(Some(piece));
        }
        self.wait().await
    }

    async fn drain_request_body(&mut self) -> Result<()> {
        Ok(())
    }

    fn retry_buffer_truncated(&self) -> bool {
        false
    }

    /// What the proxy sends first, without asking for the body: all of it, if that is one piece.
    fn get_retry_buffer(&self) -> Option<Bytes> {
        let body = &self.attempt.body;
        (!body.is_empty() && self.is_sent()).then(|| body.clone())
    }

    fn body_bytes_read(&self) -> usize {
        self.inner.body_bytes_read()
    }

    // The request header and the connection, from the client.

    fn req_header(&self) -> &RequestHeader {
        self.inner.req_header()
    }

    fn req_header_mut(&mut self) -> &mut RequestHeader {
        self.inner.req_header_mut()
    }

    fn request_summary(&self) -> String {
        self.inner.request_summary()
    }

    fn pseudo_raw_h1_request_header(&self) -> Bytes {
        self.inner.to_h1_raw()
    }

    fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.inner.set_read_timeout(timeout);
    }

    fn get_read_timeout(&self) -> Option<Duration> {
        self.inner.get_read_timeout()
    }

    fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.inner.set_write_timeout(timeout);
    }

    fn get_write_timeout(&self) -> Option<Duration> {
        self.inner.get_write_timeout()
    }

    fn set_total_drain_timeout(&mut self, timeout: Option<Duration>) {
        self.inner.set_total_drain_timeout(timeout);
    }

    fn get_total_drain_timeout(&self) -> Option<Duration> {
        self.inner.get_total_drain_timeout()
    }

    fn digest(&self) -> Option<&Digest> {
        self.inner.digest()
    }

    fn digest_mut(&mut self) -> Option<&mut Digest> {
        self.inner.digest_mut()
    }

    fn client_addr(&self) -> Option<&SocketAddr> {
        self.inner.client_addr()
    }

    fn server_addr(&self) -> Option<&SocketAddr> {
        self.inner.server_addr()
    }

    // The response, to the client.

    async fn write_response_header(&mut self, resp: Box<ResponseHeader>, _end: bool) -> Result<()> {
        self.say_whether_it_closes();
        self.inner.write_response_header(resp).await
    }

    async fn write_response_header_ref(&mut self, resp: &ResponseHeader, _end: bool) -> Result<()> {
        self.say_whether_it_closes();
        self.inner.write_response_header_ref(resp).await
    }

    async fn write_body(&mut self, data: Bytes, end: bool) -> Result<()> {
        self.settle().await?;
        match &mut self.pulse {
            Some(_) if end => self.pulse = None,
            Some(pulse) => pulse.passed(&data),
            None => {}
        }
        self.inner.write_response_body(data, end).await
    }

    async fn write_trailers(&mut self, trailers: HeaderMap) -> Result<()> {
        self.inner.write_response_trailers(trailers).await
    }

    async fn response_duplex_vec(&mut self, tasks: Vec<HttpTask>) -> Result<bool> {
        // One at a time: together they would become one chunk, and the client is to receive as many
        // as the upstream wrote.
        let mut ended = false;
        for task in tasks {
            self.heard(&task);
            ended = self.hand_on(task).await?;
        }
        Ok(ended)
    }

    fn proxy_tasks_enabled(&self) -> bool {
        self.inner.supports_proxy_task_api()
    }

    fn set_proxy_tasks_enabled(&mut self, enabled: bool) {
        self.inner.set_proxy_tasks_enabled(enabled);
    }

    fn send_proxy_task(&mut self, task: HttpTask) {
        self.heard(&task);
        self.inner.send_downstream_proxy_task(task);
    }

    fn has_pending_proxy_tasks(&self) -> bool {
        self.inner.has_pending_downstream_proxy_tasks()
    }

    async fn write_proxy_tasks(&mut self) -> Result<bool> {
        self.inner.write_downstream_proxy_tasks().await
    }

    fn response_written(&self) -> Option<&ResponseHeader> {
        self.written()
    }

    fn body_bytes_sent(&self) -> usize {
        self.inner.body_bytes_sent()
    }

    /// Here this means: end the response body.
    async fn finish(&mut self) -> Result<()> {
        self.settle().await?;
        self.inner.finish_body().await
    }

    async fn shutdown(&mut self, _code: u32, _context: &str) {
        self.inner.shutdown().await;
    }

    // What only real custom protocols have.

    async fn finish_custom(&mut self) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_reader(&mut self) -> Option<MessageReader> {
        None
    }

    fn restore_custom_message_reader(&mut self, _reader: MessageReader) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_writer(&mut self) -> Option<Box<dyn CustomMessageWrite>> {
        None
    }

    fn restore_custom_message_writer(&mut self, _writer: Box<dyn CustomMessageWrite>) -> Result<()> {
        Ok(())
    }
}
