//! The way in: what a client's connection may take before there is a request on it.
//!
//! Pingora limits each read of a request's head but not the head, and takes connections for as long as there
//! are descriptors. Here a head has a deadline as a whole; with HTTP/2 the first of a connection, which then is
//! Pingora's to close when it has had no request for a while. Where connections are as many as may be, those that
//! have waited longest without a request that could be served make room, whoever holds them; only where all
//! serve one is the next closed at once. TLS is a part of a visit, and the handshake's time one of the head's.

mod guests;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream, ServerApp};
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::http::v2::server::H2Options;
use pingora_core::server::ShutdownWatch;
use tokio::time::{Instant, timeout_at};

use super::active::Active;
use super::ingress::Ingress;
use super::securing::Secured;
use guests::{Guests, Visit};

/// A kept connection waits so long for its next request; Pingora's own limit, which ends with the first byte.
const IDLE_MAX: Duration = Duration::from_secs(60);

tokio::task_local! {
    static VISIT: Visit;
}

/// The request's head has been read: from here on other limits hold.
pub fn head_is_read() {
    let _ = VISIT.try_with(Visit::head_is_read);
}

/// Nothing more of the client's is needed to serve it: its connection makes room for nobody any more.
pub fn request_is_read() {
    let _ = VISIT.try_with(Visit::request_is_read);
}

/// What a client may take.
#[derive(Clone)]
pub struct Terms {
    /// Connections of all clients together.
    pub connections_max: usize,
    /// Where they must speak TLS.
    pub secured: Secured,
}

/// Lets clients in to an app.
pub struct Door<A> {
    app: Arc<A>,
    terms: Terms,
    /// Connections that are open.
    pub open: Arc<AtomicUsize>,
    guests: Arc<Guests>,
    ingress: Arc<Ingress>,
}

impl<A> Door<A> {
    pub fn new(app: A, terms: Terms, ingress: Arc<Ingress>) -> Door<A> {
        Door { app: Arc::new(app), terms, open: Arc::default(), guests: Arc::default(), ingress }
    }

    /// Whether another may come in, after somebody else was sent away for it if need be.
    fn has_room(&self) -> bool {
        let staying = self.open.load(Ordering::Relaxed).saturating_sub(self.guests.leaving());
        if staying <= self.terms.connections_max {
            return true;
        }
        let sent_away = self.guests.send_away();
        self.ingress.metrics.connections_displaced.inc_by(sent_away as u64);
        sent_away > 0
    }
}

#[async_trait]
impl<A: HttpServerApp + Send + Sync + 'static> ServerApp for Door<A> {
    async fn process_new(self: &Arc<Self>, stream: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let _open = Active::new(&self.open);
        if !self.has_room() {
            self.ingress.metrics.connections_refused.inc();
            return None;
        }
        let due = Instant::now() + head_read(&self.ingress);
        let guest = self.guests.welcome(due);
        let stream = match self.terms.secured.of(&stream) {
            None => stream,
            Some(securing) => {
                // Apart, since what a handshake needs would stay for as long as the connection.
                let securing = Box::pin(securing.secure(stream));
                let secured = tokio::select! {
                    secured = timeout_at(due, securing) => secured,
                    () = guest.is_sent_away() => return None,
                };
                match secured {
                    Ok(Ok(stream)) => stream,
                    Ok(Err(_)) | Err(_) => {
                        self.ingress.metrics.handshakes_failed.inc();
                        return None;
                    }
                }
            }
        };
        let visiting = async {
            let visited = Visited { app: self.app.clone(), ingress: self.ingress.clone(), visit: guest.visit() };
            VISIT.scope(guest.visit(), Arc::new(visited).process_new(stream, shutdown)).await
        };
        tokio::select! {
            kept = visiting => kept,
            () = guest.overdue() => None,
            () = guest.is_sent_away() => None,
        }
    }

    /// Called when nobody is let in any more; connections without a request are closed by it.
    async fn cleanup(&self) {
        tokio::time::sleep(self.ingress.departure.linger()).await;
        self.app.http_cleanup().await;
    }
}

/// The app itself as one connection sees it, with a deadline for each head.
struct Visited<A> {
    app: Arc<A>,
    ingress: Arc<Ingress>,
    visit: Visit,
}

/// For the head of a request as a whole.
fn head_read(ingress: &Ingress) -> Duration {
    ingress.plan().limits.header_read.0
}

#[async_trait]
impl<A: HttpServerApp + Send + Sync + 'static> HttpServerApp for Visited<A> {
    async fn process_new_http(
        self: &Arc<Self>,
        session: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        if session.is_http2() {
            // Each of its requests is a task of its own.
            let stream = self.visit.stream();
            return VISIT.scope(stream.visit(), self.app.process_new_http(session, shutdown)).await;
        }
        let kept = self.app.process_new_http(session, shutdown).await;
        self.visit.pause(Instant::now() + IDLE_MAX + head_read(&self.ingress));
        kept
    }

    /// Asked where a connection turns out to be HTTP/2, which has limits of its own.
    fn h2_options(&self) -> Option<H2Options> {
        self.visit.turns_http2(Instant::now() + head_read(&self.ingress));
        self.app.h2_options()
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        self.app.server_options()
    }

    async fn http_cleanup(&self) {
        self.app.http_cleanup().await;
    }
}
