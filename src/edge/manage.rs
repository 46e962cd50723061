//! Ollama's managing calls: pull, push, create, copy, delete and blobs.
//!
//! Off unless `management: true`. A call for one node goes through the proxy, its body held only where it
//! is small JSON; one for several nodes is put to each on a connection of its own, and the client gets one
//! answer. None is ever sent twice. Which nodes a call is for is `routing::placement`'s to say.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use parking_lot::Mutex;
use pingora_proxy::Session;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::body::{self, BodyError};
use super::exchange::Exchange;
use super::headers;
use super::ingress::Ingress;
use super::nobody;
use super::node::Node;
use super::refusal::Refusal;
use super::replay::Replay;
use crate::routing::chain::hash_text;
use crate::routing::fleet::{Fleet, UpstreamId};
use crate::routing::placement::{self, Misplaced, Place, Wanted};
use crate::routing::uploads::{Digest, Uploads};
use crate::wire::managed::{self, Key, Managed};

mod aftermath;
pub(super) mod ask;
mod carried;
mod fan_out;
mod pull;
pub mod unload;

use aftermath::Aftermath;
use ask::Asker;
pub use carried::{Carried, Ended};

/// Names the nodes that a call is for: `all`, or names with commas between.
const NODES_HEADER: &str = "x-fleet-nodes";

/// Calls under way at once.
const CALLS_MAX: usize = 32;

/// Of these, calls that may keep a node's disk or network busy for hours. The rest is for those that take a
/// moment, so that a model can always be deleted to make room.
const LONG_CALLS_MAX: usize = 24;

/// A managing call, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Pull,
    Push,
    Create,
    Copy,
    Delete,
    /// `None`: what stands for a digest is none.
    Blob(Option<Digest>),
}

/// What managing calls share.
pub struct Managing {
    calls: Arc<Semaphore>,
    long_calls: Arc<Semaphore>,
    uploads: Mutex<Uploads>,
    pub(super) asker: Asker,
}

impl Default for Managing {
    fn default() -> Managing {
        Managing {
            calls: Arc::new(Semaphore::new(CALLS_MAX)),
            long_calls: Arc::new(Semaphore::new(LONG_CALLS_MAX)),
            uploads: Mutex::default(),
            asker: Asker::new(),
        }
    }
}

/// A call's place among those under way, given back when dropped.
pub struct Permit {
    _call: OwnedSemaphorePermit,
    _long: Option<OwnedSemaphorePermit>,
}

impl Managing {
    fn permit(&self, call: Call) -> Result<Permit, Refusal> {
        let take = |calls: &Arc<Semaphore>| {
            calls.clone().try_acquire_owned().map_err(|_| Refusal::Managing(Unmanaged::TooMany))
        };
        let long = if call.is_long() { Some(take(&self.long_calls)?) } else { None };
        Ok(Permit { _call: take(&self.calls)?, _long: long })
    }
}

/// Why a managing call goes nowhere.
#[derive(Debug)]
pub enum Unmanaged {
    Off,
    TooMany,
    NotDigest,
    Unreadable(managed::Unreadable),
    Misplaced(Misplaced),
    /// The one node that it was for did not answer.
    NodeFailed {
        node: String,
    },
    /// Several nodes' results, summed up.
    Summed {
        status: u16,
        message: String,
    },
}

impl Call {
    pub fn of_path(path: &str) -> Option<Call> {
        Some(match path {
            "/api/pull" => Call::Pull,
            "/api/push" => Call::Push,
            "/api/create" => Call::Create,
            "/api/copy" => Call::Copy,
            "/api/delete" => Call::Delete,
            _ => Call::Blob(Digest::parse(path.strip_prefix("/api/blobs/").filter(|rest| !rest.contains('/'))?)),
        })
    }

    /// The methods it takes, as the `Allow` header has them.
    pub fn allow(self) -> &'static str {
        match self {
            Call::Delete => "DELETE",
            Call::Blob(_) => "HEAD, POST",
            _ => "POST",
        }
    }

    pub fn takes(self, method: &Method) -> bool {
        self.allow().split(", ").any(|allowed| allowed == method.as_str())
    }

    fn is_long(self) -> bool {
        !matches!(self, Call::Copy | Call::Delete)
    }

    /// What was done where it worked, to say so.
    fn done(self) -> &'static str {
        match self {
            Call::Pull => "pulled",
            Call::Push => "pushed",
            Call::Create => "created",
            Call::Copy => "copied",
            Call::Delete => "deleted",
            Call::Blob(_) => "stored",
        }
    }
}

/// True: answered here. False: the exchange holds what the proxy carries to one node.
pub async fn take(session: &mut Session, exchange: &mut Exchange, call: Call) -> Result<bool, Refusal> {
    let ingress = exchange.ingress.clone();
    if !exchange.may_manage() {
        return Err(Refusal::Managing(Unmanaged::Off));
    }
    let wanted = wanted(session).map_err(|why| Refusal::Managing(Unmanaged::Misplaced(why)))?;
    if let Call::Blob(digest) = call {
        let digest = digest.ok_or(Refusal::Managing(Unmanaged::NotDigest))?;
        return carry_blob(session, exchange, digest, &wanted).map(|()| false);
    }
    let body = body::read(session, &ingress.body_limits(&exchange.plan)).await.map_err(Refusal::Body)?;
    let key = if call == Call::Copy { Key::Source } else { Key::Model };
    let managed = managed::read(&body.bytes, key).map_err(|why| Refusal::Managing(Unmanaged::Unreadable(why)))?;
    exchange.may_ask_for(&managed.model)?;
    managed.others.iter().try_for_each(|name| exchange.may_ask_for(name))?;
    // Not before: a client that never ends its body must not keep others from theirs.
    let permit = ingress.managing.permit(call)?;
    let places = place(&ingress, session, call, &wanted, &managed)?;
    let whom: Vec<(Arc<Node>, Place)> =
        places.into_iter().filter_map(|place| Some((ingress.node(place.upstream)?.clone(), place))).collect();
    exchange.managing(&managed.model, whom.iter().map(|(node, _)| node.name.clone()).collect());
    if body.was_coded {
        headers::now_plain(session.req_header_mut());
    }
    let request = Sent { call, bytes: body.bytes, managed, hops: headers::hops(session.req_header()) };
    if let [(node, place)] = whom.as_slice() {
        let body = request.body_for(place);
        let aftermath = Aftermath::of(&request, place);
        exchange.replay = Some(Replay::install(session, body.clone(), exchange.ingress.departure.watch()));
        exchange.carried = Some(Carried::new(node.clone(), call, Some(body), aftermath, Some(permit)));
        return Ok(false);
    }
    let told = match call {
        Call::Pull => pull::answer(session, exchange, &request, whom).await,
        _ => fan_out::answer(session, exchange, &request, whom).await,
    };
    drop(permit);
    told.map(|()| true)
}

/// A managing call as the client sent it.
struct Sent {
    call: Call,
    bytes: Bytes,
    managed: Managed,
    /// Warmgates that it came by before this one.
    hops: u32,
}

impl Sent {
    /// The body for one node: with its own spelling of the model where it has one, else as it came.
    fn body_for(&self, place: &Place) -> Bytes {
        let Some(spelling) = place.spelling.as_ref().filter(|spelling| **spelling != self.managed.model) else {
            return self.bytes.clone();
        };
        let span = &self.managed.model_span;
        let (before, after) = (self.bytes.get(..span.start), self.bytes.get(span.end..));
        let (Some(before), Some(after)) = (before, after) else { return self.bytes.clone() };
        let name = serde_json::Value::from(spelling.as_str()).to_string();
        [before, name.as_bytes(), after].concat().into()
    }
}

/// The nodes that the client names, in one line of the header or several.
fn wanted(session: &Session) -> Result<Wanted, Misplaced> {
    let lines = session.req_header().headers.get_all(NODES_HEADER).iter().map(|line| line.to_str());
    let lines: Vec<&str> = lines.collect::<Result<_, _>>().map_err(|_| Misplaced::NamesUnreadable)?;
    Wanted::of((!lines.is_empty()).then(|| lines.join(",")).as_deref())
}

/// The nodes that a call with a JSON body is for.
fn place(
    ingress: &Ingress,
    session: &Session,
    call: Call,
    wanted: &Wanted,
    managed: &Managed,
) -> Result<Vec<Place>, Refusal> {
    let model = &managed.model;
    let placed = ingress.fleet.with(|fleet, now| match call {
        Call::Pull => placement::for_pull(fleet, wanted, model),
        Call::Push => placement::for_push(fleet, wanted, model).map(|place| vec![place]),
        Call::Copy | Call::Delete | Call::Blob(_) => placement::for_holders(fleet, wanted, model),
        Call::Create => {
            let uploads = ingress.managing.uploads.lock();
            let blobs: Vec<UpstreamId> =
                managed.blobs.iter().filter_map(|digest| uploads.of_blob(*digest, now)).collect();
            let usual = uploads.of_client(client(session), now).filter(|_| !managed.blobs.is_empty());
            let node = placement::for_create(fleet, wanted, &blobs, managed.from.as_deref(), usual)?;
            Ok(vec![Place { upstream: node, spelling: None }])
        }
    });
    placed.map_err(|why| match why {
        // A name that nobody has is answered as everywhere else.
        Misplaced::NotHeld if *wanted == Wanted::Unsaid => nobody::unknown_model(ingress, model.clone()),
        why => Refusal::Managing(Unmanaged::Misplaced(why)),
    })
}

/// A blob streams through, whatever its size, to the node that the create will go to.
fn carry_blob(session: &mut Session, exchange: &mut Exchange, digest: Digest, wanted: &Wanted) -> Result<(), Refusal> {
    let ingress = exchange.ingress.clone();
    let call = Call::Blob(Some(digest));
    // To ask whether it is there takes no more than any request.
    let uploads = session.req_header().method == Method::POST;
    let permit = if uploads { Some(ingress.managing.permit(call)?) } else { None };
    let client = client(session);
    let choose = |fleet: &mut Fleet, now| {
        let mut uploads = ingress.managing.uploads.lock();
        let known = [uploads.of_blob(digest, now), uploads.of_client(client, now)];
        let id = placement::for_blob(fleet, wanted, &known)?;
        uploads.put(digest, client, id, now);
        Ok(id)
    };
    let id = ingress.fleet.with(choose).map_err(|why| Refusal::Managing(Unmanaged::Misplaced(why)))?;
    let node = ingress.node(id).ok_or(Refusal::Internal)?;
    // The one spelling of the path, whatever the client's.
    let path = format!("/api/blobs/{digest}").parse().map_err(|_| Refusal::Internal)?;
    session.req_header_mut().set_uri(path);
    exchange.managing("", vec![node.name.clone()]);
    let aftermath = Aftermath::Stored { digest, client, upstream: id };
    exchange.carried = Some(Carried::new(node, call, None, aftermath, permit));
    Ok(())
}

/// Whose calls belong together: all from one address.
fn client(session: &Session) -> u64 {
    let address = session.client_addr().and_then(|address| address.as_inet());
    address.map_or(0, |address| hash_text(&IpAddr::to_string(&address.ip())))
}

/// What `waited_for` gives, unless the client leaves first; then it is dropped, and with it its connections.
async fn while_client_stays<T>(session: &mut Session, waited_for: impl Future<Output = T>) -> Result<T, Refusal> {
    tokio::select! {
        biased;
        value = waited_for => Ok(value),
        left = session.downstream_session.read_body_or_idle(true) => Err(gone(left)),
    }
}

/// Nothing but its leaving ends the wait for a client that has sent its request.
fn gone(left: pingora_core::Result<Option<Bytes>>) -> Refusal {
    let error = left.err().unwrap_or_else(|| {
        pingora_core::Error::explain(pingora_core::ErrorType::ReadError, "the client sent on after its request")
    });
    Refusal::Body(BodyError::ClientGone(error.into_down()))
}

fn gone_in_writing(error: Box<pingora_core::Error>) -> Refusal {
    Refusal::Body(BodyError::ClientGone(error.into_down()))
}

/// The longest that a node may say nothing while it works on a call.
fn silence_max(ingress: &Ingress) -> std::time::Duration {
    let timeouts = ingress.plan().timeouts;
    timeouts.first_byte.0.max(timeouts.idle.0)
}
