//! The stream of snapshots for the dashboard, as server-sent events.
//!
//! One a second while somebody listens. All listeners share each snapshot, and none is kept for a
//! listener that does not read: what it missed is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::Response;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, HeaderValue, RETRY_AFTER};
use pingora::http::ResponseHeader;
use pingora_core::Result;
use pingora_core::apps::http_app::ServeHttp;
use pingora_core::apps::{HttpPersistentSettings, HttpServerApp, ReusedHttpStream};
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::ShutdownWatch;
use tokio::time::{MissedTickBehavior, interval};

use super::Admin;

/// Dashboards that may be open at once; more ask for snapshots instead.
const LISTENERS_MAX: usize = 32;

const EVERY: Duration = Duration::from_secs(1);

/// For one event to be taken by a listener.
const WRITE_MAX: Duration = Duration::from_secs(10);

/// How many listen now.
#[derive(Clone, Default)]
pub struct Listeners(Arc<AtomicUsize>);

/// One of them; carried by the answer that is to be a stream.
#[derive(Clone)]
pub struct Listener(#[allow(dead_code)] Arc<Seat>);

struct Seat(Listeners);

impl Listeners {
    /// The head of a stream, or why there is none.
    pub fn answer(&self) -> Response<Vec<u8>> {
        if self.0.fetch_add(1, Ordering::Relaxed) >= LISTENERS_MAX {
            self.0.fetch_sub(1, Ordering::Relaxed);
            let mut full = super::text(503, "text/plain", b"as many listen as may; GET /fleet/snapshot\n".to_vec());
            full.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("10"));
            return full;
        }
        let mut response = super::text(200, "text/event-stream", Vec::new());
        response.headers_mut().remove(CONTENT_LENGTH);
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response.extensions_mut().insert(Listener(Arc::new(Seat(self.clone()))));
        response
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The admin port as Pingora serves it: each answer in one piece, but for the stream.
pub struct Port(pub Admin);

#[async_trait]
impl HttpServerApp for Port {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        if !session.read_request().await.ok()? {
            return None;
        }
        session.set_keepalive((!*shutdown.borrow()).then_some(KEEP_ALIVE_S));
        let (head, body) = self.0.response(&mut session).await.into_parts();
        let listener = head.extensions.get::<Listener>().cloned();
        if listener.is_some() {
            session.set_keepalive(None);
        }
        session.write_response_header(Box::new(ResponseHeader::from(head))).await.ok()?;
        if listener.is_some() {
            // Its end is the listener's, or the server's; an error means that the listener has left.
            let _ = self.stream(&mut session, shutdown.clone()).await;
            return None;
        }
        if !body.is_empty() {
            session.write_response_body(body.into(), true).await.ok()?;
        }
        let settings = HttpPersistentSettings::for_session(&session);
        let reusable = session.finish().await.ok()??;
        Some(ReusedHttpStream::from_reusable_stream(reusable, settings))
    }
}

/// An idle connection is kept for so many seconds.
const KEEP_ALIVE_S: u64 = 60;

impl Port {
    async fn stream(&self, session: &mut ServerSession, mut shutdown: ShutdownWatch) -> Result<()> {
        session.set_write_timeout(Some(WRITE_MAX));
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = shutdown.changed() => return Ok(()),
            }
            let ingress = &self.0.ingress;
            let event = [b"data: ", &ingress.snapshots.latest(ingress)[..], b"\n\n"].concat();
            session.write_response_body(Bytes::from(event), false).await?;
        }
    }
}
