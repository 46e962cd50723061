//! What is believed of each eligible upstream for one ask: its candidate, its points, its row.

use super::forecast::{Forecast, Typical};
use super::home::Home;
use super::{Marks, Offer, Row};
use crate::routing::ask::Ask;
use crate::routing::candidate::{Candidate, External, Memory, Residency};
use crate::routing::estimate::Work;
use crate::routing::fleet::{Fleet, UpstreamId};
use crate::routing::moment::Moment;
use crate::routing::policy::{Merits, Policy};
use crate::routing::prefix::{Capacity, Prospect, Prospects};
use crate::routing::runner::Misfit;
use crate::routing::slow_start::SlowStart;
use crate::routing::upstream::{Holding, Slots, Upstream};

/// Each of the eligible, with its points; not ranked.
pub fn judge(
    fleet: &Fleet,
    ask: &Ask,
    eligible: &[Offer],
    (pinned, home): (Option<UpstreamId>, Option<Home>),
    policy: Policy,
    now: Moment,
) -> Vec<Row> {
    let typical = Typical::of(eligible, ask);
    let by_time = policy == Policy::ExpectedTtft;
    let around = Around {
        prospects: fleet.prefixes.prospects(ask, now),
        // What others have gone on from is no pin any more.
        pinned: pinned.filter(|_| home.is_none()),
        home,
        typical: if by_time { typical.or_assumed() } else { typical },
        weight: fleet.weights.at(now),
        now,
    };
    let row = |offer: &Offer| {
        let (holding, upstream) = (offer.model, offer.upstream);
        let (slots, capacity) = (upstream.slots(holding), upstream.capacity(holding));
        let prospect = around.prospects.at(offer.holding, capacity);
        let misfit = upstream.misfit(holding, ask, &fleet.rules, now);
        let foreign = upstream.foreign_requests(now, fleet.rules.stale_after);
        let misfit_here = misfit.as_ref();
        let belief =
            Belief { holding, upstream, slots, capacity, foreign, prospect, misfit: misfit_here, around: &around };
        let candidate = belief.candidate(fleet, ask);
        let signals = &fleet.rules.signals;
        let points = if by_time { signals.seconds(&candidate, ask) } else { signals.points(&candidate, ask) };
        let first_token_s = candidate.first_token.map_or(0.0, |parts| parts.total_s());
        let used = if policy == Policy::Usage { offer.used(now) } else { 0.0 };
        let merits = Merits { weight: offer.weight, cost: offer.cost, first_token_s, used };
        Row {
            upstream: holding.upstream,
            holding: offer.holding,
            points,
            score: points.iter().sum(),
            depth: candidate.depth,
            covered_tokens: belief.found(),
            displaced_s: candidate.external.displaced_s / fleet.rules.externality_weight,
            merits,
            has_room: fleet.admits(holding, slots, ask.priority),
            is_resident: candidate.is_resident(),
            is_ready: belief.is_ready(&candidate),
            first_token: candidate.first_token,
            marks: belief.marks(fleet, ask, candidate.context_tokens, candidate.leaves),
            misfit: misfit.map(Box::new),
            name_hash: upstream.name_hash,
        }
    };
    eligible.iter().map(row).collect()
}

/// What is the same for all of them.
struct Around<'a> {
    prospects: Prospects<'a>,
    pinned: Option<UpstreamId>,
    home: Option<Home>,
    typical: Typical<'a>,
    /// What a request weighs that comes now.
    weight: f64,
    now: Moment,
}

/// As far as a node has to be relied on to get what the best one lets wait.
const RELIABLE: f64 = 0.95;

/// What is left of the availability of a node that lets requests wait longer than can be right, or fails
/// its checks and is used all the same.
const IN_DOUBT: f64 = 0.5;

/// What sharing costs others on a node that is half used; it grows without bound towards all of it.
const PRESSURE_S: f64 = 0.05;
/// As full as a node counts at most.
const PRESSED: f64 = 0.95;

/// How many conversations go on; of those that others serve nobody here counts them.
const GOES_ON: f64 = 0.5;

/// What is known of one holder for one ask, on the way to a candidate.
struct Belief<'a> {
    holding: &'a Holding,
    upstream: &'a Upstream,
    slots: Slots,
    capacity: Capacity,
    /// Requests there that are not ours.
    foreign: u32,
    prospect: Prospect,
    misfit: Option<&'a Misfit>,
    around: &'a Around<'a>,
}

impl Belief<'_> {
    fn candidate(&self, fleet: &Fleet, ask: &Ask) -> Candidate {
        let (holding, upstream, around) = (self.holding, self.upstream, self.around);
        let slots = f64::from(self.slots.count);
        let waiting = fleet.waiting_before(holding, ask.priority);
        let others = self.foreign.saturating_add(holding.others.requests());
        let requests = f64::from(holding.running.saturating_add(waiting).saturating_add(others));
        let elsewhere = upstream.others.running.saturating_sub(holding.others.running);
        let other = upstream.in_flight.saturating_sub(holding.running).saturating_add(elsewhere);
        let other_depth = f64::from(other) / slots;
        let place = (holding, upstream);
        let forecast = Forecast::new(fleet, place, self.slots, self.foreign, &around.typical, around.now);
        let first_token =
            around.typical.is_known().then(|| forecast.first_token(ask.prompt_tokens, self.expected(), self.reloads()));
        let prefix_share = f64::from(self.expected()) / f64::from(ask.prompt_tokens.max(1));
        let memory = self.memory(fleet, upstream);
        Candidate {
            residency: if self.reloads() || forecast.leaves() { Residency::OnDisk } else { self.residency() },
            model_bytes: holding.weights_bytes,
            need_bytes: holding.need_bytes(),
            memory,
            bandwidth_bytes_s: upstream.spec.bandwidth_bytes_s,
            depth: requests / slots,
            other_depth,
            ahead: upstream.tally.ahead(requests / slots + other_depth, around.weight),
            first_token,
            leaves: forecast.leaves(),
            availability: self.availability(fleet, upstream),
            context_tokens: upstream.window(holding, ask, self.misfit),
            pinned: around.pinned == Some(holding.upstream),
            prefix_share: if around.pinned.is_none() { prefix_share } else { 0.0 },
            home: self.home().map_or(0.0, |home| home.strength),
            external: self.external(fleet, ask, &forecast, requests / slots),
        }
    }

    fn is_ready(&self, candidate: &Candidate) -> bool {
        let fits =
            || candidate.memory.zip(candidate.need_bytes).is_some_and(|(memory, need)| need <= memory.free_bytes);
        let loads = || self.holding.speed.load_s().or(self.around.typical.load_s).is_some() && fits();
        candidate.availability >= RELIABLE && !self.reloads() && (candidate.is_resident() || loads())
    }

    /// Tokens of the prompt that will be in the cache; none where the model is loaded anew.
    fn found(&self) -> u32 {
        if self.reloads() { 0 } else { self.prospect.found }
    }

    /// Of the same what is known or, at home, as good as known.
    fn expected(&self) -> u32 {
        let at_home = self.home().map_or(0, |home| home.expected_tokens);
        self.found().max(if self.reloads() || !self.holding.resident { 0 } else { at_home })
    }

    /// The conversation's home, if it is here.
    fn home(&self) -> Option<Home> {
        self.around.home.filter(|home| home.upstream == self.holding.upstream)
    }

    fn reloads(&self) -> bool {
        self.misfit.is_some_and(Misfit::reloads)
    }

    fn external(&self, fleet: &Fleet, ask: &Ask, forecast: &Forecast, used: f64) -> External {
        let weight = fleet.rules.externality_weight;
        let typical = self.around.typical.cost.unwrap_or_default();
        let Prospect { displaced, missed, .. } = self.prospect;
        let per_slot = matches!(self.capacity, Capacity::Slots { .. });
        let used = used.min(PRESSED);
        External {
            work_s: (weight - 1.0) * typical.seconds(Work::of(ask.prompt_tokens, self.expected())),
            // They come back here, and so do those who wait behind them: at this node's own speed.
            displaced_s: weight * missed * forecast.prefill_s(Work::of(displaced, 0)),
            evicted_s: forecast.eviction().missed_s,
            strays_s: weight * self.strays() * typical.seconds(Work::of(ask.prompt_tokens, 0)),
            // Whoever has slots of their own does not slow down the others' until there are none.
            pressure_s: if per_slot { 0.0 } else { PRESSURE_S * used / (1.0 - used) },
        }
    }

    /// How likely it is looked for where it is not, and misses what would be served here.
    fn strays(&self) -> f64 {
        let away = self.around.home.filter(|_| self.home().is_none());
        away.map_or(0.0, |home| GOES_ON * home.strength)
    }

    /// What concerns all rows together; `window` is the one that the ask meets here.
    fn marks(&self, fleet: &Fleet, ask: &Ask, window: Option<u32>, leaves: bool) -> Marks {
        let (holding, upstream, now) = (self.holding, self.upstream, self.around.now);
        let window = window.or(holding.runner.trained_tokens);
        let rises = |start: &SlowStart| start.since(fleet.rules.slow_start, now).is_some();
        let opening = upstream.breaker.wants_trial(now).or(holding.breaker.wants_trial(now));
        Marks {
            too_small: !ask.fits(window),
            leaves,
            rises: rises(&upstream.slow_start) || rises(&holding.slow_start),
            trial_due: opening.filter(|_| holding.resident).map(|opening| opening.until),
        }
    }

    /// Health checks, failures and slow start in one.
    fn availability(&self, fleet: &Fleet, upstream: &Upstream) -> f64 {
        let (rules, now) = (&fleet.rules, self.around.now);
        let trust = upstream.breaker.trust(&rules.breaker, now) * self.holding.breaker.trust(&rules.breaker, now);
        let rising = upstream.slow_start.availability(rules.slow_start, now);
        let rising = rising.min(self.holding.slow_start.availability(rules.slow_start, now));
        let hearsay =
            upstream.others.doubt(upstream.answered_at) || self.holding.others.doubt(Some(self.holding.progress_at));
        let in_doubt = self.holding.overdue > 0 || !upstream.healthy || hearsay;
        trust * rising * if in_doubt { IN_DOUBT } else { 1.0 }
    }

    fn residency(&self) -> Residency {
        match (self.holding.resident || self.holding.loading_since.is_some(), self.holding.unloaded_at) {
            (true, _) => Residency::Resident,
            (false, Some(at)) => Residency::Unloaded(self.around.now.since(at)),
            (false, None) => Residency::OnDisk,
        }
    }

    /// Free memory by the latest reading; unknown once that is stale (L10).
    fn memory(&self, fleet: &Fleet, upstream: &Upstream) -> Option<Memory> {
        let total_bytes = upstream.spec.memory_bytes?;
        let fresh = upstream.read_at.is_some_and(|at| self.around.now.since(at) < fleet.rules.stale_after);
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
}
