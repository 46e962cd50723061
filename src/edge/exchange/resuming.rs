//! What is noted of an answer that goes on at another node.

use std::sync::Arc;

use bytes::Bytes;
use pingora::http::ResponseHeader;

use super::Exchange;
use super::outgoing::Outgoing;
use crate::edge::headers;
use crate::edge::payload::Prepared;
use crate::edge::refusal::Refusal;
use crate::edge::tally;
use crate::edge::verdict::Verdict;
use crate::routing::fleet::{Outcome, UpstreamId};
use crate::routing::retry::Cause;
use crate::routing::select::unable_to_go_on;
use crate::wire::framing::Framing;
use crate::wire::observe::{Observed, Observer, Place};
use crate::wire::resume::{Follower, Kind, Prefix, Stitch, Unfit};
use crate::wire::unasked::Unasked;

/// Requests above this are parsed on a thread that may block.
const PARSED_INLINE_MAX_BYTES: usize = 1 << 20;

impl Exchange {
    /// Keeps what the client is given of this answer, if it may go on elsewhere.
    pub(super) fn follow(&mut self, response: &ResponseHeader) {
        (self.following, self.outgoing) = (None, Outgoing::default());
        let (Some(current), Some(query)) = (&self.current, &self.query) else { return };
        let may = self.may_resume && query.ask.stream && current.success && !current.is_translated;
        let Some(kind) = Kind::of(query.ask.endpoint).filter(|_| may && headers::may_shrink(response)) else { return };
        if Framing::of(&headers::content_type(response)) == kind.framing() {
            self.following = Some(Follower::new(kind));
            self.outgoing = Outgoing::from(self.given_bytes().unwrap_or_default());
        }
    }

    /// What was passed on and did not get to the client, since what came behind it failed; `None`: that is not
    /// known any more.
    pub fn take_ungiven(&mut self) -> Option<Vec<u8>> {
        let given = self.given_bytes().unwrap_or_default();
        std::mem::take(&mut self.outgoing).behind(given)
    }

    /// Whether the answer is one that may go on elsewhere.
    pub fn is_followed(&self) -> bool {
        self.following.is_some()
    }

    /// What a node has to be asked, so that it goes on with the answer.
    pub async fn prefix(&self) -> Result<Prefix, Unfit> {
        let (Some(following), Some(payload)) = (&self.following, &self.payload) else { return Err(Unfit::Odd) };
        let (kind, said, body) = (following.kind, following.said()?, payload.bytes.clone());
        if body.len() <= PARSED_INLINE_MAX_BYTES {
            return Prefix::of(kind, &body, said);
        }
        let said = said.clone();
        let reading = tokio::task::spawn_blocking(move || Prefix::of(kind, &body, &said));
        reading.await.unwrap_or(Err(Unfit::Odd))
    }

    /// The current attempt was cut within its answer; the next must go on with that.
    pub fn cut_off(&mut self, how: Verdict) {
        if let Some(following) = &mut self.following {
            // The client was not given it, and gets it from the next node.
            following.take_half();
        }
        (self.observer, self.unasked, self.cut_at) = (None, None, Some(Place::Between));
        let Some(current) = self.current.take() else { return };
        if let Some(attempt) = self.receipt.attempts.last_mut() {
            attempt.failure = Some(how.name());
        }
        if let Some(query) = &mut self.query {
            let goes_on = |id: UpstreamId| self.ingress.node(id).is_some_and(|node| goes_on(&node));
            let unable = self.ingress.fleet.with(|fleet, _| unable_to_go_on(fleet, query, current.holding, goes_on));
            let query = Arc::make_mut(query);
            query.tried.push(current.holding);
            query.tried.extend(unable);
        }
        current.lease.end(Outcome::Failed);
    }

    /// The body for a node that goes on with the answer; an error if it does not.
    pub fn body_that_goes_on(&mut self, prefix: &Prefix) -> Result<Bytes, Refusal> {
        let (Some(payload), Some(current), Some(query)) = (&self.payload, &self.current, &self.query) else {
            return Err(Refusal::Internal);
        };
        let engine = current.node.engine.get().and_then(|engine| engine.continues);
        let members = engine.filter(|_| !current.is_translated).ok_or(Refusal::Internal)?;
        let may_probe = self.plan.usage_probe == crate::config::UsageProbe::On;
        let probe = may_probe.then(|| payload.usage_probe(&current.node)).flatten();
        self.unasked = probe.map(|_| Unasked::default());
        let salt = self.tenant.as_deref().filter(|_| current.node.salts_cache());
        let salting = payload.salting(query.ask.endpoint, salt);
        let edits = probe.cloned().into_iter().chain(prefix.edits(members)).chain(salting).collect();
        let memory = &self.ingress.body_memory;
        match payload.under(&current.model, &query.ask, &current.node, current.misfit.as_deref(), edits, memory)? {
            Prepared::Plain(body) => Ok(body),
            Prepared::Translated(..) | Prepared::Answered(_) => Err(Refusal::Internal),
        }
    }

    /// An attempt to go on failed before it said anything; true if another may follow.
    pub fn failed_to_go_on(&mut self, cause: Cause) -> bool {
        let first_byte_ms = self.receipt.first_byte_ms;
        let another = self.give_up(cause);
        // The answer has begun all the same.
        (self.receipt.first_byte_ms, self.cut_at) = (first_byte_ms, Some(Place::Between));
        another
    }

    /// The current node does not go on with this answer, for which it is not to blame; true if another may.
    pub fn set_aside(&mut self) -> bool {
        let Some(current) = self.current.take() else { return false };
        if let Some(attempt) = self.receipt.attempts.last_mut() {
            attempt.failure = Some("does_not_go_on");
        }
        if let Some(query) = &mut self.query {
            Arc::make_mut(query).tried.push(current.holding);
        }
        current.lease.end(Outcome::Void);
        self.has_attempts_left()
    }

    /// The current node goes on with the answer, in these terms.
    pub fn goes_on(&mut self, response: &ResponseHeader) -> Result<Stitch, Unfit> {
        let (Some(following), Some(current)) = (&self.following, &mut self.current) else { return Err(Unfit::Odd) };
        let content_type = headers::content_type(response);
        if Framing::of(&content_type) != following.kind.framing() || !headers::may_shrink(response) {
            return Err(Unfit::Odd);
        }
        let stitch = Stitch::new(following.kind, following.said()?, self.unasked.is_some());
        (current.success, current.is_answering) = (true, true);
        let endpoint = self.query.as_ref().map(|query| query.ask.endpoint).ok_or(Unfit::Odd)?;
        self.observer = Some(Observer::new(endpoint, &content_type));
        self.base = Some(stitch.base);
        self.refusal = None;
        Ok(stitch)
    }

    /// The first bytes came of an answer that goes on.
    pub fn first_byte_of_the_rest(&mut self) {
        self.receipt.resumed += 1;
        if let (Some(current), Some(query)) = (&self.current, &self.query) {
            current.lease.first_byte(&query.ask);
            tally::answered(&self.ingress, &current.node);
            log::info!("{}: goes on at {}", self.request_id, current.node.name);
        }
    }

    /// What the client is given besides, so that the answer can go on once more.
    pub fn given(&mut self, bytes: &[u8]) {
        if let Some(following) = &mut self.following {
            following.feed(bytes);
        }
    }

    /// All that there was came from here on; what was learnt of the last part.
    pub fn observed_of_the_rest(&mut self) -> Observed {
        self.observer.take().map(Observer::finish).unwrap_or_default()
    }
}

fn goes_on(node: &crate::edge::node::Node) -> bool {
    node.engine.get().is_some_and(|engine| engine.continues.is_some())
}
