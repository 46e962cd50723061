//! What a client's name may mean: models on upstreams, each on its terms.

use super::{Fleet, HoldingId, Moment, Target, upstream_of};

/// A model on an upstream that a client's name may mean, and on what terms.
pub struct Offer {
    pub holding: HoldingId,
    pub weight: f64,
    pub rpm: Option<u32>,
    pub tpm: Option<u32>,
    pub cost: Option<f64>,
}

pub fn offers(fleet: &Fleet, model: &str) -> Vec<Offer> {
    let Some((group, rest)) = fleet.rules.groups.find(model) else {
        let offer = |holding| {
            let weight = upstream_of(fleet, holding).spec.weight;
            Offer { holding, weight, rpm: None, tpm: None, cost: None }
        };
        return fleet.holders(model).into_iter().map(offer).collect();
    };
    let offer = |target: &Target| {
        let holders = fleet.holders(&target.model_for(rest));
        let holding = holders.into_iter().find(|held| fleet.holding(*held).upstream == target.upstream)?;
        Some(Offer { holding, weight: target.weight, rpm: target.rpm, tpm: target.tpm, cost: target.cost })
    };
    group.targets.iter().filter_map(offer).collect()
}

impl Offer {
    /// Share of its limits used in the last minute; without limits the tokens used, in millions.
    pub fn used(&self, fleet: &Fleet, now: Moment) -> f64 {
        let counts = fleet.holding(self.holding).usage.last_minute(now);
        let share = |used: f64, limit: Option<u32>| limit.map(|limit| used / f64::from(limit.max(1)));
        match (share(counts.requests, self.rpm), share(counts.tokens, self.tpm)) {
            (None, None) => counts.tokens / 1e6,
            (requests, tokens) => requests.unwrap_or(0.0).max(tokens.unwrap_or(0.0)),
        }
    }

    pub fn is_over_limit(&self, fleet: &Fleet, prompt_tokens: u32, now: Moment) -> bool {
        let counts = fleet.holding(self.holding).usage.last_minute(now);
        let over = |used: f64, more: u32, limit: Option<u32>| {
            limit.is_some_and(|limit| used + f64::from(more) > f64::from(limit))
        };
        over(counts.requests, 1, self.rpm) || over(counts.tokens, prompt_tokens, self.tpm)
    }
}
