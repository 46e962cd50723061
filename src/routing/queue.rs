//! Requests that wait here, since the nodes that are best for them have all the work they may be given.
//!
//! The queue knows who waits and in what order; whether somebody may go is `admission`'s to say. The
//! order is fair in three steps: classes by their weights, in a class tenants in turn, in a tenant its
//! sessions in turn; what one session asks goes as it came. Whoever waits keeps a place, so that a late
//! comer never pushes the others back without end (L11), and the queue is never longer than its limit (L8).

mod turns;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::ask::Priority;
use super::fleet::HoldingId;
use super::moment::Moment;
use super::select::Query;
use super::session;
use turns::Turns;

/// A request that waits; counts up, so that a lower one came earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

#[derive(Clone, Debug)]
pub struct Waiter {
    pub query: Arc<Query>,
    pub since: Moment,
    /// The best for it now; `None`: nobody can serve it at the moment.
    pub at: Option<HoldingId>,
    session: u64,
}

impl Waiter {
    fn flow(&self) -> Flow {
        Flow { class: self.query.ask.priority, tenant: self.query.ask.tenant, session: self.session }
    }
}

/// Whose request it is, for fairness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Flow {
    class: Priority,
    tenant: u64,
    session: u64,
}

/// Share of each class, by `Priority::index`.
pub type Weights = [f64; Priority::ALL.len()];

#[derive(Debug, Default)]
pub struct Queue {
    waiters: BTreeMap<WaiterId, Waiter>,
    next: u64,
    classes: Turns<Priority>,
    tenants: BTreeMap<Priority, Turns<u64>>,
    sessions: BTreeMap<(Priority, u64), Turns<u64>>,
    /// Whose turn it is to be looked at, by its request, and since when it has waited.
    looked_at: Option<(u64, Moment)>,
}

impl Queue {
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    pub fn len_of(&self, class: Priority) -> usize {
        self.waiters.values().filter(|waiter| waiter.query.ask.priority == class).count()
    }

    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// How long a request has waited, if it is the one that is looked at; one that has just come has not.
    pub fn waited(&self, request: u64, now: Moment) -> Duration {
        let since = self.looked_at.filter(|(looked_at, _)| *looked_at == request).map(|(_, since)| since);
        since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// How long the one that is looked at has waited.
    pub(super) fn waited_by_now(&self, now: Moment) -> Duration {
        self.looked_at.map_or(Duration::ZERO, |(_, since)| now.since(since))
    }

    pub(super) fn look_at(&mut self, waiter: Option<WaiterId>) {
        let waiter = waiter.and_then(|id| self.waiters.get(&id));
        self.looked_at = waiter.map(|waiter| (waiter.query.request, waiter.since));
    }

    pub fn get(&self, id: WaiterId) -> Option<&Waiter> {
        self.waiters.get(&id)
    }

    /// In order of arrival.
    pub fn waiters(&self) -> impl Iterator<Item = (WaiterId, &Waiter)> {
        self.waiters.iter().map(|(id, waiter)| (*id, waiter))
    }

    /// Puts a request at the end of its own line.
    pub(super) fn enter(
        &mut self,
        query: Arc<Query>,
        at: Option<HoldingId>,
        weights: Weights,
        now: Moment,
    ) -> WaiterId {
        let id = WaiterId(self.next);
        self.next += 1;
        let session = session::conversation(&query.ask).unwrap_or(query.request);
        let waiter = Waiter { query, since: now, at, session };
        let Flow { class, tenant, session } = waiter.flow();
        self.classes.join(class, weights[class.index()]);
        self.tenants.entry(class).or_default().join(tenant, 1.0);
        self.sessions.entry((class, tenant)).or_default().join(session, 1.0);
        self.waiters.insert(id, waiter);
        id
    }

    pub(super) fn place(&mut self, id: WaiterId, at: Option<HoldingId>) -> Option<HoldingId> {
        self.waiters.get_mut(&id).and_then(|waiter| std::mem::replace(&mut waiter.at, at))
    }

    /// Takes out one that was served: its lines have had a turn.
    pub(super) fn serve(&mut self, id: WaiterId) -> Option<Waiter> {
        self.take(id, Turns::serve, Turns::serve)
    }

    /// Takes out one that waits no longer, for whatever reason.
    pub(super) fn leave(&mut self, id: WaiterId) -> Option<Waiter> {
        self.take(id, Turns::leave, Turns::leave)
    }

    /// Everybody, the one whose turn it is first.
    pub fn order(&self) -> Vec<WaiterId> {
        let mut lines: BTreeMap<Flow, Vec<WaiterId>> = BTreeMap::new();
        for (id, waiter) in &self.waiters {
            lines.entry(waiter.flow()).or_default().push(*id);
        }
        let mut tenants: BTreeMap<(Priority, u64), Vec<(f64, WaiterId)>> = BTreeMap::new();
        for (Flow { class, tenant, session }, line) in lines {
            let turns = self.sessions.get(&(class, tenant)).map(|turns| turns.of(session).zip(line));
            tenants.entry((class, tenant)).or_default().extend(turns.into_iter().flatten());
        }
        let mut classes: BTreeMap<Priority, Vec<(f64, WaiterId)>> = BTreeMap::new();
        for ((class, tenant), line) in tenants {
            let turns = self.tenants.get(&class).map(|turns| turns.of(tenant).zip(sorted(line)));
            classes.entry(class).or_default().extend(turns.into_iter().flatten());
        }
        let all = classes.into_iter().flat_map(|(class, line)| self.classes.of(class).zip(sorted(line)));
        sorted(all.collect())
    }

    /// Turns are remembered only where somebody waits, and a little after: not more than twice the queue (L8).
    fn take(
        &mut self,
        id: WaiterId,
        of_class: fn(&mut Turns<Priority>, Priority),
        of_line: fn(&mut Turns<u64>, u64),
    ) -> Option<Waiter> {
        let gone = self.waiters.remove(&id)?;
        let Flow { class, tenant, session } = gone.flow();
        of_class(&mut self.classes, class);
        if let Some(turns) = self.tenants.get_mut(&class) {
            of_line(turns, tenant);
        }
        if let Some(turns) = self.sessions.get_mut(&(class, tenant)) {
            of_line(turns, session);
        }
        self.tenants.retain(|_, turns| !turns.is_idle());
        self.sessions.retain(|_, turns| !turns.is_idle());
        if self.waiters.is_empty() {
            self.classes = Turns::default();
        }
        Some(gone)
    }
}

/// By turn, and among equals by arrival.
fn sorted(mut line: Vec<(f64, WaiterId)>) -> Vec<WaiterId> {
    line.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    line.into_iter().map(|(_, id)| id).collect()
}

/// One look over the queue: who may try to go now, in order. Those of whose model no node has room keep
/// their places without a look, so a full fleet costs nothing.
pub struct Sweep {
    pub(super) order: VecDeque<WaiterId>,
    /// Where each one waited before.
    pub(super) before: BTreeMap<WaiterId, Option<HoldingId>>,
    /// Models of which no node has room for that class.
    pub(super) full: Vec<(String, Priority)>,
}

#[cfg(test)]
mod tests;
