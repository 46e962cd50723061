//! One request on its way through: what is known of it, and what has happened to it so far.
//!
//! The hooks of `Gateway` are short and stateless; what they must remember from one to the next is
//! here. An exchange ends once, in `end`, however it comes about.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pingora::http::ResponseHeader;
use pingora_core::Error;
use pingora_proxy::Session;

use super::access_log;
use super::active::Active;
use super::clock::wall_ms;
use super::headers;
use super::ingress::Ingress;
use super::lease::Lease;
use super::manage::{Carried, Ended};
use super::nobody;
use super::node::Node;
use super::payload::{Payload, Prepared};
use super::pick::Picked;
use super::receipt::{Attempt, Receipt};
use super::refusal::Refusal;
use super::replay::Replay;
use super::request_id;
use super::translation::Translation;
use super::verdict::Verdict;
use super::waiting_room::{Entered, Ticket, Unserved};
use crate::config::UsageProbe;
use crate::routing::ask::{Ask, Dialect, Endpoint};
use crate::routing::fleet::{HoldingId, Outcome};
use crate::routing::moment::Moment;
use crate::routing::name::Naming;
use crate::routing::retry::Cause;
use crate::routing::runner::Misfit;
use crate::routing::select::{Decision, Query, Row, decide};
use crate::routing::session;
use crate::wire::framing::Framing;
use crate::wire::observe::{Observed, Observer, Place};
use crate::wire::unasked::Unasked;

mod managing;

pub struct Exchange {
    pub ingress: Arc<Ingress>,
    pub request_id: String,
    pub dialect: Dialect,
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
    query: Option<Query>,
    current: Option<Current>,
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
}

/// Of a path that a client made up, kept in log and receipt.
const MAX_PATH_CHARS: usize = 256;

impl Exchange {
    pub fn new(ingress: Arc<Ingress>) -> Exchange {
        Exchange {
            request_id: String::new(),
            dialect: Dialect::Ollama,
            refusal: None,
            replay: None,
            translation: None,
            ready_answer: None,
            carried: None,
            payload: None,
            unasked: None,
            observer: None,
            end_is_unsure: false,
            cut_at: None,
            again: None,
            stale_connections: 0,
            sent_at: Moment::default(),
            started: ingress.fleet.now(),
            waited: Duration::ZERO,
            query: None,
            current: None,
            receipt: Receipt { wall_ms: wall_ms(), affinity: "none", ..Receipt::default() },
            ended: false,
            _active: Active::new(&ingress.active),
            ingress,
        }
    }

    pub fn begin(&mut self, path: &str, given_id: Option<&str>) {
        self.request_id = request_id::accept_or_make(given_id);
        self.dialect = Dialect::of_path(path);
        self.receipt.path = path.chars().take(MAX_PATH_CHARS).collect();
    }

    /// The request is understood.
    pub fn understood(&mut self, ask: Ask, payload: Payload) {
        let key = session::conversation(&ask).filter(|_| ask.endpoint.is_conversation());
        self.receipt.session = key.map(|key| format!("{key:016x}"));
        self.receipt.model = ask.model.clone();
        self.receipt.stream = ask.stream;
        self.receipt.prompt_tokens_estimated = ask.prompt_tokens;
        self.receipt.intake_ms = self.elapsed_ms();
        let request = request_id::hash(&self.request_id);
        self.query = Some(Query { ask, tried: Vec::new(), request });
        self.payload = Some(payload);
    }

    /// The body for the current attempt; `None`: the answer is ready without one.
    pub fn attempt_body(&mut self) -> Result<Option<Bytes>, Refusal> {
        let (Some(payload), Some(current), Some(query)) = (&self.payload, &self.current, &self.query) else {
            return Err(Refusal::Internal);
        };
        let (ask, memory) = (&query.ask, &self.ingress.body_limits.memory);
        self.unasked = None;
        let prepared = if current.is_translated {
            payload.translated(&current.model, ask, memory)?
        } else {
            let may_probe = self.ingress.plan.usage_probe == UsageProbe::On;
            let probe = may_probe.then(|| payload.usage_probe(&current.node)).flatten();
            self.unasked = probe.map(|_| Unasked::default());
            payload.under(&current.model, ask, &current.node, current.misfit.as_deref(), probe, memory)?
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

    /// Chooses and books the node for the next attempt; waits for one where all that could serve are busy.
    pub async fn choose(&mut self, session: &mut Session) -> Result<Arc<Node>, Unplaced> {
        let query = self.query.as_ref().ok_or(Refusal::Internal)?;
        let decision = match self.ingress.waiting_room.enter(query) {
            Entered::Booked(picked) => return Ok(self.settle(*picked)?),
            Entered::Waiting(ticket) => match self.wait(ticket, session).await? {
                Ok(picked) => return Ok(self.settle(picked)?),
                Err(Unserved::Nobody(decision)) => decision,
                Err(Unserved::TooLong { retry_after_s }) => {
                    return Err(Refusal::QueueTimeout { model: self.receipt.model.clone(), retry_after_s }.into());
                }
            },
            Entered::QueueFull { retry_after_s } => {
                return Err(Refusal::QueueFull { model: query.ask.model.clone(), retry_after_s }.into());
            }
            Entered::Nobody(decision) => decision,
        };
        let query = self.query.as_ref().ok_or(Refusal::Internal)?;
        let refusal = self.no_candidate(&query.ask, &decision);
        self.ready_answer = nobody::answer_instead(&query.ask, &refusal);
        Err(refusal.into())
    }

    /// Waits in the queue, with an eye on the client.
    async fn wait(&mut self, ticket: Ticket, session: &mut Session) -> Result<Result<Picked, Unserved>, Unplaced> {
        let replay = self.replay.as_ref().ok_or(Refusal::Internal)?;
        self.receipt.queue_position.get_or_insert(ticket.position);
        let metrics = &self.ingress.metrics;
        let began = self.ingress.fleet.now();
        let at_most = self.ingress.plan.admission.queue_timeout.0.saturating_sub(self.waited);
        let outcome = tokio::select! {
            biased;
            served = ticket.served(at_most) => Ok(served),
            error = replay.client_left(session) => Err(Unplaced::ClientGone(error)),
        };
        let waited = self.ingress.fleet.now().since(began);
        metrics.queue_wait_seconds.observe(waited.as_secs_f64());
        self.waited += waited;
        self.receipt.queue_ms = self.waited.as_secs_f64() * 1000.0;
        outcome
    }

    /// Takes the chosen node for the current attempt.
    fn settle(&mut self, picked: Picked) -> Result<Arc<Node>, Refusal> {
        let Picked { lease, row, model, is_translated, decision } = picked;
        let query = self.query.as_ref().ok_or(Refusal::Internal)?;
        let node = self.ingress.node(row.upstream).ok_or(Refusal::Internal)?;
        self.receipt.affinity = affinity(&query.ask, &decision, &row);
        if let Some(misfit) = &row.misfit {
            self.ingress.misfits_told.tell(misfit, &node, &model, &self.ingress.metrics);
        }
        self.current = Some(Current {
            misfit: row.misfit.clone(),
            node: node.clone(),
            holding: row.holding,
            model,
            is_translated,
            lease,
            is_answering: false,
            success: false,
        });
        self.receipt.attempts.push(Attempt::new(row, decision));
        Ok(node)
    }

    /// Whether a request that failed at the current node may be sent to another.
    pub fn may_move(&self, cause: Cause) -> bool {
        cause.may_move() && self.has_attempts_left() && self.has_another()
    }

    pub fn has_attempts_left(&self) -> bool {
        self.receipt.attempts.len() < self.ingress.plan.resilience.attempts as usize
    }

    /// How the head of an answer says that the attempt failed, if it does.
    pub fn cause_of(&self, response: &ResponseHeader) -> Option<Cause> {
        if self.carried.is_some() {
            return None;
        }
        if self.runs_model() && response.status.is_success() && headers::declares_nothing(response) {
            return Some(Cause::Empty);
        }
        Cause::of_status(response.status.as_u16())
    }

    /// Gives the current attempt up; true if another may follow.
    pub fn give_up(&mut self, cause: Cause) -> bool {
        let another = self.may_move(cause);
        self.attempt_failed(cause);
        another
    }

    /// The current attempt failed before its first byte.
    pub fn attempt_failed(&mut self, cause: Cause) {
        if let Some(carried) = &self.carried {
            log::info!("{}: {} at {}", self.request_id, cause.name(), carried.node.name);
            self.refusal = Some(carried.failed());
        }
        let Some(current) = self.current.take() else { return };
        log::info!("{}: {} at {}", self.request_id, cause.name(), current.node.name);
        self.ingress.metrics.attempts.with_label_values(&[&current.node.label, cause.name()]).inc();
        if let Some(attempt) = self.receipt.attempts.last_mut() {
            attempt.failure = Some(cause.name());
        }
        if let Some(query) = &mut self.query {
            query.tried.push(current.holding);
        }
        match cause {
            Cause::ConnectFailed if current.node.standing.saw_refusal() => {
                current.node.learn_health(&self.ingress.fleet, false);
                // Its name may lead elsewhere by now.
                self.ingress.roster.ask_for_a_look();
            }
            Cause::ModelGone if self.says_model_gone(&current.node) => {
                self.ingress.fleet.with(|fleet, _| fleet.learn_gone(current.holding));
            }
            _ => {}
        }
        // It may have begun to answer without a byte having reached the client.
        (self.observer, self.cut_at, self.receipt.first_byte_ms) = (None, None, None);
        self.refusal = Some(Refusal::AttemptsFailed { last: cause, attempts: self.receipt.attempts.len() });
        current.lease.end(if cause.is_failure() { Outcome::Failed } else { Outcome::Void });
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
    }

    /// Bytes of the answer, as they go by.
    pub fn pass(&mut self, chunk: &[u8]) {
        if chunk.is_empty() {
            return;
        }
        if self.receipt.first_byte_ms.is_none() {
            self.first_byte();
        }
        if let Some(observer) = &mut self.observer {
            observer.feed(chunk);
        }
        if let Some(carried) = &mut self.carried {
            carried.pass(chunk);
        }
    }

    /// What of the answer's bytes the client gets of those that go by; `None`: nothing yet.
    pub fn wanted(&mut self, chunk: Bytes) -> Option<Bytes> {
        match self.unasked.as_mut().and_then(|unasked| unasked.feed(&chunk)) {
            Some(passed) => (!passed.is_empty()).then(|| passed.into()),
            None => Some(chunk),
        }
    }

    /// What was kept back of an answer that is over.
    pub fn kept_back(&mut self) -> Vec<u8> {
        self.unasked.take().map(Unasked::finish).unwrap_or_default()
    }

    /// Whether the answer promised something and ends before its first byte.
    pub fn is_empty_answer(&self) -> bool {
        let promised = self.current.as_ref().is_some_and(|current| current.success);
        self.runs_model() && promised && self.receipt.first_byte_ms.is_none()
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

    /// The answer is whole.
    pub fn completed(&mut self, observed: Observed) {
        self.receipt.prompt_tokens = observed.prompt_tokens;
        self.receipt.cached_tokens = observed.cached_tokens;
        self.receipt.output_tokens = observed.output_tokens;
        if let (Some(current), Some(query)) = (&self.current, &self.query) {
            let (ask, upstream) = (&query.ask, current.node.id);
            self.ingress.fleet.with(|fleet, now| {
                let sessions = &mut fleet.sessions;
                observed.context.into_iter().for_each(|context| sessions.pin_context(ask, context, upstream, now));
                observed.response_id.into_iter().for_each(|id| sessions.pin_response(ask, id, upstream, now));
            });
        }
        match self.receipt.status {
            _ if observed.error => self.end(Verdict::StreamError, Outcome::Failed),
            200..300 => self.end(Verdict::Ok, Outcome::Done { output_tokens: observed.output_tokens }),
            500.. => self.end(Verdict::BackendError, Outcome::Failed),
            _ => self.end(Verdict::ClientError, Outcome::Void),
        }
    }

    /// The answer failed after it had begun.
    pub fn broke_off(&mut self, how: Verdict) {
        self.end(how, Outcome::Failed);
    }

    /// The request is answered here, without any node.
    pub fn answered_here(&mut self) {
        self.receipt.status = 200;
        self.end(Verdict::Ok, Outcome::Void);
    }

    pub fn client_gone(&mut self) {
        self.receipt.status = 499;
        self.end(Verdict::ClientGone, Outcome::Void);
    }

    pub fn refused(&mut self, refusal: &Refusal) {
        self.receipt.status = refusal.status();
        self.end(Verdict::of(refusal), Outcome::Void);
    }

    /// The request is over, however that came about.
    pub fn finish(&mut self) {
        if self.query.is_some() || self.carried.is_some() {
            self.end(Verdict::Cut, Outcome::Void);
        }
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

    /// What the answer's headers tell of how it came about.
    pub fn routing_headers(&self) -> Vec<(&'static str, String)> {
        if let Some(nodes) = self.nodes_told() {
            return vec![("x-fleet-node", nodes)];
        }
        let (Some(attempt), Some(current), true) =
            (self.receipt.attempts.last(), &self.current, self.ingress.plan.routing_headers)
        else {
            return Vec::new();
        };
        vec![
            ("x-fleet-node", self.ingress.node_name(attempt.row.upstream)),
            ("x-fleet-score", format!("{:.1}", attempt.row.score)),
            ("x-fleet-affinity", self.receipt.affinity.to_string()),
            ("x-fleet-model", current.model.clone()),
            ("x-fleet-attempts", self.receipt.attempts.len().to_string()),
            ("x-fleet-queue-ms", format!("{:.0}", self.receipt.queue_ms)),
        ]
    }

    fn first_byte(&mut self) {
        self.receipt.first_byte_ms = Some(self.elapsed_ms());
        if let (Some(current), Some(query)) = (&self.current, &self.query)
            && current.success
        {
            current.lease.first_byte(&query.ask);
            let metrics = &self.ingress.metrics;
            metrics.attempts.with_label_values(&[&current.node.label, "answered"]).inc();
            let seconds = self.elapsed_ms() / 1000.0;
            metrics.first_byte_seconds.with_label_values(&[&current.node.label]).observe(seconds);
        }
    }

    /// Ends the attempt and writes down what became of the request; only the first end counts. It
    /// comes before the last byte is sent, so that whoever has the answer finds the receipt.
    fn end(&mut self, verdict: Verdict, outcome: Outcome) {
        if let Some(current) = self.current.take() {
            current.lease.end(outcome);
        }
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.receipt.outcome = verdict.name();
        self.receipt.request_id = self.request_id.clone();
        self.receipt.total_ms = self.elapsed_ms();
        let metrics = &self.ingress.metrics;
        metrics.requests.with_label_values(&[self.dialect.name(), verdict.name()]).inc();
        if !self.receipt.attempts.is_empty() {
            metrics.affinity.with_label_values(&[self.receipt.affinity]).inc();
            self.count_tokens();
        }
        let receipt = std::mem::take(&mut self.receipt);
        access_log::write(self.ingress.plan.log.access, &receipt, &|id| self.ingress.node_name(id));
        if !receipt.model.is_empty() || !receipt.nodes.is_empty() {
            self.ingress.receipts.add(receipt);
        }
    }

    /// Whether a 404 can only mean that the model is gone: every Ollama has these paths for every model,
    /// while other engines and other paths come and go, and then the model is still there.
    fn says_model_gone(&self, node: &Node) -> bool {
        let ollama = node.engine.get().is_some_and(|engine| engine.naming == Naming::Ollama);
        let always_there =
            [Endpoint::OllamaChat, Endpoint::OllamaGenerate, Endpoint::OpenAiChat, Endpoint::OpenAiCompletions];
        ollama && self.query.as_ref().is_some_and(|query| always_there.contains(&query.ask.endpoint))
    }

    fn has_another(&self) -> bool {
        let (Some(query), Some(current)) = (&self.query, &self.current) else { return false };
        let mut query = query.clone();
        query.tried.push(current.holding);
        self.ingress.fleet.with(|fleet, now| !decide(fleet, &query, now).rows.is_empty())
    }

    fn no_candidate(&self, ask: &Ask, decision: &Decision) -> Refusal {
        match self.refusal {
            Some(Refusal::AttemptsFailed { last, .. }) => {
                Refusal::AttemptsFailed { last, attempts: self.receipt.attempts.len() }
            }
            _ => nobody::why(&self.ingress, ask, decision),
        }
    }

    fn count_tokens(&self) {
        if let (Some(attempt), Some(prompt)) = (self.receipt.attempts.last(), self.receipt.prompt_tokens) {
            let node = self.ingress.node(attempt.row.upstream).map_or_else(String::new, |node| node.label.clone());
            self.ingress.metrics.count_prompt(&node, prompt, self.receipt.cached_tokens.unwrap_or(0));
        }
    }

    fn elapsed_ms(&self) -> f64 {
        self.ingress.fleet.now().since(self.started).as_secs_f64() * 1000.0
    }
}

/// What became of the conversation's warmth.
fn affinity(ask: &Ask, decision: &Decision, chosen: &Row) -> &'static str {
    match decision.pin {
        _ if !ask.endpoint.is_conversation() => "none",
        Some(pin) if pin == chosen.upstream => "session",
        Some(_) => "moved",
        None if chosen.covered_tokens > 0 => "prefix",
        None => "new",
    }
}
