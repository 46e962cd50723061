//! The attempts of a request: which node is asked next, and what its failure means.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pingora::http::ResponseHeader;
use pingora_proxy::Session;

use super::{Current, Exchange, Unplaced};
use crate::edge::departure::cut_off;
use crate::edge::movers::Heard;
use crate::edge::node::Node;
use crate::edge::pick::Picked;
use crate::edge::receipt::Attempt;
use crate::edge::refusal::Refusal;
use crate::edge::replay::Mover;
use crate::edge::waiting_room::{Entered, Ticket, Unserved};
use crate::edge::{headers, nobody, tally};
use crate::routing::ask::{Ask, Endpoint};
use crate::routing::fleet::{Fleet, Outcome};
use crate::routing::name::Naming;
use crate::routing::retry::{self, Cause, Phase};
use crate::routing::select::{Decision, Elsewhere, elsewhere};

impl Exchange {
    /// Chooses and books the node for the next attempt; waits for one where all that could serve are busy.
    pub async fn choose(&mut self, session: &mut Session) -> Result<Arc<Node>, Unplaced> {
        let query = self.query.as_ref().ok_or(Refusal::Internal)?;
        if query.tried.is_empty() {
            self.ingress.cluster.learn_of(&query.ask, &self.ingress).await;
        }
        let at_most = self.plan.admission.queue_timeout.0.saturating_sub(self.waited);
        let decision = match self.ingress.waiting_room.enter(query, at_most) {
            Entered::Booked(picked) => return Ok(self.settle(*picked)?),
            Entered::Waiting(ticket) => match self.wait(ticket, at_most, session).await? {
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
        let refusal = self.discreet(self.no_candidate(&query.ask, &decision));
        self.ready_answer = nobody::answer_instead(&query.ask, &refusal);
        Err(refusal.into())
    }

    /// Waits in the queue, with an eye on the client.
    async fn wait(
        &mut self,
        ticket: Ticket,
        at_most: Duration,
        session: &mut Session,
    ) -> Result<Result<Picked, Unserved>, Unplaced> {
        let replay = self.replay.as_ref().ok_or(Refusal::Internal)?;
        self.receipt.queue_position.get_or_insert(ticket.position);
        let began = self.ingress.fleet.now();
        let mut stage = self.ingress.departure.watch();
        let outcome = tokio::select! {
            biased;
            served = ticket.served(at_most) => Ok(served),
            () = cut_off(&mut stage) => Err(Refusal::Stopping.into()),
            error = replay.client_left(session) => Err(Unplaced::ClientGone(error)),
        };
        // Whoever made room booked it; it is told of that a moment later.
        let ended_at = match &outcome {
            Ok(Ok(picked)) => picked.at,
            _ => self.ingress.fleet.now(),
        };
        let waited = ended_at.since(began);
        tally::waited(&self.ingress, &self.receipt.model, waited);
        self.waited += waited;
        let ended_ms = self.ms_at(ended_at);
        self.receipt.waits_ms.push((ended_ms - waited.as_secs_f64() * 1000.0, ended_ms));
        self.receipt.queue_ms = self.waited.as_secs_f64() * 1000.0;
        outcome
    }

    /// Takes the chosen node for the current attempt.
    fn settle(&mut self, picked: Picked) -> Result<Arc<Node>, Refusal> {
        let Picked { lease, row, model, is_translated, decision, warmth, at } = picked;
        let query = self.query.as_ref().ok_or(Refusal::Internal)?;
        let node = self.ingress.node(row.upstream).ok_or(Refusal::Internal)?;
        (self.receipt.affinity, self.receipt.lost) = (warmth.name(), warmth.lost());
        if let Some(live) = &self.live {
            live.placed(row.upstream, self.receipt.affinity);
        }
        self.served = tally::placed(&self.ingress, &node, &model, &row, query.ask.endpoint);
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
            heard: Heard::default(),
        });
        let placed_ms = self.ms_at(at);
        self.receipt.attempts.push(Attempt::new(row, decision, placed_ms));
        Ok(node)
    }

    /// Lets the current attempt be watched, and moved while it waits.
    pub fn watch(&mut self, mover: Mover) {
        let last = !self.has_attempts_left();
        if let (Some(current), Some(query)) = (&mut self.current, &self.query) {
            let movable = !last && Cause::Ejected.verdict(Phase::Waiting, query.ask.endpoint.is_repeatable()).moves;
            let movers = &self.ingress.fleet.movers;
            current.heard = movers.add(current.lease.id, current.holding, movable.then(|| query.clone()), mover);
        }
    }

    /// What a failure at the current node means, before the first byte.
    pub fn verdict(&self, cause: Cause) -> retry::Verdict {
        let repeatable = self.query.as_ref().is_some_and(|query| query.ask.endpoint.is_repeatable());
        cause.verdict(Phase::Waiting, repeatable)
    }

    /// Whether a request that failed at the current node is sent to another; if so that is counted. To be
    /// asked once for each failure.
    pub fn takes_retry(&mut self, cause: Cause) -> bool {
        let verdict = self.verdict(cause);
        let could = verdict.moves && self.has_attempts_left() && self.has_another();
        let budget = |fleet: &mut Fleet, now| fleet.retries.take(now);
        self.moves = could && (!verdict.spends_budget || self.ingress.fleet.with(budget));
        if let Some(current) = self.current.as_ref().filter(|_| could) {
            tally::retry(&self.ingress, &current.node, cause, self.moves);
        }
        self.moves
    }

    /// The current node's answer is a failure, and is told all the same.
    pub fn tell(&mut self, cause: Cause) {
        self.told = Some(cause);
    }

    /// A node that refuses for want of a place may say for how long it wants to be left alone.
    pub fn told_to_wait(&self, response: &ResponseHeader) {
        if !matches!(response.status.as_u16(), 429 | 503) {
            return;
        }
        if let (Some(wait), Some(current)) = (headers::retry_after(&response.headers, SystemTime::now()), &self.current)
        {
            self.ingress.fleet.with(|fleet, now| fleet.learn_wait(current.holding, wait, now));
        }
    }

    pub fn has_attempts_left(&self) -> bool {
        self.receipt.attempts.len() < self.plan.resilience.attempts as usize
    }

    /// How the head of an answer says that the attempt failed, if it does.
    pub fn cause_of(&self, response: &ResponseHeader) -> Option<Cause> {
        if self.carried.is_some() {
            return None;
        }
        if self.runs_model() && response.status.is_success() && headers::declares_nothing(response) {
            return Some(Cause::Empty);
        }
        let forwards_keys = self.node().is_some_and(|node| node.target.forwards_keys);
        if forwards_keys && matches!(response.status.as_u16(), 401 | 403) {
            // The key was the client's, and so is the answer.
            return None;
        }
        let engine = self.current.as_ref().and_then(|current| current.node.engine.get());
        Cause::of_status(response.status.as_u16(), engine.map_or(&[], |engine| engine.busy_statuses))
    }

    /// Gives the current attempt up; true if another may follow.
    pub fn give_up(&mut self, cause: Cause) -> bool {
        let another = self.takes_retry(cause);
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
        tally::attempt_failed(&self.ingress, &current.node, cause);
        if let Some(live) = &self.live {
            live.unplaced();
        }
        let ended_ms = self.elapsed_ms();
        if let Some(attempt) = self.receipt.attempts.last_mut() {
            attempt.failure = Some(cause.name());
            attempt.ended_ms = Some(ended_ms);
        }
        if let Some(query) = &mut self.query {
            Arc::make_mut(query).tried.push(current.holding);
        }
        match cause {
            // The next good check is news then, and brings it back without a trial.
            // And its name may lead elsewhere by now.
            Cause::ConnectFailed if current.node.standing.saw_refusal() => self.ingress.roster.ask_for_a_look(),
            Cause::ModelGone if self.says_model_gone(&current.node) => {
                self.ingress.fleet.with(|fleet, _| fleet.learn_gone(current.holding));
            }
            _ => {}
        }
        // It may have begun to answer without a byte having reached the client.
        (self.observer, self.cut_at, self.receipt.first_byte_ms) = (None, None, None);
        self.refusal = Some(Refusal::AttemptsFailed { last: cause, attempts: self.receipt.attempts.len() });
        current.lease.end(Outcome::of(cause));
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
        self.ingress.fleet.with(|fleet, now| elsewhere(fleet, query, current.holding, now)) > Elsewhere::Nowhere
    }

    fn no_candidate(&self, ask: &Ask, decision: &Decision) -> Refusal {
        match self.refusal {
            Some(Refusal::AttemptsFailed { last, .. }) => {
                Refusal::AttemptsFailed { last, attempts: self.receipt.attempts.len() }
            }
            _ => nobody::why(&self.ingress, ask, decision),
        }
    }
}
