//! From a request's head to an ask: route it, read it whole, understand it.
//!
//! Whatever is refused here is refused before any node is asked, and readably: what the client is
//! still sending is read and thrown away within bounds, since closing on it would lose the answer.

use std::time::Duration;

use http::HeaderName;
use http::header::{AsHeaderName, UPGRADE};
use pingora_core::Result;
use pingora_proxy::Session;

use super::body::{self, Body, BodyError, BodyLimits};
use super::exchange::Exchange;
use super::payload::Payload;
use super::refusal::Refusal;
use super::replay::Replay;
use super::route::{self, Route};
use super::{answer, cors, door, headers, local, manage};
use crate::routing::ask::{Endpoint, Priority};
use crate::routing::chain::hash_text;
use crate::wire::peek::{PeekError, Peeked, peek, peek_as_it_is, peek_form};

/// Bodies above this are parsed on a thread that may block.
const PARSED_INLINE_MAX_BYTES: usize = 1 << 20;

/// A client at its limit keeps its connection if its body is not longer: Pingora closes one whose body is not
/// read when the answer is sent.
const READ_BEFORE_REFUSAL_BYTES: usize = 64 << 10;

/// Thrown away after a refusal, so that the client gets to read it.
const DISCARD_MAX_BYTES: usize = 512 << 20;
const DISCARD_MAX: Duration = Duration::from_secs(10);

/// True: answered here. False: on to an upstream, with the body held for replay.
pub async fn take(session: &mut Session, exchange: &mut Exchange) -> Result<bool> {
    let head = session.req_header();
    let (method, path) = (head.method.clone(), head.uri.path().to_string());
    let goes_round = headers::hops(head) >= headers::HOPS_MAX;
    let wants_socket = headers::wants_socket(head);
    let fits = headers::fits(head);
    let is_foreign_page = cors::is_of_foreign_page(&exchange.plan.cors, head);
    // Other protocols that a client offers to go over to are not taken up, nor told to anybody.
    session.req_header_mut().remove_header(&UPGRADE);
    exchange.begin(&path, &session.req_header().headers);
    if cors::is_preflight(session.req_header()) && cors::leave(&exchange.plan.cors, session.req_header()).is_some() {
        answer::preflight(session).await?;
        return Ok(true);
    }
    let route = route::of(&method, &path);
    if !matches!(route, Route::Forward(_)) {
        door::request_is_read();
    }
    let known = if route.is_open() { Ok(()) } else { exchange.identify(session.req_header()) };
    let taken = match route {
        _ if !fits => Err(Refusal::HeadTooLarge),
        _ if !body::has_target(session) => Err(Refusal::NoPath),
        _ if goes_round => Err(Refusal::GoesRound),
        _ if is_foreign_page => Err(Refusal::ForeignPage),
        _ if known.is_err() => known.map(|()| true),
        _ if wants_socket => Err(Refusal::WebSocket),
        _ if body::is_framed_oddly(session) => Err(Refusal::Body(BodyError::FramedOddly)),
        Route::Local(local) => {
            local::serve(&exchange.ingress, session, local, exchange.tenant.as_deref()).await?;
            return Ok(true);
        }
        Route::Forward(endpoint) => understand(session, exchange, endpoint).await,
        Route::Manage(call) => manage::take(session, exchange, call).await,
        Route::WrongMethod { allow } => Err(Refusal::WrongMethod { allow }),
        Route::Unknown => Err(Refusal::UnknownPath),
    };
    let refusal = match taken {
        Ok(answered) => return Ok(answered),
        Err(Refusal::Body(BodyError::ClientGone(error))) => return Err(error),
        Err(refusal) => exchange.discreet(refusal),
    };
    exchange.refused(&refusal);
    // After broken framing nobody can tell where the next request would begin.
    let unframed = matches!(refusal, Refusal::Body(BodyError::BadFraming(_) | BodyError::FramedOddly));
    if unframed {
        session.set_keepalive(None);
    }
    answer::refuse(session, exchange.dialect, &refusal, &exchange.request_id).await?;
    if !unframed && !discard(session).await {
        session.set_keepalive(None);
    }
    Ok(true)
}

/// Reads and throws away what the client still sends, after its answer; true if that came to its end.
pub async fn discard(session: &mut Session) -> bool {
    body::discard(session, DISCARD_MAX_BYTES, DISCARD_MAX).await
}

/// True: answered here, since it was to unload a model.
async fn understand(session: &mut Session, exchange: &mut Exchange, endpoint: Endpoint) -> Result<bool, Refusal> {
    if body::declared_bytes(session).is_none_or(|bytes| bytes > READ_BEFORE_REFUSAL_BYTES) {
        exchange.has_room(endpoint)?;
    }
    let limits = exchange.ingress.body_limits(&exchange.plan);
    let body = body::read(session, &limits).await.map_err(Refusal::Body)?;
    door::request_is_read();
    exchange.has_room(endpoint)?;
    let Peeked { mut ask, model_span, option_spans, usage_edit, names_others } =
        parse(session, &body, endpoint, &limits).await?.map_err(Refusal::BadRequest)?;
    if let Some(name) = session_name(session, &exchange.plan.affinity.headers) {
        ask.session_name = Some(name);
    }
    exchange.may_ask_for(&ask.model)?;
    if names_others {
        exchange.may_name_others()?;
    }
    ask.tenant = exchange.tenant.as_ref().map_or(0, |tenant| tenant.id);
    ask.salted = exchange.tenant.as_ref().is_some_and(|tenant| tenant.is_salted());
    ask.priority = priority(session).max(exchange.tenant.as_ref().map(|tenant| tenant.priority).unwrap_or_default());
    exchange.may_resume = may_resume(session, exchange);
    if body.was_coded {
        headers::now_plain(session.req_header_mut());
    }
    let payload = Payload { bytes: body.bytes, model_span, option_spans, usage_edit };
    if manage::unload::take(session, exchange, &ask, &payload).await? {
        return Ok(true);
    }
    exchange.admit(&ask).await?;
    exchange.replay = Some(Replay::install(session, payload.bytes.clone(), exchange.ingress.departure.watch()));
    exchange.understood(ask, payload);
    Ok(false)
}

async fn parse(
    session: &Session,
    body: &Body,
    endpoint: Endpoint,
    limits: &BodyLimits,
) -> Result<Result<Peeked, PeekError>, Refusal> {
    if endpoint.takes_form() {
        let content_type = header_text(session, "content-type").unwrap_or_default();
        return Ok(peek_form(&body.bytes, content_type, endpoint));
    }
    if body.bytes.len() <= PARSED_INLINE_MAX_BYTES {
        return Ok(peek(&body.bytes, endpoint));
    }
    let apart = |work: fn(&[u8], Endpoint) -> Result<Peeked, PeekError>| {
        let bytes = body.bytes.clone();
        tokio::task::spawn_blocking(move || work(&bytes, endpoint))
    };
    let found = apart(peek_as_it_is).await.map_err(|_| Refusal::Internal)?;
    if !matches!(found, Err(PeekError::NotJson { .. })) {
        return Ok(found);
    }
    // What has to be mended first is copied for it.
    let mut copy = limits.memory.buffer(limits.memory_wait);
    copy.reserve_total(body.bytes.len()).await.map_err(|spent| Refusal::Body(spent.into()))?;
    apart(peek).await.map_err(|_| Refusal::Internal)
}

/// By which clients say that nobody waits for the answer. It can only lower a request.
const PRIORITY: HeaderName = HeaderName::from_static("x-fleet-priority");

fn priority(session: &Session) -> Priority {
    match header_text(session, PRIORITY) {
        Some(name) if name.eq_ignore_ascii_case(Priority::Batch.name()) => Priority::Batch,
        _ => Priority::Interactive,
    }
}

/// By which clients say that a stream which is cut shall stay cut.
const RESUME: HeaderName = HeaderName::from_static("x-fleet-resume");

fn may_resume(session: &Session, exchange: &Exchange) -> bool {
    let refuses = header_text(session, RESUME).is_some_and(|said| said.eq_ignore_ascii_case("off"));
    exchange.plan.resilience.resume_streams && !refuses
}

/// The first of the affinity headers that is there and not empty.
fn session_name(session: &Session, names: &[HeaderName]) -> Option<u64> {
    names.iter().find_map(|name| header_text(session, name)).map(hash_text)
}

fn header_text(session: &Session, name: impl AsHeaderName) -> Option<&str> {
    session.req_header().headers.get(name)?.to_str().ok().filter(|text| !text.is_empty())
}
