//! The proxy: Pingora's hooks, each a few lines.
//!
//! A request is read whole, understood, placed, sent, and its answer carried as it comes. Pingora owns
//! connections, pooling and copying; this file says when and where. State between hooks lives in the
//! `Exchange`; what a failure means is `routing::retry`'s to say.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::modules::http::HttpModules;
use pingora_core::protocols::Digest;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::{Error, ErrorSource, ErrorType, Result};
use pingora_proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};

use super::answer;
use super::body::{self, BodyError};
use super::cors::Leaves;
use super::door;
use super::exchange::{Exchange, Unplaced};
use super::headers;
use super::ingress::Ingress;
use super::intake;
use super::node::Node;
use super::refusal::Refusal;
use super::replay::{self, Cut, Delivery, Patience, Replay};
use super::resume::{self, Resumed};
use super::tenants::tell_limits;
use super::translation::Translation;
use super::verdict::Verdict;
use crate::routing::retry::Cause;
use crate::wire;
use crate::wire::observe::Observed;
use crate::wire::translate::End;

/// Serves clients over an `Ingress`.
pub struct Gateway {
    ingress: Arc<Ingress>,
}

/// Pooled connections that turn out to be closed are no fault of the node's; so many are forgiven.
const STALE_CONNECTIONS_MAX: usize = 2;

/// A connection that was stale fails at once. One that fails later was at work on the request.
const STALE_WITHIN: Duration = Duration::from_secs(1);

/// For one write of a piece of the request to an upstream that does not read.
const UPSTREAM_WRITE_MAX: Duration = Duration::from_secs(60);

/// Idle upstream connections are closed after this. Uvicorn closes its own after five seconds, and a
/// request sent into a closing connection is lost.
const UPSTREAM_IDLE_MAX: Duration = Duration::from_secs(4);

/// Raised where no node is to be asked: the refusal, or the answer, is in the exchange.
const REFUSED: ErrorType = ErrorType::Custom("Refused");

impl Gateway {
    pub fn new(ingress: Arc<Ingress>) -> Gateway {
        Gateway { ingress }
    }

    fn peer(&self, node: &Node, exchange: &Exchange) -> Result<HttpPeer> {
        let Some(address) = node.address.load_full() else {
            return Error::e_explain(ErrorType::ConnectNoRoute, "the node has no address");
        };
        let timeouts = &exchange.plan.timeouts;
        let mut peer = node.target.peer(*address);
        peer.options.connection_timeout = Some(timeouts.connect.0);
        peer.options.total_connection_timeout = Some(timeouts.connect.0 * 2);
        peer.options.write_timeout = Some(UPSTREAM_WRITE_MAX);
        peer.options.idle_timeout = Some(UPSTREAM_IDLE_MAX);
        Ok(peer)
    }
}

/// In a box: Pingora hands it on from future to future, and each of these has room for all of it, as long as the
/// stream is open.
type Context = Box<Exchange>;

#[async_trait]
impl ProxyHttp for Gateway {
    type CTX = Context;

    fn new_ctx(&self) -> Context {
        Box::new(Exchange::new(self.ingress.clone()))
    }

    /// Not the default: it registers a compressor, and streams must never be compressed.
    fn init_downstream_modules(&self, modules: &mut HttpModules) {
        modules.add_module(Box::new(Leaves(self.ingress.clone())));
    }

    async fn early_request_filter(&self, session: &mut Session, _: &mut Context) -> Result<()> {
        door::head_is_read();
        // What a client sends behind its request is its next one. Without this Pingora takes it for a fault, and the
        // answer to the first is lost.
        session.as_downstream_mut().set_pipelining_enabled(true);
        Ok(())
    }

    async fn request_filter(&self, session: &mut Session, exchange: &mut Context) -> Result<bool> {
        session.set_write_timeout(Some(exchange.plan.timeouts.client_write.0));
        intake::take(session, exchange).await
    }

    async fn upstream_peer(&self, session: &mut Session, exchange: &mut Context) -> Result<Box<HttpPeer>> {
        if let Some(carried) = &exchange.carried {
            if let (Some(replay), Some(body)) = (&exchange.replay, &carried.body) {
                replay.prepare(body.clone(), carried.patience(&self.ingress), Delivery::default());
            }
            return match self.peer(&carried.node, exchange) {
                Ok(peer) => Ok(Box::new(carried.alone(peer, &self.ingress))),
                Err(error) => {
                    exchange.give_up(Cause::ConnectFailed);
                    Err(error)
                }
            };
        }
        let node = match exchange.again.take() {
            Some(node) => node,
            None => match exchange.choose(session).await {
                Ok(node) => node,
                Err(Unplaced::Refused(refusal)) => return Err(refuse(exchange, refusal)),
                Err(Unplaced::ClientGone(error)) => return Err(error),
            },
        };
        let Some(body) = exchange.attempt_body().map_err(|refusal| refuse(exchange, refusal))? else {
            return Error::e_explain(REFUSED, "the answer is ready without a node");
        };
        if let Some(replay) = &exchange.replay {
            let timeouts = &exchange.plan.timeouts;
            let patience = Patience { first_byte: Some(timeouts.first_byte.0), idle: Some(timeouts.idle.0) };
            let heartbeat = timeouts.heartbeat.0.map(|every| every.0);
            let mover = replay.prepare(body, patience, Delivery { holds_head: exchange.runs_model(), heartbeat });
            exchange.watch(mover);
        }
        exchange.sent_at = self.ingress.fleet.now();
        Ok(Box::new(self.peer(&node, exchange)?))
    }

    async fn connected_to_upstream(
        &self,
        _: &mut Session,
        _: bool,
        _: &HttpPeer,
        socket: RawFd,
        _: Option<&Digest>,
        exchange: &mut Context,
    ) -> Result<()> {
        exchange.connected(socket);
        Ok(())
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        request: &mut RequestHeader,
        exchange: &mut Context,
    ) -> Result<()> {
        if exchange.streams_body() {
            body::invite(session).await?;
            // It has been met.
            for head in [session.req_header_mut(), request] {
                head.remove_header(&http::header::EXPECT);
            }
        }
        headers::edit(request, |parts| {
            headers::introduce(parts, session, &exchange.plan.trusted_peers);
            exchange.address(parts)
        })
    }

    async fn upstream_response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        exchange: &mut Context,
    ) -> Result<()> {
        exchange.told_to_wait(response);
        if let Some(cause) = exchange.cause_of(response) {
            let retry = exchange.takes_retry(cause);
            if retry || !exchange.verdict(cause).told {
                exchange.attempt_failed(cause);
                let status = ErrorType::HTTPStatus(response.status.as_u16());
                let mut error = Error::explain(status, cause.name()).into_up();
                error.set_retry(retry);
                return Err(error);
            }
            exchange.tell(cause);
        }
        // Here and not later: for the client Pingora gives every answer a framing.
        exchange.end_is_unsure = headers::end_is_unsure(response, session);
        Ok(())
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        exchange: &mut Context,
    ) -> Result<()> {
        if response.status.is_informational() {
            return Ok(());
        }
        exchange.answering(response);
        let version = session.req_header().version;
        headers::edit_answer(response, |parts| {
            headers::for_client(&mut parts.headers, version);
            if let Some(translation) = &mut exchange.translation {
                translation.begin(parts, version);
            }
            headers::keep_streams_flowing(&mut parts.headers);
            tell_limits(&mut parts.headers, &exchange.limits_told(), exchange.dialect);
            exchange.tell_routing(&mut parts.headers);
            headers::tell(&mut parts.headers, headers::REQUEST_ID, exchange.request_id.as_str());
            Ok(())
        })?;
        if headers::is_bodiless(response, session) {
            // No body, so no hook will see its end.
            exchange.completed(Observed::default());
        }
        Ok(())
    }

    fn response_body_filter(
        &self,
        session: &mut Session,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        exchange: &mut Context,
    ) -> Result<Option<Duration>> {
        if let Some(chunk) = body {
            exchange.pass(chunk);
        }
        *body = body.take().and_then(|chunk| exchange.wanted(chunk));
        if let Some(translation) = &mut exchange.translation {
            *body = body.as_ref().and_then(|chunk| translation.feed(chunk));
        }
        if end_of_stream {
            end(body, session, exchange)?;
        }
        Ok(None)
    }

    fn fail_to_connect(
        &self,
        _: &mut Session,
        _: &HttpPeer,
        exchange: &mut Context,
        mut error: Box<Error>,
    ) -> Box<Error> {
        error.set_retry(exchange.give_up(Cause::ConnectFailed));
        error
    }

    fn error_while_proxy(
        &self,
        _: &HttpPeer,
        session: &mut Session,
        mut error: Box<Error>,
        exchange: &mut Context,
        reused: bool,
    ) -> Box<Error> {
        let cut = Cut::of(&error);
        if cut.is_some() {
            error.as_up();
        }
        error.set_retry(false);
        if cut == Some(Cut::Stopping) {
            if !has_begun(session) {
                exchange.refusal = Some(Refusal::Stopping);
            }
            return error;
        }
        if has_begun(session) || error.esource() != &ErrorSource::Upstream {
            // Begun; or the client's leaving, or a fault of our own, for neither of which a node is to blame.
            return error;
        }
        if exchange.node().is_none() {
            // Given up by `upstream_response_filter`, which has said what that means.
            error.set_retry(exchange.moves);
            return error;
        }
        if exchange.carried.is_some() {
            // Whatever it did may have been done: it is never sent again.
            exchange.give_up(Cause::ConnectionLost);
            return error;
        }
        if error.etype() == &replay::EMPTY {
            error.set_retry(exchange.give_up(Cause::Empty));
            return error;
        }
        let at_once = !exchange.is_answering() && self.ingress.fleet.now().since(exchange.sent_at) < STALE_WITHIN;
        if reused && at_once && cut.is_none() && exchange.stale_connections < STALE_CONNECTIONS_MAX {
            exchange.stale_connections += 1;
            exchange.again = exchange.node().cloned();
            error.set_retry(true);
            return error;
        }
        let cause = match cut {
            Some(Cut::FirstByteLate) => Cause::FirstByteLate,
            Some(Cut::MovedAway) => Cause::Ejected,
            Some(Cut::Stalled | Cut::Stopping) | None => Cause::ConnectionLost,
        };
        error.set_retry(exchange.give_up(cause));
        error
    }

    async fn fail_to_proxy(&self, session: &mut Session, error: &Error, exchange: &mut Context) -> FailToProxy {
        // Pingora closes the connection after what ends here, and the answer says so.
        session.set_keepalive(None);
        if let Some(refusal) = fault_in_request(error, exchange).filter(|_| !has_begun(session)) {
            return tell_refusal(session, exchange, refusal).await;
        }
        if is_clients(error) {
            exchange.client_gone();
            return FailToProxy { error_code: 499, can_reuse_downstream: false };
        }
        if has_begun(session) {
            let given_bytes = exchange.given_bytes().unwrap_or_default();
            log::info!("{}: cut in its answer, after {given_bytes} bytes: {}", exchange.request_id, why_cut(error));
            if Cut::of(error) == Some(Cut::Stopping) {
                exchange.stopped();
                mark_cut(session, exchange, "Warmgate is stopping and could not wait for the end").await;
                return FailToProxy { error_code: 502, can_reuse_downstream: false };
            }
            let how = match Cut::of(error) {
                Some(Cut::Stalled) => Verdict::Stalled,
                _ if error.etype() == &replay::EMPTY => Verdict::Empty,
                _ => Verdict::Cut,
            };
            match resume::go_on(session, exchange, how).await {
                Resumed::Whole => return FailToProxy { error_code: 200, can_reuse_downstream: false },
                Resumed::ClientGone => {
                    exchange.client_gone();
                    return FailToProxy { error_code: 499, can_reuse_downstream: false };
                }
                Resumed::Cut(how) => exchange.broke_off(how),
            }
            mark_cut(session, exchange, "the node failed while it was answering").await;
            return FailToProxy { error_code: 502, can_reuse_downstream: false };
        }
        exchange.replay.iter().for_each(Replay::make_last);
        if let Some(body) = exchange.ready_answer.take() {
            exchange.answered_here();
            let _ = answer::our_own(session, body, &exchange.request_id).await;
            return FailToProxy { error_code: 200, can_reuse_downstream: false };
        }
        let refusal = exchange.refusal.take().unwrap_or_else(|| {
            log::error!("{}: {error}", exchange.request_id);
            Refusal::Internal
        });
        let failed = tell_refusal(session, exchange, refusal).await;
        if exchange.streams_body() {
            intake::discard(session).await;
        }
        failed
    }

    async fn logging(&self, session: &mut Session, _: Option<&Error>, exchange: &mut Context) {
        if let Some(replay) = exchange.replay.take() {
            replay.restore(session);
        } else if exchange.streams_body() && has_begun(session) && !session.is_body_done() {
            // The node answered early; the client gets to read that before the connection closes.
            intake::discard(session).await;
        }
        // Elsewhere it may be taken for a part of this one, and here nothing may hide in another.
        if !body::ends_plainly(session.req_header()) {
            session.as_downstream_mut().set_pipelining_enabled(false);
        }
        exchange.finish();
    }

    /// Pingora's own lines name addresses; ours say what it means.
    fn suppress_error_log(&self, _: &Session, _: &Context, _: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(&self, _: &Session, _: &Context, _: &Error, _: ProxyWarnLogContext) -> bool {
        true
    }
}

fn is_clients(error: &Error) -> bool {
    error.esource() == &ErrorSource::Downstream
}

/// What was wrong with a request itself, and showed only on the way.
fn fault_in_request(error: &Error, exchange: &Exchange) -> Option<Refusal> {
    if error.etype() == &ErrorType::InvalidHTTPHeader && is_clients(error) {
        return Some(Refusal::OddConnection);
    }
    let is_framing = exchange.streams_body() && body::is_bad_framing(error);
    is_framing.then(|| Refusal::Body(BodyError::BadFraming(Error::new_down(error.etype().clone()))))
}

/// The end of a request whose answer has not begun, by our own answer.
async fn tell_refusal(session: &mut Session, exchange: &mut Exchange, refusal: Refusal) -> FailToProxy {
    exchange.refused(&refusal);
    let _ = answer::refuse(session, exchange.dialect, &refusal, &exchange.request_id).await;
    FailToProxy { error_code: refusal.status(), can_reuse_downstream: false }
}

/// In words where it was we who let go of it.
fn why_cut(error: &Error) -> &str {
    match Cut::of(error) {
        Some(Cut::Stopping) => "the process ends",
        Some(Cut::Stalled) => "the node paused for too long",
        _ => error.etype().as_str(),
    }
}

/// Whether the client has been sent the head of its answer. A `100 Continue` is none.
fn has_begun(session: &Session) -> bool {
    session.response_written().is_some_and(|head| !head.status.is_informational())
}

/// The answer ends after this part of it, as far as HTTP can tell.
fn end(body: &mut Option<Bytes>, session: &Session, exchange: &mut Exchange) -> Result<()> {
    if exchange.is_empty_answer() {
        return Err(replay::empty());
    }
    let Ok(observed) = exchange.observed() else {
        return Err(Error::explain(ErrorType::ConnectionClosed, "the answer broke off").into_up());
    };
    let kept_back = exchange.kept_back();
    if !kept_back.is_empty() {
        *body = Some([body.take().unwrap_or_default(), kept_back.into()].concat().into());
    }
    if let Some(ending) = exchange.translation.as_mut().and_then(Translation::finish) {
        let mut last = body.take().map_or_else(Vec::new, Vec::from);
        last.extend_from_slice(&ending.bytes);
        *body = Some(last.into());
        match ending.end {
            End::Whole => {}
            // Its last line has said so; more would be said twice.
            End::Failed if !observed.error => exchange.broke_off(Verdict::Cut),
            End::Failed => {}
            End::Untold => {
                return Err(Error::explain(ErrorType::ConnectionClosed, "the answer cannot be translated").into_up());
            }
            End::Misspoken if exchange.answers_whole() && !has_begun(session) => {
                exchange.refusal = Some(Refusal::Misspoken);
                return Error::e_explain(REFUSED, "what the model wrote cannot be translated");
            }
            End::Misspoken => exchange.misspoke(),
        }
    }
    exchange.completed(observed);
    Ok(())
}

fn refuse(exchange: &mut Exchange, refusal: Refusal) -> Box<Error> {
    exchange.refusal = Some(refusal);
    Error::explain(REFUSED, "no upstream for this request")
}

/// Ends a cut stream with a frame that says so; a body that is one message is left broken off.
async fn mark_cut(session: &mut Session, exchange: &mut Exchange, why: &str) {
    let Some(head) = session.response_written() else { return };
    if head.headers.contains_key(http::header::CONTENT_LENGTH) {
        return;
    }
    let content_type = headers::content_type(head);
    if let Some(ending) = exchange.translation.as_mut().and_then(Translation::finish) {
        let _ = session.write_response_body(Some(Bytes::from(ending.bytes)), true).await;
        return;
    }
    let frame = wire::error::frame(exchange.dialect, &content_type, exchange.place(), why);
    let Some(frame) = frame else { return };
    let rest = [exchange.kept_back(), frame].concat();
    if let Err(error) = session.write_response_body(Some(Bytes::from(rest)), true).await {
        log::debug!("{}: could not mark the cut: {}", exchange.request_id, error.etype().as_str());
    }
}
