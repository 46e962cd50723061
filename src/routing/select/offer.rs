//! What a client's name may mean: models on upstreams, each on its terms.

use super::{Fleet, HoldingId, Moment, Target, upstream_of};
use crate::routing::upstream::{Holding, Upstream};

/// A model on an upstream that a client's name may mean, and on what terms.
pub struct Offer<'a> {
    pub holding: HoldingId,
    /// What is believed of the model there, looked up once.
    pub model: &'a Holding,
    pub upstream: &'a Upstream,
    pub weight: f64,
    pub rpm: Option<u32>,
    pub tpm: Option<u32>,
    pub cost: Option<f64>,
}

pub fn offers<'a>(fleet: &'a Fleet, model: &str) -> Vec<Offer<'a>> {
    let Some((group, rest)) = fleet.rules.groups.find(model) else {
        let offer = |holding| {
            let upstream = upstream_of(fleet, holding);
            let weight = upstream.spec.weight;
            Offer { holding, model: fleet.holding(holding), upstream, weight, rpm: None, tpm: None, cost: None }
        };
        return fleet.holders(model).into_iter().map(offer).collect();
    };
    let offer = |target: &Target| {
        let holders = fleet.holders(&target.model_for(rest));
        let holding = holders.into_iter().find(|held| fleet.holding(*held).upstream == target.upstream)?;
        let (model, upstream) = (fleet.holding(holding), upstream_of(fleet, holding));
        let Target { weight, rpm, tpm, cost, .. } = *target;
        Some(Offer { holding, model, upstream, weight, rpm, tpm, cost })
    };
    group.targets.iter().filter_map(offer).collect()
}

impl Offer<'_> {
    /// Share of its limits used in the last minute; without limits the tokens used, in millions.
    pub fn used(&self, now: Moment) -> f64 {
        let counts = self.model.usage.last_minute(now);
        let share = |used: f64, limit: Option<u32>| limit.map(|limit| used / f64::from(limit.max(1)));
        match (share(counts.requests, self.rpm), share(counts.tokens, self.tpm)) {
            (None, None) => counts.tokens / 1e6,
            (requests, tokens) => requests.unwrap_or(0.0).max(tokens.unwrap_or(0.0)),
        }
    }

    pub fn is_over_limit(&self, prompt_tokens: u32, now: Moment) -> bool {
        if (self.rpm, self.tpm) == (None, None) {
            return false;
        }
        let counts = self.model.usage.last_minute(now);
        let over = |used: f64, more: u32, limit: Option<u32>| {
            limit.is_some_and(|limit| used + f64::from(more) > f64::from(limit))
        };
        over(counts.requests, 1, self.rpm) || over(counts.tokens, prompt_tokens, self.tpm)
    }
}
