//! Whose request it is: what it may ask for, whether it may go now, and what it is charged.
//!
//! A request counts from its admission to its end, whatever becomes of it; what the fleet could not even begin is
//! given back. It is charged the tokens that the engine told. Where that told nothing it is charged its own
//! estimate, and for an answer that was not whole as many as came.

use pingora::http::RequestHeader;

use super::Exchange;
use crate::edge::refusal::Refusal;
use crate::edge::tenants::LimitsTold;
use crate::edge::verdict::Verdict;
use crate::routing::ask::{Ask, Endpoint};
use crate::routing::limits::{OUTPUT_TOKENS_GUESSED, Used, tokens_guessed};

/// Why a key is refused, as it is counted.
fn reason_of(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::NoKey => "none",
        Refusal::BadToken(fault) => fault.name(),
        Refusal::NoTokenKeys => "token_keys_missing",
        _ => "unknown",
    }
}

impl Exchange {
    /// Finds out whose request it is, where that matters.
    pub fn identify(&mut self, head: &RequestHeader) -> Result<(), Refusal> {
        let found = self.ingress.tenants().identify(head, &self.ingress.tokens);
        if let Err(refusal) = &found {
            self.ingress.metrics.tenants.key_refused(reason_of(refusal));
        }
        self.tenant = found?;
        self.receipt.tenant = self.tenant.as_ref().map(|tenant| tenant.name.clone());
        Ok(())
    }

    /// Whether its tenant may name models for engines to choose from, which nobody here looks at.
    pub fn may_name_others(&self) -> Result<(), Refusal> {
        let may = self.tenant.as_ref().is_none_or(|tenant| tenant.may_use_all());
        if may { Ok(()) } else { Err(Refusal::OthersNotAllowed) }
    }

    /// Whether its tenant may ask for a model by that name.
    pub fn may_ask_for(&self, model: &str) -> Result<(), Refusal> {
        match &self.tenant {
            Some(tenant) if !tenant.may_use(model) => Err(Refusal::ModelNotAllowed { model: model.to_owned() }),
            _ => Ok(()),
        }
    }

    /// Whether models may be managed for its tenant.
    pub fn may_manage(&self) -> bool {
        self.plan.management || self.tenant.as_ref().is_some_and(|tenant| tenant.management)
    }

    /// Whether a request could go now, before anything of it is read.
    pub fn has_room(&self, endpoint: Endpoint) -> Result<(), Refusal> {
        match &self.tenant {
            Some(tenant) if endpoint.runs_model() => tenant.look(self.ingress.fleet.now()),
            _ => Ok(()),
        }
    }

    /// Counts the request among its tenant's from now on; calls that run no model are not counted.
    pub async fn admit(&mut self, ask: &Ask) -> Result<(), Refusal> {
        if let Some(tenant) = self.tenant.as_ref().filter(|_| ask.endpoint.runs_model()) {
            self.admitted = Some(tenant.admit(tokens_guessed(ask), &self.ingress).await?);
        }
        Ok(())
    }

    /// What is left of its tenant's limits.
    pub fn limits_told(&self) -> LimitsTold {
        let counted = self.admitted.is_some() || self.receipt.charged_tokens.is_some();
        let tenant = self.tenant.as_ref().filter(|_| counted);
        tenant.map(|tenant| tenant.limits_told(self.ingress.fleet.now())).unwrap_or_default()
    }

    /// A refusal that names no model which its tenant may not use.
    pub fn discreet(&self, refusal: Refusal) -> Refusal {
        match (refusal, &self.tenant) {
            (Refusal::UnknownModel { model, mut nearest }, Some(tenant)) => {
                nearest.retain(|name| tenant.may_use(name));
                Refusal::UnknownModel { model, nearest }
            }
            (refusal, _) => refusal,
        }
    }

    pub(super) fn count_limit(&self, refusal: &Refusal) {
        if let (Refusal::OverLimit { over, .. }, Some(tenant)) = (refusal, &self.tenant) {
            self.ingress.metrics.tenants.limit(&tenant.name, *over);
        }
    }

    /// The request is over: it no longer counts among those that run, and is charged what it used.
    pub(super) fn charge(&mut self, verdict: Verdict) {
        let Some(tenant) = &self.tenant else { return };
        // One that is no longer configured is not counted any more.
        let counts = self.ingress.tenants().named(&tenant.name).map(|_| &self.ingress.metrics.tenants);
        if let Some(counts) = counts {
            counts.request(&tenant.name, verdict);
        }
        let Some(admitted) = self.admitted.take() else { return };
        let (used, is_estimated) = self.used(verdict);
        let charged = admitted.settle(used);
        if let Some(counts) = counts.filter(|_| charged > 0) {
            counts.charge(&tenant.name, charged, is_estimated);
        }
        self.receipt.charged_tokens = Some(charged);
        self.receipt.charge_is_estimated = is_estimated;
    }

    /// What the request used, and whether that is an estimate.
    fn used(&self, verdict: Verdict) -> (Used, bool) {
        let Some(ask) = self.query.as_ref().map(|query| &query.ask) else { return (Used::Nothing, false) };
        if self.receipt.attempts.is_empty() {
            let never_begun = matches!(verdict, Verdict::Refused | Verdict::QueueTimeout);
            return (if never_begun { Used::Nothing } else { Used::Tokens(0) }, false);
        }
        let began = self.receipt.first_byte_ms.is_some() && matches!(self.receipt.status, 200..300 | 499);
        if !began {
            return (Used::Tokens(0), false);
        }
        let receipt = &self.receipt;
        let answers = ask.endpoint.is_conversation();
        let told = receipt.output_tokens.or((!answers).then_some(0));
        let output = match verdict {
            _ if told.is_some() => told,
            Verdict::Ok => None,
            _ => Some(receipt.partial_events.or(self.came_so_far()).unwrap_or(0)),
        };
        let output = output.unwrap_or_else(|| ask.max_output_tokens.unwrap_or(OUTPUT_TOKENS_GUESSED));
        let prompt = receipt.prompt_tokens.unwrap_or(ask.prompt_tokens);
        let is_estimated = told.is_none() || receipt.prompt_tokens.is_none();
        (Used::Tokens(u64::from(prompt) + u64::from(output)), is_estimated)
    }

    /// Messages with output in them, of an answer that broke off.
    fn came_so_far(&self) -> Option<u32> {
        self.observer.as_ref().map(|observer| observer.so_far().content_events)
    }
}
