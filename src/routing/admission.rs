//! How much work a node is given, and what becomes of requests beyond that.
//!
//! Engines queue blindly: what has been handed over cannot be taken back when a better node comes free.
//! So a node whose slots are known gets these filled, and `engine_queue` of them waiting; whatever comes
//! beyond waits here. It counts in the depth of the node that is best for it, for those that come after it,
//! and is bound late, to the first node that is right for it. Slots that are only assumed limit nobody: an engine set to eight must
//! not be served one by one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::ask::Priority;
use super::elsewhere::Others;
use super::fleet::{Fleet, HoldingId, UpstreamId};
use super::laws;
use super::moment::Moment;
use super::policy::{Policy, is_tie};
use super::queue::{Sweep, Waiter, WaiterId, Weights};
use super::select::{Query, Row};
use super::upstream::{Holding, Slots, SlotsSource};

/// What may be configured about admission.
#[derive(Clone, Debug, PartialEq)]
pub struct Admission {
    /// How many requests may wait at an engine, in units of its slots.
    pub engine_queue: f64,
    /// Requests that may wait here.
    pub max_queue: usize,
    pub weights: Weights,
    /// Share of a node's slots, and of the queue, that batch may not take.
    pub reserve_for_interactive: f64,
}

impl Default for Admission {
    fn default() -> Admission {
        Admission { engine_queue: 1.0, max_queue: 512, weights: [3.0, 1.0], reserve_for_interactive: 0.0 }
    }
}

/// Found with conversations that are more than there are slots: less and they displace each other in turn, more
/// and slots stay empty for those who think.
const HELD: f64 = 3.5;

/// Mean depth from which on nodes have enough to do.
const BUSY: f64 = 0.4;

/// What a prompt's further seconds on another node weigh against the wait that it spares.
const SPARED: f64 = 4.0;

/// A wait that is this much longer is not worth a conversation's move.
const SLACK_S: f64 = 1.0;

/// The queue has as many in it as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

impl Fleet {
    /// Whether a model on an upstream takes one more request of that class now.
    pub fn has_room(&self, id: HoldingId, class: Priority) -> bool {
        let holding = self.holding(id);
        self.admits(holding, self.upstreams[holding.upstream].slots(holding), class)
    }

    /// The same of what was looked up before.
    pub(super) fn admits(&self, holding: &Holding, slots: Slots, class: Priority) -> bool {
        if !matches!(slots.source, SlotsSource::Configured | SlotsSource::Reported) {
            return true;
        }
        let (slots, rules) = (f64::from(slots.count), &self.rules.admission);
        // The cast floors, at less than a call of the library's `floor` costs.
        let at_most = |share: f64| f64::from((slots * share) as u32).max(1.0);
        let most = at_most(1.0 + rules.engine_queue);
        let in_all = match holding.others {
            Others { replicas: 0, .. } => f64::from(holding.running) < most,
            others => self.is_in_its_share(holding, others, most),
        };
        // Engines serve in order: batch that waits there would have its slot before whoever is interactive
        // and comes next. One may, so that there is always some on its way.
        let batch_fits = || {
            f64::from(holding.batch_running) < at_most(1.0 - rules.reserve_for_interactive)
                && f64::from(holding.running) < slots
        };
        let unreserved = class == Priority::Interactive || rules.reserve_for_interactive <= 0.0;
        in_all && (unreserved || holding.batch_running == 0 || batch_fits())
    }

    /// Whether this replica may give a node one more where others use it, too. Each has its share for itself, so that
    /// none starves; what is left of the whole is everybody's unless somebody waits for their share.
    fn is_in_its_share(&self, holding: &Holding, others: Others, most: f64) -> bool {
        let share = (most / f64::from(others.replicas + 1)).ceil();
        let all = f64::from(holding.running.saturating_add(others.running));
        f64::from(holding.running) < share || others.waiting == 0 && all < most
    }

    /// Lets a request wait, counted where `at` says.
    pub fn wait(&mut self, query: Arc<Query>, at: Option<HoldingId>, now: Moment) -> Result<WaiterId, QueueFull> {
        let Admission { max_queue, reserve_for_interactive, .. } = self.rules.admission;
        // The cast floors.
        let for_batch = (max_queue as f64 * (1.0 - reserve_for_interactive)) as usize;
        let batch_fits = || self.queue.len_of(Priority::Batch) < for_batch.max(1);
        if self.queue.len() >= max_queue || query.ask.priority == Priority::Batch && !batch_fits() {
            return Err(QueueFull);
        }
        let class = query.ask.priority;
        let id = self.queue.enter(query, at, self.rules.admission.weights, now);
        self.count_waiting(at, class, 1);
        laws::check(self);
        Ok(id)
    }

    /// A request waits no longer: its client left, or it has waited long enough.
    pub fn stop_waiting(&mut self, id: WaiterId) {
        let gone = self.queue.leave(id);
        self.no_longer_waits(gone);
        laws::check(self);
    }

    /// Begins a look over the queue; `Sweep::next` gives those who may try to go, and each is answered with
    /// `bound` or `place`. Each sees in the depths only those whose turn comes before its own.
    pub fn sweep_queue(&mut self) -> Sweep {
        let order = self.queue.order();
        let before: BTreeMap<_, _> = order.iter().map(|id| (*id, self.put(*id, None))).collect();
        Sweep { order: order.into(), before, full: Vec::new() }
    }

    /// A waiting request was booked.
    pub fn bound(&mut self, id: WaiterId) {
        let served = self.queue.serve(id);
        self.no_longer_waits(served);
    }

    /// A waiting request goes on waiting, with `at` as its best.
    pub fn place(&mut self, id: WaiterId, at: Option<HoldingId>) {
        let at = at.filter(|at| self.upstreams.get(self.holding(*at).upstream).is_some());
        self.put(id, at);
    }

    /// Whoever waits for an upstream that leaves waits for anybody.
    pub(super) fn stop_waiting_for(&mut self, upstream: UpstreamId) {
        let here = |at: Option<HoldingId>| at.is_some_and(|at| self.holding(at).upstream == upstream);
        let waiters = self.queue.waiters().filter(|(_, waiter)| here(waiter.at));
        let waiters: Vec<WaiterId> = waiters.map(|(id, _)| id).collect();
        waiters.into_iter().for_each(|id| self.place(id, None));
    }

    /// Seconds until a request for that model there would have its turn, as far as speeds are known;
    /// nothing is known of an upstream that has gone.
    pub fn wait_s(&self, id: HoldingId) -> Option<f64> {
        let holding = self.holding(id);
        let slots = self.upstreams.get(holding.upstream)?.slots(holding).count;
        let ahead = (holding.running + holding.waiting + 1).saturating_sub(slots);
        holding.speed.service_s().map(|service_s| f64::from(ahead) * service_s / f64::from(slots))
    }

    /// Of those that wait here for a model there, whom a request of that class finds before it. While a share
    /// is kept from batch, batch waits for the rest of it, and who is interactive waits behind none of it.
    pub(super) fn waiting_before(&self, holding: &Holding, class: Priority) -> u32 {
        let kept = self.rules.admission.reserve_for_interactive > 0.0;
        let others = if kept && class == Priority::Interactive { holding.batch_waiting } else { 0 };
        holding.waiting.saturating_sub(others)
    }

    /// Lets a waiting request wait elsewhere; tells where it did before.
    fn put(&mut self, id: WaiterId, at: Option<HoldingId>) -> Option<HoldingId> {
        let class = self.queue.get(id)?.query.ask.priority;
        let before = self.queue.place(id, at);
        self.count_waiting(before, class, -1);
        self.count_waiting(at, class, 1);
        before
    }

    fn no_longer_waits(&mut self, gone: Option<Waiter>) {
        if let Some(waiter) = gone {
            self.count_waiting(waiter.at, waiter.query.ask.priority, -1);
        }
    }

    fn count_waiting(&mut self, at: Option<HoldingId>, class: Priority, change: i32) {
        if let Some(holding) = at.and_then(|at| self.holdings.get_mut(at.0 as usize)) {
            holding.waiting = holding.waiting.saturating_add_signed(change);
            if class == Priority::Batch {
                holding.batch_waiting = holding.batch_waiting.saturating_add_signed(change);
            }
        }
    }
}

impl Sweep {
    /// The next one that may try to go. The rest stay where they were.
    pub fn next(&mut self, fleet: &mut Fleet) -> Option<(WaiterId, Arc<Query>)> {
        while let Some(id) = self.order.pop_front() {
            let Some(waiter) = fleet.queue.get(id) else { continue };
            let query = waiter.query.clone();
            let (model, class) = (&query.ask.model, query.ask.priority);
            let is_full = |(full, of): &(String, Priority)| full == model && *of == class;
            if !query.ask.endpoint.runs_model() || !self.full.iter().any(is_full) {
                // What runs no model needs no room.
                if !query.ask.endpoint.runs_model() || !fleet.is_full_for(&query.ask) {
                    fleet.queue.look_at(Some(id));
                    return Some((id, query));
                }
                self.full.push((model.clone(), class));
            }
            fleet.place(id, self.before.get(&id).copied().flatten());
        }
        fleet.queue.look_at(None);
        None
    }
}

/// Which of the ranked rows is to be booked now; `None`: the request waits for the first.
///
/// By `fleet` the best one is waited for, here or at its engine, since the score has weighed the wait; but never for
/// longer than another node that has room and the model in memory would take, where both times can be told: depth
/// counts requests, and says little of the wait where slots are only assumed or prompts are long. By
/// `expected_ttft` the score is that time and what it costs others: the best is waited for as long as it is
/// the best, or as good as. Under the other policies, which do not look at the wait, the first with room is taken.
pub(super) fn admit(policy: Policy, rows: &[Row], waited: Duration) -> Option<HoldingId> {
    let best = rows.first()?;
    let chosen = match policy {
        Policy::Fleet if best.has_room => {
            Some(instead(best, rows).unwrap_or(best)).filter(|best| !is_held(best, rows, waited))
        }
        Policy::ExpectedTtft => {
            rows.iter().find(|row| takes(policy, row, best)).filter(|row| !is_held(row, rows, waited))
        }
        _ => rows.iter().find(|row| takes(policy, row, best)),
    };
    chosen.map(|row| row.holding)
}

/// Whether `admit` may come to another end if those after the first `ranked` are in order, too.
pub(super) fn looks_beyond(policy: Policy, rows: &[Row], ranked: usize) -> bool {
    let (Some(best), Some((head, tail))) = (rows.first(), rows.split_at_checked(ranked)) else { return false };
    let taken = |row: &Row| takes(policy, row, best);
    match policy {
        Policy::Fleet if best.has_room => instead(best, rows).is_some(),
        _ => !head.iter().any(taken) && tail.iter().any(taken),
    }
}

/// Whether the first such row in order is taken.
fn takes(policy: Policy, row: &Row, best: &Row) -> bool {
    row.has_room
        && match policy {
            Policy::ExpectedTtft => is_tie(row.score, best.score),
            Policy::Fleet => row.is_resident && is_sooner(row, best),
            _ => true,
        }
}

/// Whether a request is kept here a while rather than sent where it would displace a conversation that is likely
/// to go on: until it has waited `HELD` times as long as that one would lose by it. By then one of them may
/// have ended, or gone on. Only where the nodes have enough to do; where they are idle nobody waits.
fn is_held(row: &Row, rows: &[Row], waited: Duration) -> bool {
    let depth = rows.iter().map(|row| row.depth).sum::<f64>() / rows.len().max(1) as f64;
    depth >= BUSY && HELD * row.displaced_s > waited.as_secs_f64()
}

/// The node that spares a request the wait for its best one, although it has to compute more of the prompt there:
/// such work counts `SPARED` times, since others wait for it too. `None`: its best is right.
fn instead<'a>(best: &Row, rows: &'a [Row]) -> Option<&'a Row> {
    let first = best.first_token?;
    let lead_s = |row: &Row| {
        let there = row.first_token?;
        let more_s = (there.prefill_s - first.prefill_s).max(0.0);
        Some(first.wait_s + first.load_s - there.wait_s - there.load_s - SPARED * more_s)
    };
    let ready = rows.iter().filter(|row| row.has_room && row.is_ready);
    let leads = ready.filter_map(|row| Some((lead_s(row)?, row)));
    leads.filter(|(lead_s, _)| *lead_s > SLACK_S).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, row)| row)
}

fn is_sooner(row: &Row, than: &Row) -> bool {
    row.first_token.zip(than.first_token).is_some_and(|(here, there)| here.total_s() < there.total_s())
}

#[cfg(test)]
mod tests;
