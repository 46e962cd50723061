//! One request on its way through: what is known of it, and what has happened to it so far.
//!
//! The hooks of `Gateway` are short and stateless; what they must remember from one to the next is
//! here. An exchange ends once, in `end`, however it comes about.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use pingora::http::ResponseHeader;
use pingora_core::Error;

use super::active::Active;
use super::clock::wall_ms;
use super::headers;
use super::ingress::Ingress;
use super::lease::Lease;
use super::live;
use super::manage::{Carried, Ended};
use super::metrics::Served;
use super::movers::Heard;
use super::node::Node;
use super::payload::{Payload, Prepared};
use super::receipt::Receipt;
use super::refusal::Refusal;
use super::replay::Replay;
use super::request_id;
use super::spelling;
use super::tally;
use super::tenants::{Admitted, Tenant};
use super::trace::Trace;
use super::translation::Translation;
use crate::config::{Plan, UsageProbe};
use crate::routing::ask::{Ask, Dialect};
use crate::routing::fleet::HoldingId;
use crate::routing::moment::Moment;
use crate::routing::retry::Cause;
use crate::routing::runner::Misfit;
use crate::routing::select::Query;
use crate::routing::session;
use crate::wire::framing::Framing;
use crate::wire::observe::{Observed, Observer, Place};
use crate::wire::resume::{Base, Follower};
use crate::wire::unasked::Unasked;

mod attempt;
mod ending;
mod managing;
mod outgoing;
mod resuming;
mod tenancy;

use outgoing::Outgoing;

pub struct Exchange {
    pub ingress: Arc<Ingress>,
    /// The settings it began with; a reload does not change them under way.
    pub plan: Arc<Plan>,
    pub request_id: String,
    trace: Trace,
    pub dialect: Dialect,
    /// Whose it is; `None`: nobody's in particular.
    pub tenant: Option<Arc<Tenant>>,
    /// Its place among its tenant's requests, as long as it has one.
    admitted: Option<Admitted>,
    pub refusal: Option<Refusal>,
    pub replay: Option<Replay>,
    /// Of the current attempt, where the node is asked in another dialect.
    pub translation: Option<Translation>,
    /// An answer that needs no node after all.
    pub ready_answer: Option<Vec<u8>>,
    /// A managing call on its way to its one node; then there is neither query nor attempt.
    pub carried: Option<Carried>,
    payload: Option<Payload>,
    /// Of the current attempt, where Warmgate asked for counts and the client did not.
    unasked: Option<Unasked>,
    /// Its stream goes on elsewhere when it is cut, if it can.
    pub may_resume: bool,
    /// What the client was given of a stream that may go on.
    following: Option<Follower>,
    /// What was passed on of a stream that may go on, as far as the client may not have got it.
    outgoing: Outgoing,
    /// Counts of the parts of the answer that other nodes said.
    base: Option<Base>,
    observer: Option<Observer>,
    /// The answer ends with the upstream's connection, so that a cut looks like an end.
    pub end_is_unsure: bool,
    cut_at: Option<Place>,
    /// The node to ask once more, since its pooled connection had gone stale.
    pub again: Option<Arc<Node>>,
    pub stale_connections: usize,
    /// When the current attempt began.
    pub sent_at: Moment,
    started: Moment,
    /// Waited for nodes, over all attempts.
    waited: Duration,
    query: Option<Arc<Query>>,
    /// Its place among those that are under way.
    live: Option<live::Entry>,
    /// Why the answer that is relayed is a failure, told since no other node is asked.
    told: Option<Cause>,
    /// The last failure may be made good at another node.
    pub moves: bool,
    current: Option<Current>,
    /// What is counted of the model and the node of the latest attempt.
    served: Option<Arc<Served>>,
    receipt: Receipt,
    ended: bool,
    /// Counts this request as under way while it lives.
    _active: Active,
}

/// An answer that ended before its end.
pub struct Cut;

/// Why a request got no node.
pub enum Unplaced {
    Refused(Refusal),
    /// Its client left while it waited.
    ClientGone(Box<Error>),
}

impl From<Refusal> for Unplaced {
    fn from(refusal: Refusal) -> Unplaced {
        Unplaced::Refused(refusal)
    }
}

/// The running attempt.
struct Current {
    node: Arc<Node>,
    holding: HoldingId,
    /// The model as the node spells it.
    model: String,
    /// The node is asked in another dialect than the client's.
    is_translated: bool,
    /// The request's options are not those of the model in memory there.
    misfit: Option<Box<Misfit>>,
    lease: Lease,
    /// The head of its answer has come.
    is_answering: bool,
    success: bool,
    heard: Heard,
}

const FLEET_NODE: HeaderName = HeaderName::from_static("x-fleet-node");
const FLEET_SCORE: HeaderName = HeaderName::from_static("x-fleet-score");
const FLEET_AFFINITY: HeaderName = HeaderName::from_static("x-fleet-affinity");
const FLEET_MODEL: HeaderName = HeaderName::from_static("x-fleet-model");
const FLEET_ATTEMPTS: HeaderName = HeaderName::from_static("x-fleet-attempts");
const FLEET_QUEUE_MS: HeaderName = HeaderName::from_static("x-fleet-queue-ms");

/// Of a path that a client made up, kept in log and receipt.
const MAX_PATH_CHARS: usize = 256;

impl Exchange {
    pub fn new(ingress: Arc<Ingress>) -> Exchange {
        Exchange {
            request_id: String::new(),
            trace: Trace::default(),
            dialect: Dialect::Ollama,
            tenant: None,
            admitted: None,
            refusal: None,
            replay: None,
            translation: None,
            ready_answer: None,
            carried: None,
            payload: None,
            unasked: None,
            may_resume: false,
            following: None,
            outgoing: Outgoing::default(),
            base: None,
            observer: None,
            end_is_unsure: false,
            cut_at: None,
            again: None,
            stale_connections: 0,
            sent_at: Moment::default(),
            started: ingress.fleet.now(),
            waited: Duration::ZERO,
            query: None,
            live: None,
            told: None,
            moves: false,
            current: None,
            served: None,
            receipt: Receipt { wall_ms: wall_ms(), affinity: "none", ..Receipt::default() },
            ended: false,
            _active: Active::new(&ingress.active),
            plan: ingress.plan(),
            ingress,
        }
    }

    pub fn begin(&mut self, path: &str, head: &HeaderMap) {
        let given_id = head.get(headers::REQUEST_ID).and_then(|id| id.to_str().ok());
        self.request_id = request_id::accept_or_make(given_id);
        self.trace = Trace::begin(head, &self.plan.tracing);
        self.receipt.trace_id = self.trace.id();
        self.dialect = Dialect::of_path(path);
        self.receipt.path = match path.len() {
            0..=MAX_PATH_CHARS => path.to_owned(),
            _ => path.chars().take(MAX_PATH_CHARS).collect(),
        };
    }

    /// The request is understood.
    pub fn understood(&mut self, ask: Ask, payload: Payload) {
        let key = session::conversation(&ask).filter(|_| ask.endpoint.is_conversation());
        self.receipt.session = key.map(|key| spelling::hex([key]));
        self.receipt.model = ask.model.clone();
        self.receipt.stream = ask.stream;
        self.receipt.prompt_tokens_estimated = ask.prompt_tokens;
        self.receipt.intake_ms = self.elapsed_ms();
        let request = request_id::hash(&self.request_id);
        let query = Arc::new(Query { ask, tried: Vec::new(), request });
        let enter = || self.ingress.live.enter(&self.request_id, &query, self.started);
        self.live = self.ingress.observes.then(enter);
        self.query = Some(query);
        self.payload = Some(payload);
    }

    /// The body for the current attempt; `None`: the answer is ready without one.
    pub fn attempt_body(&mut self) -> Result<Option<Bytes>, Refusal> {
        let (Some(payload), Some(current), Some(query)) = (&self.payload, &self.current, &self.query) else {
            return Err(Refusal::Internal);
        };
        let salt = self.tenant.as_deref().filter(|_| current.node.salts_cache());
        let (ask, memory) = (&query.ask, &self.ingress.body_memory);
        self.unasked = None;
        let prepared = if current.is_translated {
            payload.translated(&current.model, ask, salt, memory)?
        } else {
            let may_probe = self.plan.usage_probe == UsageProbe::On;
            let probe = may_probe.then(|| payload.usage_probe(&current.node)).flatten();
            self.unasked = probe.map(|_| Unasked::default());
            let edits = probe.cloned().into_iter().chain(payload.salting(ask.endpoint, salt)).collect();
            payload.under(&current.model, ask, &current.node, current.misfit.as_deref(), edits, memory)?
        };
        let body;
        (body, self.translation) = match prepared {
            Prepared::Plain(body) => (Some(body), None),
            Prepared::Translated(body, translation) => (Some(body), Some(translation)),
            Prepared::Answered(answer) => {
                self.ready_answer = Some(answer);
                (None, None)
            }
        };
        Ok(body)
    }

    /// Makes the client's request one to the current node, with the body that was prepared for it.
    pub fn address(&self, request: &mut Parts) -> Result<(), Box<Error>> {
        if let Some(translation) = &self.translation {
            translation.address(request);
        }
        if let Some(node) = self.node() {
            headers::address(request, &node.target)?;
            for (name, value) in node.engine.get().map_or(&[][..], |engine| engine.headers) {
                request.headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            headers::steer(&mut request.headers, node);
        }
        headers::tell(&mut request.headers, headers::REQUEST_ID, self.request_id.as_str());
        self.trace.tell(&mut request.headers, self.receipt.attempts.len().saturating_sub(1));
        if let Some(replay) = &self.replay {
            replay.frame(&mut request.headers);
        }
        Ok(())
    }

    /// There is a connection to the current node.
    pub fn connected(&mut self, socket: RawFd) {
        self.replay.iter().for_each(|replay| replay.connected(socket));
        let connect_ms = self.ingress.fleet.now().since(self.sent_at).as_secs_f64() * 1000.0;
        if let Some(attempt) = self.receipt.attempts.last_mut() {
            attempt.connect_ms = Some(connect_ms);
        }
    }

    /// The current node's answer has begun, in these terms of the node's.
    pub fn answering(&mut self, response: &ResponseHeader) {
        let (status, content_type) = (response.status.as_u16(), &headers::content_type(response));
        self.receipt.status = status;
        if Framing::of(content_type) != Framing::Events || !headers::may_shrink(response) {
            self.unasked = None;
        }
        self.refusal = None;
        let success = (200..300).contains(&status);
        if let (Some(current), Some(query)) = (&mut self.current, &self.query) {
            current.success = success;
            current.is_answering = true;
            let endpoint = self.translation.as_ref().map_or(query.ask.endpoint, |translation| translation.called);
            self.observer = success.then(|| Observer::new(endpoint, content_type));
        }
        self.follow(response);
    }

    /// Bytes of the answer, as they go by.
    pub fn pass(&mut self, chunk: &[u8]) {
        if chunk.is_empty() {
            return;
        }
        let now = self.ingress.fleet.now();
        if self.receipt.first_byte_ms.is_none() {
            self.first_byte(now);
        }
        if let Some(current) = &self.current {
            current.heard.note(now);
        }
        if let Some(observer) = &mut self.observer {
            observer.feed(chunk);
        }
        if let Some(carried) = &mut self.carried {
            carried.pass(chunk);
        }
        let given = self.given_bytes().is_some_and(|bytes| bytes > 0);
        if given && !self.may_resume && self.payload.is_some() {
            // No other node will be sent it.
            self.payload = None;
        }
    }

    /// Bytes of the answer that went to the client so far, where they are counted.
    pub fn given_bytes(&self) -> Option<u64> {
        self.replay.as_ref().map(Replay::given_bytes)
    }

    /// What of the answer's bytes the client gets of those that go by; `None`: nothing yet.
    pub fn wanted(&mut self, chunk: Bytes) -> Option<Bytes> {
        let chunk = match self.unasked.as_mut().and_then(|unasked| unasked.feed(&chunk)) {
            Some(passed) => passed.into(),
            None => chunk,
        };
        let chunk = match self.following.as_mut().and_then(|following| following.feed(&chunk)) {
            Some(passed) => passed.into(),
            None => chunk,
        };
        if self.following.is_some() {
            self.outgoing.add(&chunk);
        }
        (!chunk.is_empty()).then_some(chunk)
    }

    /// What was kept back of an answer that is over.
    pub fn kept_back(&mut self) -> Vec<u8> {
        let half = self.following.as_mut().map(Follower::take_half).unwrap_or_default();
        [self.take_ungiven().unwrap_or_default(), half, self.unasked.take().map(Unasked::finish).unwrap_or_default()]
            .concat()
    }

    /// Whether the answer promised something and ends before its first byte.
    pub fn is_empty_answer(&self) -> bool {
        let promised = self.current.as_ref().is_some_and(|current| current.success);
        self.runs_model() && promised && self.receipt.first_byte_ms.is_none()
    }

    /// Whether the client gets all of its answer at once.
    pub fn answers_whole(&self) -> bool {
        self.query.as_ref().is_some_and(|query| !query.ask.stream)
    }

    pub fn runs_model(&self) -> bool {
        self.query.as_ref().is_some_and(|query| query.ask.endpoint.runs_model())
    }

    /// Whether the current node has sent the head of its answer.
    pub fn is_answering(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.is_answering)
    }

    /// What was learnt from an answer that came to its end as far as HTTP can tell; an error if it was
    /// cut after all.
    pub fn observed(&mut self) -> Result<Observed, Cut> {
        if let Some(carried) = &mut self.carried {
            return match carried.end(&self.ingress, self.receipt.status) {
                Ended::Unsaid if self.end_is_unsure => Err(Cut),
                ended => Ok(Observed { error: matches!(ended, Ended::InError), ..Observed::default() }),
            };
        }
        let Some(observer) = self.observer.take() else { return Ok(Observed::default()) };
        let place = observer.place();
        let observed = observer.finish();
        if self.end_is_unsure && !observed.complete && !observed.error {
            self.cut_at = Some(place);
            return Err(Cut);
        }
        Ok(observed)
    }

    /// Where the answer is, between its frames or within one.
    pub fn place(&self) -> Place {
        if self.carried.as_ref().is_some_and(Carried::in_line) {
            return Place::Within;
        }
        self.observer.as_ref().map(Observer::place).or(self.cut_at).unwrap_or(Place::Between)
    }

    pub fn node(&self) -> Option<&Arc<Node>> {
        let carried = self.carried.as_ref().map(|carried| &carried.node);
        self.current.as_ref().map(|current| &current.node).or(carried)
    }

    /// Tells the client how its answer came about.
    pub fn tell_routing(&self, headers: &mut HeaderMap) {
        if let Some(nodes) = self.nodes_told() {
            return headers::tell(headers, FLEET_NODE, nodes);
        }
        let (Some(attempt), Some(current), true) =
            (self.receipt.attempts.last(), &self.current, self.plan.routing_headers)
        else {
            return;
        };
        headers::tell(headers, FLEET_NODE, current.node.name.as_str());
        headers::tell(headers, FLEET_SCORE, format!("{:.1}", attempt.row.score));
        headers.insert(FLEET_AFFINITY, HeaderValue::from_static(self.receipt.affinity));
        headers::tell(headers, FLEET_MODEL, current.model.as_str());
        headers.insert(FLEET_ATTEMPTS, self.receipt.attempts.len().into());
        headers.insert(FLEET_QUEUE_MS, (self.receipt.queue_ms.round() as u64).into());
    }

    fn first_byte(&mut self, now: Moment) {
        let first_byte_ms = self.ms_at(now);
        self.receipt.first_byte_ms = Some(first_byte_ms);
        if let Some(live) = &self.live {
            live.first_byte(first_byte_ms);
        }
        if let (Some(current), Some(query)) = (&self.current, &self.query)
            && current.success
        {
            let learnt = current.lease.first_byte(&query.ask);
            let expected = self.receipt.attempts.last().and_then(|attempt| attempt.row.first_token);
            let took_s = now.since(self.sent_at).as_secs_f64();
            let error_s = expected.map(|parts| (took_s - parts.total_s()).abs());
            let first = tally::FirstByte { seconds: first_byte_ms / 1000.0, error_s, learnt };
            tally::first_byte(&self.ingress, &current.node, self.served.as_ref(), first);
        }
    }

    fn elapsed_ms(&self) -> f64 {
        self.ms_at(self.ingress.fleet.now())
    }

    /// From its start to that moment.
    fn ms_at(&self, at: Moment) -> f64 {
        at.since(self.started).as_secs_f64() * 1000.0
    }
}
