//! The way in: what a client's connection may take before there is a request on it.
//!
//! Pingora limits each read of a request's head but not the head, and takes connections for as long as there
//! are descriptors. Here a head has a deadline as a whole, and a connection too many is closed at once, so that
//! what runs, the checks and the admin port go on. TLS is a part of it, and the handshake's time one of the
//! head's. Of a request it knows only whether its head has been read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora_core::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream, ServerApp};
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::http::v2::server::H2Options;
use pingora_core::server::ShutdownWatch;
use tokio::time::{Instant, timeout_at};

use super::active::Active;
use super::ingress::Ingress;
use super::securing::Secured;

/// A kept connection waits so long for its next request; Pingora's own limit, which ends with the first byte.
const IDLE_MAX: Duration = Duration::from_secs(60);

tokio::task_local! {
    static VISIT: Visit;
}

/// The request's head has been read: from here on other limits hold.
pub fn head_is_read() {
    // Of an HTTP/2 connection every request is a task of its own, and its head is there as a whole.
    let _ = VISIT.try_with(|visit| visit.due_at(None));
}

/// When the head that is being read must be there; `None` while none is.
#[derive(Clone, Default)]
struct Visit(Arc<Mutex<Option<Instant>>>);

impl Visit {
    fn due_at(&self, due: Option<Instant>) {
        *self.0.lock() = due;
    }

    /// Looks when the time comes, and now and then while there is none: told of every request it would cost each of
    /// them two wake-ups. Times that are set on the way are further off than the next look.
    async fn overdue(&self) {
        loop {
            let (now, due) = (Instant::now(), *self.0.lock());
            let look = now + IDLE_MAX;
            match due {
                Some(due) if due <= now => return,
                due => tokio::time::sleep_until(due.map_or(look, |due| due.min(look))).await,
            }
        }
    }
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
    app: Arc<Visited<A>>,
    terms: Terms,
    /// Connections that are open.
    pub open: Arc<AtomicUsize>,
    ingress: Arc<Ingress>,
}

impl<A> Door<A> {
    pub fn new(app: A, terms: Terms, ingress: Arc<Ingress>) -> Door<A> {
        let app = Visited { app: Arc::new(app), ingress: ingress.clone() };
        Door { app: Arc::new(app), terms, open: Arc::default(), ingress }
    }
}

#[async_trait]
impl<A: HttpServerApp + Send + Sync + 'static> ServerApp for Door<A> {
    async fn process_new(self: &Arc<Self>, stream: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let _open = Active::new(&self.open);
        if self.open.load(Ordering::Relaxed) > self.terms.connections_max {
            self.ingress.metrics.connections_refused.inc();
            return None;
        }
        let due = Instant::now() + head_read(&self.ingress);
        let stream = match self.terms.secured.of(&stream) {
            None => stream,
            Some(securing) => match timeout_at(due, securing.secure(stream)).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(_)) | Err(_) => {
                    self.ingress.metrics.handshakes_failed.inc();
                    return None;
                }
            },
        };
        let visit = Visit::default();
        visit.due_at(Some(due));
        tokio::select! {
            kept = VISIT.scope(visit.clone(), self.app.process_new(stream, shutdown)) => kept,
            () = visit.overdue() => None,
        }
    }

    /// Called when nobody is let in any more; connections without a request are closed by it.
    async fn cleanup(&self) {
        tokio::time::sleep(self.ingress.departure.linger()).await;
        ServerApp::cleanup(&*self.app).await;
    }
}

/// The app itself, with a deadline for each head.
struct Visited<A> {
    app: Arc<A>,
    ingress: Arc<Ingress>,
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
        let kept = self.app.process_new_http(session, shutdown).await;
        let next = Instant::now() + IDLE_MAX + head_read(&self.ingress);
        let _ = VISIT.try_with(|visit| visit.due_at(Some(next)));
        kept
    }

    /// Asked where a connection turns out to be HTTP/2, which has limits of its own.
    fn h2_options(&self) -> Option<H2Options> {
        head_is_read();
        self.app.h2_options()
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        self.app.server_options()
    }

    async fn http_cleanup(&self) {
        self.app.http_cleanup().await;
    }
}
