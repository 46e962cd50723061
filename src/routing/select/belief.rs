//! What is believed of each eligible upstream for one ask: its candidate, its points, its row.

use super::{Offer, Row, upstream_of};
use crate::routing::ask::Ask;
use crate::routing::candidate::{Candidate, FirstToken, Memory, Residency};
use crate::routing::estimate::median;
use crate::routing::fleet::{Fleet, UpstreamId};
use crate::routing::moment::Moment;
use crate::routing::policy::Merits;
use crate::routing::runner::Misfit;
use crate::routing::upstream::{Holding, Upstream};

/// Each of the eligible, with its points; not ranked.
pub fn judge(fleet: &Fleet, ask: &Ask, eligible: &[Offer], pinned: Option<UpstreamId>, now: Moment) -> Vec<Row> {
    let covered = if ask.endpoint.is_conversation() { fleet.prefixes.covered(ask, now) } else { Vec::new() };
    let typical = Typical::of(eligible.iter().map(|offer| fleet.holding(offer.holding)));
    let row = |offer: &Offer| {
        let holding = fleet.holding(offer.holding);
        let known = covered.iter().find(|(upstream, _)| *upstream == holding.upstream);
        let covered_tokens = known.map_or(0, |(_, tokens)| (*tokens).min(ask.prompt_tokens));
        let misfit = upstream_of(fleet, offer.holding).misfit(holding, ask, &fleet.rules, now);
        let belief = Belief { holding, covered_tokens, pinned, typical: &typical, misfit: misfit.as_ref(), now };
        let candidate = belief.candidate(fleet, ask);
        let points = fleet.rules.signals.points(&candidate, ask);
        let first_token_s = candidate.first_token.map_or(0.0, |parts| parts.total_s());
        let merits = Merits { weight: offer.weight, cost: offer.cost, first_token_s, used: offer.used(fleet, now) };
        Row {
            upstream: holding.upstream,
            holding: offer.holding,
            points,
            score: points.iter().sum(),
            depth: candidate.depth,
            covered_tokens,
            merits,
            has_room: fleet.has_room(offer.holding, ask.priority),
            is_resident: candidate.is_resident(),
            first_token: candidate.first_token,
            misfit: misfit.map(Box::new),
            name_hash: upstream_of(fleet, offer.holding).name_hash,
        }
    };
    eligible.iter().map(row).collect()
}

/// What is left of the availability of a node that lets requests wait longer than can be right, or fails
/// its checks and is used all the same.
const IN_DOUBT: f64 = 0.5;

/// What is known of one holder for one ask, on the way to a candidate.
struct Belief<'a> {
    holding: &'a Holding,
    covered_tokens: u32,
    pinned: Option<UpstreamId>,
    typical: &'a Typical,
    misfit: Option<&'a Misfit>,
    now: Moment,
}

impl Belief<'_> {
    fn candidate(&self, fleet: &Fleet, ask: &Ask) -> Candidate {
        let holding = self.holding;
        let upstream = &fleet.upstreams[holding.upstream];
        let slots = f64::from(upstream.slots(holding).count);
        let foreign = upstream.foreign_requests(self.now, fleet.rules.stale_after);
        let waiting = fleet.waiting_before(holding, ask.priority);
        let requests = f64::from(holding.running.saturating_add(waiting).saturating_add(foreign));
        let reloads = self.misfit.is_some_and(Misfit::reloads);
        let prefix_share = f64::from(self.covered_tokens) / f64::from(ask.prompt_tokens.max(1));
        Candidate {
            residency: if reloads { Residency::OnDisk } else { self.residency() },
            model_bytes: holding.weights_bytes,
            need_bytes: holding.need_bytes(),
            memory: self.memory(fleet, upstream),
            bandwidth_bytes_s: upstream.spec.bandwidth_bytes_s,
            depth: requests / slots,
            other_depth: f64::from(upstream.in_flight.saturating_sub(holding.running)) / slots,
            first_token: self.first_token(ask, requests, slots, reloads),
            availability: self.availability(fleet, upstream),
            context_tokens: upstream.window(holding, ask, self.misfit),
            pinned: self.pinned == Some(holding.upstream),
            prefix_share: if self.pinned.is_none() { prefix_share } else { 0.0 },
        }
    }

    /// Health checks, failures and slow start in one.
    fn availability(&self, fleet: &Fleet, upstream: &Upstream) -> f64 {
        let (rules, now) = (&fleet.rules, self.now);
        let trust = upstream.breaker.trust(&rules.breaker, now) * self.holding.breaker.trust(&rules.breaker, now);
        let rising = upstream.slow_start.availability(rules.slow_start, now);
        let rising = rising.min(self.holding.slow_start.availability(rules.slow_start, now));
        let in_doubt = self.holding.overdue > 0 || !upstream.healthy;
        trust * rising * if in_doubt { IN_DOUBT } else { 1.0 }
    }

    fn residency(&self) -> Residency {
        match (self.holding.resident || self.holding.loading_since.is_some(), self.holding.unloaded_at) {
            (true, _) => Residency::Resident,
            (false, Some(at)) => Residency::Unloaded(self.now.since(at)),
            (false, None) => Residency::OnDisk,
        }
    }

    /// Free memory by the latest reading; unknown once that is stale (L10).
    fn memory(&self, fleet: &Fleet, upstream: &Upstream) -> Option<Memory> {
        let total_bytes = upstream.spec.memory_bytes?;
        let fresh = upstream.read_at.is_some_and(|at| self.now.since(at) < fleet.rules.stale_after);
        if !fresh {
            return None;
        }
        let resident = fleet.holdings_of(self.holding.upstream).filter(|held| held.resident);
        let (mut used, mut busy) = (0u64, 0u64);
        for held in resident {
            let bytes = held.need_bytes().unwrap_or(0);
            used = used.saturating_add(bytes);
            busy = busy.saturating_add(if held.running > 0 { bytes } else { 0 });
        }
        Some(Memory {
            total_bytes,
            free_bytes: total_bytes.saturating_sub(used),
            free_without_idle_bytes: total_bytes.saturating_sub(busy),
        })
    }

    /// Predicted from this node's speeds, else the fleet's for the model; `None` if nobody has any.
    fn first_token(&self, ask: &Ask, requests: f64, slots: f64, reloads: bool) -> Option<FirstToken> {
        let (speed, typical) = (&self.holding.speed, self.typical);
        let per_token_s = speed.prefill_s_per_token().or(typical.prefill_s_per_token);
        let service_s = speed.service_s().or(typical.service_s);
        let load_s = speed.load_s().or(typical.load_s);
        per_token_s.or(service_s).or(load_s)?;
        let ahead = (requests - slots + 1.0).max(0.0);
        let uncached = ask.prompt_tokens.saturating_sub(self.covered_tokens);
        let load_left_s = match self.holding.loading_since {
            _ if self.holding.resident && !reloads => 0.0,
            Some(since) => (load_s.unwrap_or(0.0) - self.now.since(since).as_secs_f64()).max(0.0),
            None => load_s.unwrap_or(0.0),
        };
        Some(FirstToken {
            wait_s: ahead * service_s.unwrap_or(0.0) / slots,
            load_s: load_left_s,
            prefill_s: per_token_s.unwrap_or(0.0) * f64::from(uncached),
        })
    }
}

/// The middle speeds of a model over its holders.
struct Typical {
    prefill_s_per_token: Option<f64>,
    service_s: Option<f64>,
    load_s: Option<f64>,
}

impl Typical {
    fn of<'a>(holders: impl Iterator<Item = &'a Holding> + Clone) -> Typical {
        Typical {
            prefill_s_per_token: median(holders.clone().filter_map(|held| held.speed.prefill_s_per_token())),
            service_s: median(holders.clone().filter_map(|held| held.speed.service_s())),
            load_s: median(holders.filter_map(|held| held.speed.load_s())),
        }
    }
}
