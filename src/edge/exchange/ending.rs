//! How a request ends: what is noted of it, and what the fleet learns.

use super::Exchange;
use crate::edge::access_log;
use crate::edge::refusal::Refusal;
use crate::edge::tally;
use crate::edge::verdict::Verdict;
use crate::routing::fleet::{Cached, Outcome};
use crate::wire::observe::{Observed, Observer};

impl Exchange {
    /// The answer is whole.
    pub fn completed(&mut self, observed: Observed) {
        // Of an answer in parts, the counts of the last part are made those of the whole.
        let base = self.base.as_ref();
        let prompt = |told| base.map_or(told, |base| base.prompt(told));
        let output = |told| base.map_or(told, |base| base.output(told));
        self.receipt.prompt_tokens = observed.prompt_tokens.map(prompt);
        self.receipt.cached_tokens =
            observed.cached_tokens.map(|told| told.min(observed.prompt_tokens.map_or(told, prompt)));
        self.receipt.output_tokens = observed.output_tokens.map(output);
        if let (Some(current), Some(query)) = (&self.current, &self.query)
            && (observed.context.is_some() || observed.response_id.is_some())
        {
            let (ask, upstream) = (&query.ask, current.node.id);
            self.ingress.fleet.with(|fleet, now| {
                observed.context.into_iter().for_each(|context| fleet.learn_context(ask, context, upstream, now));
                observed.response_id.into_iter().for_each(|id| fleet.learn_response(ask, id, upstream, now));
            });
        }
        match self.receipt.status {
            _ if observed.error => self.end(Verdict::StreamError, Outcome::Failed),
            200..300 => {
                let counts = observed.prompt_tokens.zip(observed.cached_tokens);
                let cached = counts.map(|(prompt_tokens, cached_tokens)| Cached { prompt_tokens, cached_tokens });
                self.end(Verdict::Ok, Outcome::Done { output_tokens: observed.output_tokens, cached });
            }
            500.. => self.end(Verdict::BackendError, self.told.map_or(Outcome::Failed, Outcome::of)),
            _ => self.end(Verdict::ClientError, self.told.map_or(Outcome::Void, Outcome::of)),
        }
    }

    /// The answer failed after it had begun.
    pub fn broke_off(&mut self, how: Verdict) {
        self.end(how, Outcome::Failed);
    }

    /// We end before the answer does: nobody's failure but ours.
    pub fn stopped(&mut self) {
        self.end(Verdict::Cut, Outcome::Void);
    }

    /// The model wrote what cannot be said to this client, and the client has been told: nobody's failure.
    pub fn misspoke(&mut self) {
        self.end(Verdict::StreamError, Outcome::Void);
    }

    /// The request is answered here, without any node.
    pub fn answered_here(&mut self) {
        self.receipt.status = 200;
        self.end(Verdict::Ok, Outcome::Void);
    }

    /// The client left. What the engine had told by then is noted, and nothing is guessed.
    pub fn client_gone(&mut self) {
        self.receipt.status = 499;
        if let Some(observed) = self.observer.take().map(Observer::finish) {
            self.receipt.prompt_tokens = observed.prompt_tokens;
            self.receipt.cached_tokens = observed.cached_tokens;
            self.receipt.output_tokens = observed.output_tokens;
            self.receipt.partial_events = Some(observed.content_events);
        }
        self.end(Verdict::ClientGone, Outcome::Void);
    }

    pub fn refused(&mut self, refusal: &Refusal) {
        self.receipt.status = refusal.status();
        self.count_limit(refusal);
        self.end(Verdict::of(refusal), Outcome::Void);
    }

    /// The request is over, however that came about.
    pub fn finish(&mut self) {
        if self.query.is_some() || self.carried.is_some() {
            self.end(Verdict::Cut, Outcome::Void);
        }
    }

    /// Ends the attempt and writes down what became of the request; only the first end counts. It
    /// comes before the last byte is sent, so that whoever has the answer finds the receipt.
    pub(super) fn end(&mut self, verdict: Verdict, outcome: Outcome) {
        let current = self.current.take();
        if !std::mem::replace(&mut self.ended, true) {
            self.write_down(verdict);
        }
        // Last, so that whoever sees the node free finds the receipt as well.
        if let Some(current) = current {
            current.lease.end(outcome);
        }
    }

    fn write_down(&mut self, verdict: Verdict) {
        self.charge(verdict);
        self.receipt.outcome = verdict.name();
        // Of a whole one this comes before its last bytes are sent.
        let is_cut = !matches!(verdict, Verdict::Ok | Verdict::ClientError);
        self.receipt.given_bytes = self.given_bytes().filter(|bytes| is_cut && *bytes > 0);
        self.receipt.request_id = self.request_id.clone();
        self.receipt.total_ms = self.elapsed_ms();
        self.live = None;
        tally::ended(&self.ingress, self.dialect, verdict, &self.receipt, self.served.take());
        let receipt = std::mem::take(&mut self.receipt);
        let endpoint = self.query.as_ref().map(|query| query.ask.endpoint);
        let name = |id| self.ingress.node_name(id);
        self.ingress.spans.add(self.trace.spans(&receipt, endpoint, verdict.is_failure(), &name), &self.ingress);
        if !access_log::write(self.plan.log.access, &receipt, &name) {
            self.ingress.metrics.access_lines_dropped.inc();
        }
        if self.ingress.observes && (!receipt.model.is_empty() || !receipt.nodes.is_empty()) {
            self.ingress.receipts.add(receipt);
        }
    }
}
