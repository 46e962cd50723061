//! When one node would send the first token of an ask: the wait, the load, the prefill.
//!
//! The wait is for the prompts ahead, and where all slots are taken, until one comes free. It is worked out
//! from this node's own speeds, else from what is typical of the model in the fleet.

use std::cell::OnceCell;

use super::Offer;
use super::eviction::{Eviction, eviction, leaves};
use super::slot_ends::SlotEnds;
use crate::routing::ask::Ask;
use crate::routing::candidate::FirstToken;
use crate::routing::estimate::{Cost, Work, median};
use crate::routing::fleet::Fleet;
use crate::routing::line::Line;
use crate::routing::moment::Moment;
use crate::routing::upstream::{Holding, Slots, Upstream};

/// The middle speeds of a model over its holders; `None`: nobody has shown any.
pub struct Typical<'a> {
    pub cost: Option<Cost>,
    pub load_s: Option<f64>,
    /// What is only wanted where slots are taken is worked out when it is.
    answer_s: OnceCell<Option<f64>>,
    read_s: OnceCell<Option<f64>>,
    holders: &'a [Offer<'a>],
    max_output_tokens: Option<u32>,
}

impl<'a> Typical<'a> {
    pub fn of(holders: &'a [Offer<'a>], ask: &Ask) -> Typical<'a> {
        let speeds = || holders.iter().map(|offer| &offer.model.speed);
        let whole = Work::of(ask.prompt_tokens, 0);
        let mut costs: Vec<(f64, Cost)> = Vec::with_capacity(holders.len());
        costs.extend(speeds().filter_map(|speed| speed.prefill()).map(|cost| (cost.seconds(whole), cost)));
        let middle = costs.len().saturating_sub(1) / 2;
        let cost = (!costs.is_empty()).then(|| costs.select_nth_unstable_by(middle, |a, b| a.0.total_cmp(&b.0)).1.1);
        Typical {
            cost,
            load_s: median(speeds().filter_map(|speed| speed.load_s())),
            answer_s: OnceCell::new(),
            read_s: OnceCell::new(),
            holders,
            max_output_tokens: ask.max_output_tokens,
        }
    }

    pub fn is_known(&self) -> bool {
        self.cost.is_some() || self.load_s.is_some() || self.answer_s().is_some()
    }

    /// With a guess where nothing is known, for policies that have nothing else to go by.
    pub fn or_assumed(self) -> Typical<'a> {
        Typical { cost: self.cost.or(Some(Cost::ASSUMED)), load_s: self.load_s.or(Some(LOAD_S)), ..self }
    }

    fn answer_s(&self) -> Option<f64> {
        let speeds = self.holders.iter().map(|offer| &offer.model.speed);
        *self.answer_s.get_or_init(|| median(speeds.filter_map(|speed| speed.answer_s(self.max_output_tokens))))
    }

    fn read_s(&self) -> Option<f64> {
        let speeds = self.holders.iter().map(|offer| &offer.model.speed);
        *self.read_s.get_or_init(|| median(speeds.filter_map(|speed| speed.read_s())))
    }
}

/// Taken for a load while none was seen.
const LOAD_S: f64 = 10.0;

/// So many requests of others, and so many that wait, are followed one by one to the slot that they get; the rest
/// counts as slots times its usual length, so that no count that is told from outside takes long.
const COUNTED_MAX: u32 = 1024;

/// One node, as one ask would find it.
pub struct Forecast<'a> {
    fleet: &'a Fleet,
    holding: &'a Holding,
    upstream: &'a Upstream,
    slots: u32,
    foreign: u32,
    cost: Cost,
    load_s: f64,
    typical: &'a Typical<'a>,
    /// The model will have left by then, although it is in memory now.
    leaves: bool,
    eviction: Eviction,
    now: Moment,
}

impl<'a> Forecast<'a> {
    pub fn new(
        fleet: &'a Fleet,
        (holding, upstream): (&'a Holding, &'a Upstream),
        slots: Slots,
        foreign: u32,
        typical: &'a Typical<'a>,
        now: Moment,
    ) -> Forecast<'a> {
        let speed = &holding.speed;
        let load_s = speed.load_s().or(typical.load_s).unwrap_or(0.0);
        let leaves = leaves(fleet, holding, upstream);
        let cold = (!holding.resident && holding.loading_since.is_none()) || leaves;
        let eviction = if cold { eviction(fleet, holding, upstream, load_s, now) } else { Eviction::default() };
        Forecast {
            fleet,
            holding,
            upstream,
            slots: slots.count,
            foreign,
            cost: speed.prefill().or(typical.cost).unwrap_or_default(),
            load_s,
            typical,
            leaves,
            eviction,
            now,
        }
    }

    /// The times to the first token of a prompt of which so much is found there.
    pub fn first_token(&self, prompt_tokens: u32, found: u32, reloads: bool) -> FirstToken {
        FirstToken {
            wait_s: self.wait_s(),
            load_s: self.load_left_s(reloads),
            prefill_s: self.prefill_s(Work::of(prompt_tokens, found)),
        }
    }

    /// What leaves for the model, if it has to be loaded.
    pub fn eviction(&self) -> Eviction {
        self.eviction
    }

    pub fn leaves(&self) -> bool {
        self.leaves
    }

    fn load_left_s(&self, reloads: bool) -> f64 {
        match self.holding.loading_since {
            _ if self.holding.resident && !reloads && !self.leaves => 0.0,
            Some(since) => match self.holding.loaded_at {
                Some(at) => at.since(self.now).as_secs_f64(),
                None => (self.load_s - self.now.since(since).as_secs_f64()).max(0.0),
            },
            None => self.other_loads_s() + self.eviction.drain_s + self.load_s,
        }
    }

    /// Engines load one model at a time, and each is told when it will be there with those before it.
    fn other_loads_s(&self) -> f64 {
        if self.upstream.in_flight <= self.holding.running {
            return 0.0;
        }
        let loading = self.fleet.holdings_of(self.holding.upstream).filter(|other| is_loading(other));
        let ends = loading.filter_map(|other| other.loaded_at).map(|at| at.since(self.now).as_secs_f64());
        ends.fold(0.0, f64::max)
    }

    /// What computing so much takes here.
    pub fn prefill_s(&self, work: Work) -> f64 {
        self.cost.seconds(work)
    }

    /// Seconds until a request that came now would be computed.
    pub fn wait_s(&self) -> f64 {
        let slots = self.slots;
        let foreign = self.foreign.saturating_add(self.holding.others.running);
        let waiting = self.holding.waiting.saturating_add(self.holding.others.waiting);
        let taken = self.holding.running.saturating_add(foreign).saturating_add(waiting);
        let prompts_s = self.line_s(&self.holding.line) + self.other_models_s();
        if taken < slots {
            return prompts_s;
        }
        prompts_s.max(self.slot_s(slots as usize, foreign))
    }

    fn line_s(&self, line: &Line) -> f64 {
        // While the model is loaded nothing is computed.
        let loads = !self.holding.resident && self.holding.loading_since.is_some();
        line.seconds(&self.cost, if loads { line.began_at() } else { self.now })
    }

    /// Prompts for other models, which the same node computes.
    fn other_models_s(&self) -> f64 {
        if self.upstream.in_flight <= self.holding.running {
            return 0.0;
        }
        let others = self.fleet.holdings_of(self.holding.upstream).filter(|other| other.name != self.holding.name);
        others.map(|other| other.line.seconds(&other.speed.prefill().unwrap_or(self.cost), self.now)).sum()
    }

    /// When a slot comes free for it, after all who came before.
    fn slot_s(&self, slots: usize, foreign: u32) -> f64 {
        let speed = &self.holding.speed;
        let answer_s = speed.answer_s(None).or_else(|| self.typical.answer_s()).unwrap_or(0.0);
        let mut computed_s = 0.0;
        // Nobody knows how far other people's are.
        let counted = foreign.min(COUNTED_MAX);
        let mut ends = SlotEnds::new(slots, self.holding.running as usize + counted as usize);
        for (_, since) in &self.holding.answers {
            ends.take_until(ends.next_s() + left_s(answer_s, *since, self.now));
        }
        for _ in 0..counted {
            ends.take_until(ends.next_s() + answer_s / 2.0);
        }
        for work in self.holding.line.works() {
            let work_s = self.cost.seconds(work);
            computed_s += work_s;
            ends.take_until((ends.next_s() + work_s).max(computed_s) + answer_s);
        }
        let waiting = self.holding.waiting.saturating_add(self.holding.others.waiting);
        let read_s = if waiting > 0 { speed.read_s().or_else(|| self.typical.read_s()).unwrap_or(0.0) } else { 0.0 };
        for _ in 0..waiting.min(COUNTED_MAX) {
            ends.take_until(ends.next_s() + read_s + answer_s);
        }
        let beyond = f64::from(foreign - counted) / 2.0 + f64::from(waiting.saturating_sub(COUNTED_MAX));
        ends.next_s() + beyond * answer_s / slots as f64
    }
}

pub fn is_loading(holding: &Holding) -> bool {
    holding.loading_since.is_some() && !holding.resident
}

/// When the last that a model answers now will be done.
pub fn last_end_s(holding: &Holding, now: Moment) -> f64 {
    let answer_s = holding.speed.answer_s(None).unwrap_or(0.0);
    let ends = holding.answers.iter().map(|(_, since)| left_s(answer_s, *since, now));
    let unanswered = if holding.line.is_empty() {
        0.0
    } else {
        answer_s + holding.line.seconds(&holding.speed.prefill().unwrap_or_default(), now)
    };
    ends.fold(unanswered, f64::max)
}

/// What is left of something that takes so long; what takes longer than that may take as long again.
fn left_s(whole_s: f64, since: Moment, now: Moment) -> f64 {
    (whole_s - now.since(since).as_secs_f64()).abs().min(whole_s)
}
