//! Going on with a cut chat stream at another node, by a call of our own.
//!
//! Pingora does not begin another attempt once an answer has begun, so this one is carried here: chosen and booked
//! as any other, with both sides watched, on a connection that is closed when the client leaves. What can go on
//! and how the parts are joined is `wire::resume`'s to say.

use std::time::Duration;

use bytes::Bytes;
use http::Version;
use pingora::http::RequestHeader;
use pingora_core::Error;
use pingora_proxy::Session;
use tokio::time::timeout;

use super::exchange::{Exchange, Unplaced};
use super::fetch::FetchError;
use super::headers;
use super::manage::ask::{Answer, Patience};
use super::replay::{self, Delivery};
use super::verdict::Verdict;
use crate::routing::retry::Cause;
use crate::wire::resume::{Prefix, Stitch};

/// How a cut stream ended after all.
pub enum Resumed {
    Whole,
    ClientGone,
    /// It does not go on, or was cut once more.
    Cut(Verdict),
}

/// What became of a stream that was cut, as it is counted.
pub const RESULTS: [&str; 4] = ["ok", "unfit", "client_gone", "nobody"];

/// How one attempt to go on ended.
enum Part {
    Whole,
    ClientGone,
    /// Nothing was said; another node may be asked.
    Again,
    /// Nothing was said, and nobody is left to be asked.
    Nobody,
    CutAgain(Verdict),
}

/// Takes the answer, which was cut so, to its end, over as many nodes as it takes and may take.
pub async fn go_on(session: &mut Session, exchange: &mut Exchange, how: Verdict) -> Resumed {
    if !exchange.is_followed() {
        return Resumed::Cut(how);
    }
    let Some(ungiven) = exchange.take_ungiven() else { return Resumed::Cut(how) };
    if !ungiven.is_empty() && write(session, ungiven.into(), false).await.is_some() {
        return Resumed::ClientGone;
    }
    let (resumed, result) = parts(session, exchange, how).await;
    exchange.ingress.metrics.resumed_streams.with_label_values(&[result]).inc();
    resumed
}

async fn parts(session: &mut Session, exchange: &mut Exchange, mut how: Verdict) -> (Resumed, &'static str) {
    loop {
        let prefix = match exchange.prefix().await {
            Ok(prefix) => prefix,
            Err(unfit) => {
                log::info!("{}: does not go on, since {}", exchange.request_id, unfit.reason());
                return (Resumed::Cut(how), "unfit");
            }
        };
        exchange.cut_off(how);
        let mut again = exchange.has_attempts_left();
        let mut part = Part::Nobody;
        while again {
            part = one_part(session, exchange, &prefix).await;
            again = matches!(part, Part::Again);
        }
        match part {
            Part::Whole => return (Resumed::Whole, "ok"),
            Part::ClientGone => return (Resumed::ClientGone, "client_gone"),
            Part::Again | Part::Nobody => return (Resumed::Cut(how), "nobody"),
            Part::CutAgain(verdict) => how = verdict,
        }
    }
}

async fn one_part(session: &mut Session, exchange: &mut Exchange, prefix: &Prefix) -> Part {
    match exchange.choose(session).await {
        Ok(_) => {}
        Err(Unplaced::ClientGone(_)) => return Part::ClientGone,
        Err(Unplaced::Refused(_)) => {
            exchange.ready_answer = None;
            return Part::Nobody;
        }
    }
    let body = exchange.body_that_goes_on(prefix).ok();
    let Some((header, body)) = body.and_then(|body| Some((prepare(session, exchange, body.clone()).ok()?, body)))
    else {
        log::info!("{}: cannot be sent so that it goes on", exchange.request_id);
        return or_another(exchange.set_aside());
    };
    match ask(session, exchange, header, body).await {
        Ok((answer, stitch)) => relay(session, exchange, answer, stitch).await,
        Err(part) => part,
    }
}

/// The head for the chosen node; the attempt is watched from now on.
fn prepare(session: &Session, exchange: &mut Exchange, body: Bytes) -> Result<Box<RequestHeader>, Box<Error>> {
    if let Some(replay) = &exchange.replay {
        let mover = replay.prepare(body, replay::Patience::default(), Delivery::default());
        exchange.watch(mover);
    }
    let mut header = session.req_header().clone();
    header.set_version(Version::HTTP_11);
    headers::edit(&mut header, |parts| {
        headers::introduce(parts, session, &exchange.plan.trusted_peers);
        exchange.address(parts)
    })?;
    Ok(Box::new(header))
}

async fn ask(
    session: &mut Session,
    exchange: &mut Exchange,
    header: Box<RequestHeader>,
    body: Bytes,
) -> Result<(Answer, Stitch), Part> {
    let Some(node) = exchange.node().cloned() else { return Err(Part::Nobody) };
    let ingress = exchange.ingress.clone();
    let timeouts = exchange.plan.timeouts;
    let silence = timeouts.first_byte.0.max(timeouts.idle.0);
    let asking = ingress.managing.asker.send(&node, header, body, Patience { connect: timeouts.connect.0, silence });
    let asked = tokio::select! {
        biased;
        asked = timeout(timeouts.first_byte.0, asking) => asked,
        () = client_left(session, exchange) => return Err(Part::ClientGone),
    };
    let cause = match asked {
        Ok(Ok(answer)) => match begin(session, exchange, &answer) {
            Ok(stitch) => return Ok((answer, stitch)),
            Err(Some(cause)) => cause,
            Err(None) => return Err(or_another(exchange.set_aside())),
        },
        Ok(Err(FetchError::Connect(_) | FetchError::Tls(_) | FetchError::Resolve(_))) => Cause::ConnectFailed,
        Ok(Err(FetchError::TimedOut(_))) | Err(_) => Cause::FirstByteLate,
        Ok(Err(_)) => Cause::ConnectionLost,
    };
    Err(or_another(exchange.failed_to_go_on(cause)))
}

fn or_another(another: bool) -> Part {
    if another { Part::Again } else { Part::Nobody }
}

/// Looks at the head of an answer. `None`: the node is in order, and does not go on with this one.
fn begin(session: &Session, exchange: &mut Exchange, answer: &Answer) -> Result<Stitch, Option<Cause>> {
    let head = answer.head().ok_or(Cause::Nonsense)?;
    exchange.told_to_wait(head);
    if let Some(cause) = exchange.cause_of(head) {
        return Err(Some(cause));
    }
    if !head.status.is_success() {
        return Err(None);
    }
    exchange.end_is_unsure = headers::end_is_unsure(head, session);
    exchange.goes_on(head).map_err(|_| None)
}

/// Hands the rest of the answer to the client as it comes.
async fn relay(session: &mut Session, exchange: &mut Exchange, mut answer: Answer, mut stitch: Stitch) -> Part {
    let timeouts = exchange.plan.timeouts;
    let mut silence: Duration = timeouts.first_byte.0.max(timeouts.idle.0);
    let mut has_begun = false;
    loop {
        let piece = tokio::select! {
            biased;
            piece = timeout(silence, answer.next()) => piece,
            () = client_left(session, exchange) => return Part::ClientGone,
        };
        silence = timeouts.idle.0;
        let piece = match piece {
            Ok(Ok(Some(piece))) => piece,
            Ok(Ok(None)) if stitch.has_said_all && !exchange.end_is_unsure => {
                let observed = exchange.observed_of_the_rest();
                exchange.completed(observed);
                return write(session, Bytes::new(), true).await.unwrap_or(Part::Whole);
            }
            broken => {
                let stalled = matches!(broken, Err(_) | Ok(Err(FetchError::TimedOut(_))));
                return Part::CutAgain(if stalled { Verdict::Stalled } else { Verdict::Cut });
            }
        };
        if piece.is_empty() {
            continue;
        }
        if !std::mem::replace(&mut has_begun, true) {
            exchange.first_byte_of_the_rest();
        }
        exchange.pass(&piece);
        let Ok(given) = stitch.feed(&piece) else {
            log::info!("{}: what follows does not go on with the answer", exchange.request_id);
            return Part::CutAgain(Verdict::Cut);
        };
        exchange.given(&given);
        if stitch.is_over {
            // As always, whoever has the last byte finds the receipt.
            let observed = exchange.observed_of_the_rest();
            exchange.completed(observed);
            return write(session, given.into(), true).await.unwrap_or(Part::Whole);
        }
        if !given.is_empty()
            && let Some(gone) = write(session, given.into(), false).await
        {
            return gone;
        }
    }
}

/// `None`: it is written.
async fn write(session: &mut Session, bytes: Bytes, is_last: bool) -> Option<Part> {
    session.write_response_body(Some(bytes), is_last).await.is_err().then_some(Part::ClientGone)
}

async fn client_left(session: &mut Session, exchange: &Exchange) {
    match &exchange.replay {
        Some(replay) => drop(replay.client_left(session).await),
        None => std::future::pending().await,
    }
}
