//! The fleet behind its one lock.
//!
//! Deciding and booking must be one step, and Pingora calls our selection in the middle of it: the
//! picker takes the lock, `LoadBalancer::select_with` runs `FleetSelection` which takes it again on the
//! same thread, and the picker books before it lets go. Hence a re-entrant lock. No lock is ever held
//! across an await: nothing in here is async.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

use parking_lot::ReentrantMutex;
use tokio::sync::Notify;

use super::clock::Clock;
use super::movers::Movers;
use crate::routing::fleet::{Fleet, LeaseId, Outcome, Rules, UpstreamId};
use crate::routing::moment::Moment;
use crate::routing::select::{Decision, Query, Row, decide};

pub struct SharedFleet {
    /// How to reach the requests behind the leases; a lock of its own, taken within the fleet's or alone.
    pub movers: Movers,
    /// There is something to tell other replicas.
    pub news: Notify,
    clock: Clock,
    state: ReentrantMutex<RefCell<State>>,
    on_release: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

struct State {
    fleet: Fleet,
    /// Of the running critical section, where it is one that books.
    step: Option<Step>,
    /// What the selection of the running critical section found.
    decision: Option<Decision>,
}

/// What is decided and booked in one step: the query goes by here, since a key would have to be written and read
/// for each request, and all of it happens at one moment.
struct Step {
    query: Arc<Query>,
    at: Moment,
}

impl SharedFleet {
    pub fn new(rules: Rules) -> SharedFleet {
        let state = State { fleet: Fleet::new(rules), step: None, decision: None };
        SharedFleet {
            clock: Clock::start(),
            state: ReentrantMutex::new(RefCell::new(state)),
            on_release: OnceLock::new(),
            movers: Movers::default(),
            news: Notify::new(),
        }
    }

    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Looks at the fleet, or teaches it something.
    pub fn with<T>(&self, work: impl FnOnce(&mut Fleet, Moment) -> T) -> T {
        let state = self.state.lock();
        let mut state = state.borrow_mut();
        work(&mut state.fleet, self.clock.now())
    }

    /// Runs `work`, which decides `query` and books: the one that is admitted is all that `decide_step` returns.
    pub fn booking<T>(&self, query: &Arc<Query>, work: impl FnOnce() -> T) -> T {
        self.in_one_step(|| {
            self.state.lock().borrow_mut().step = Some(Step { query: query.clone(), at: self.clock.now() });
            let done = work();
            self.state.lock().borrow_mut().step = None;
            done
        })
    }

    /// Runs `work` with the lock held throughout; `with` and `decide` may be called from within.
    pub fn in_one_step<T>(&self, work: impl FnOnce() -> T) -> T {
        let _held = self.state.lock();
        work()
    }

    /// To be done after every booking that ends; the first one told is kept.
    pub fn on_release(&self, work: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_release.set(Box::new(work));
    }

    /// Ends a booking and does what is to be done then, in one step.
    pub fn end(&self, lease: LeaseId, outcome: Outcome) {
        self.movers.remove(lease);
        self.in_one_step(|| {
            self.with(|fleet, now| fleet.end(lease, outcome, now));
            if let Some(work) = self.on_release.get() {
                work();
            }
        });
    }

    /// Decides `query` and returns the upstreams in order.
    pub fn decide(&self, query: &Query) -> Vec<UpstreamId> {
        self.with(|fleet, now| decide(fleet, query, now).rows.iter().map(|row| row.upstream).collect())
    }

    /// Decides the query of the running step, keeps the decision for `take_decision`, and returns whom to book.
    pub fn decide_step(&self) -> Option<UpstreamId> {
        let state = self.state.lock();
        let mut state = state.borrow_mut();
        let State { fleet, step, decision } = &mut *state;
        let step = step.as_ref()?;
        let made = decision.insert(decide(fleet, &step.query, step.at));
        let admitted = |row: &&Row| made.admitted == Some(row.holding);
        made.rows.iter().find(admitted).map(|row| row.upstream)
    }

    /// The decision made in this critical section.
    pub fn take_decision(&self) -> Option<Decision> {
        self.state.lock().borrow_mut().decision.take()
    }

    /// Reads the decision made in this critical section, together with the fleet, at the moment of the step.
    pub fn with_decision<T>(&self, work: impl FnOnce(&mut Fleet, &Decision, Moment) -> T) -> Option<T> {
        let state = self.state.lock();
        let mut state = state.borrow_mut();
        let State { fleet, step, decision } = &mut *state;
        step.as_ref().zip(decision.as_ref()).map(|(step, decision)| work(fleet, decision, step.at))
    }
}
