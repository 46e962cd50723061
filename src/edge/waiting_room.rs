//! Where requests wait for a node: the core's queue, with somebody to wake.
//!
//! Looking over the queue, choosing and booking are one step under the fleet's lock, and every booking
//! that ends looks over the queue in the same breath: no wake-up can be lost. Time and health open doors,
//! too, so whoever waits also looks again now and then. Dropping a `Ticket` leaves the queue.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pingora_load_balancing::LoadBalancer;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::pick::{Picked, Placing, pick};
use super::selection::FleetSelection;
use super::shared_fleet::SharedFleet;
use crate::routing::fleet::HoldingId;
use crate::routing::moment::Moment;
use crate::routing::queue::WaiterId;
use crate::routing::select::{Decision, Query};

pub struct WaitingRoom {
    fleet: Arc<SharedFleet>,
    balancer: Arc<LoadBalancer<FleetSelection>>,
    /// Who is to be told; as many as wait in the core's queue, whose limit is theirs.
    bells: Mutex<HashMap<WaiterId, Bell>>,
    swept_at: Mutex<Moment>,
    /// Read and written under the fleet's lock only.
    is_sweeping: AtomicBool,
    must_sweep_again: AtomicBool,
}

/// Booked, or why nobody will ever serve it.
type News = Result<Picked, Decision>;
type Bell = oneshot::Sender<News>;

/// What became of a request that asked for a node.
pub enum Entered {
    Booked(Box<Picked>),
    Waiting(Ticket),
    /// No upstream can serve it.
    Nobody(Decision),
    QueueFull {
        retry_after_s: u64,
    },
}

/// Why a request that waited got no node.
pub enum Unserved {
    Nobody(Decision),
    TooLong { retry_after_s: u64 },
}

/// How often those who wait look for themselves.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Told to clients whatever the queue says: a longer forecast is worth nothing.
const RETRY_AFTER_MAX_S: f64 = 600.0;

impl WaitingRoom {
    /// Opens a room that looks over its queue whenever a booking of `fleet` ends.
    pub fn open(fleet: &Arc<SharedFleet>, balancer: &Arc<LoadBalancer<FleetSelection>>) -> Arc<WaitingRoom> {
        let room = Arc::new(WaitingRoom {
            fleet: fleet.clone(),
            balancer: balancer.clone(),
            bells: Mutex::default(),
            swept_at: Mutex::default(),
            is_sweeping: AtomicBool::new(false),
            must_sweep_again: AtomicBool::new(false),
        });
        let weak = Arc::downgrade(&room);
        fleet.on_release(move || {
            if let Some(room) = weak.upgrade() {
                room.sweep();
            }
        });
        room
    }

    /// Books a node for the request, or lets it wait for one, for `at_most`.
    pub fn enter(self: &Arc<Self>, query: &Arc<Query>, at_most: Duration) -> Entered {
        self.fleet.in_one_step(|| match pick(&self.balancer, &self.fleet, query) {
            Placing::Booked(picked) => Entered::Booked(picked),
            Placing::Nobody(decision) if decision.is_worth_waiting(self.fleet.now() + at_most) => {
                self.line_up(query, None, decision.usable_at)
            }
            Placing::Nobody(decision) => Entered::Nobody(decision),
            Placing::Full(decision) => self.line_up(query, decision.rows.first().map(|row| row.holding), None),
        })
    }

    /// Gives everybody who waits and for whom there is room a node, in the order of their turns.
    pub fn sweep(&self) {
        if self.bells.lock().is_empty() {
            return;
        }
        self.fleet.in_one_step(|| {
            // A booking that is handed to somebody who has just left ends here, and calls again.
            if self.is_sweeping.swap(true, Ordering::Relaxed) {
                self.must_sweep_again.store(true, Ordering::Relaxed);
                return;
            }
            let _over = Over(&self.is_sweeping);
            self.sweep_once();
            while self.must_sweep_again.swap(false, Ordering::Relaxed) {
                self.sweep_once();
            }
        });
    }

    fn sweep_once(&self) {
        *self.swept_at.lock() = self.fleet.now();
        let mut sweep = self.fleet.with(|fleet, _| fleet.sweep_queue());
        while let Some((id, query)) = self.fleet.with(|fleet, _| sweep.next(fleet)) {
            match pick(&self.balancer, &self.fleet, &query) {
                Placing::Booked(picked) => {
                    self.fleet.with(|fleet, _| fleet.bound(id));
                    self.tell(id, Ok(*picked));
                }
                Placing::Full(decision) => {
                    let best = decision.rows.first().map(|row| row.holding);
                    self.fleet.with(|fleet, _| fleet.place(id, best));
                }
                Placing::Nobody(decision) if decision.is_worth_waiting(Moment::MAX) => {
                    self.fleet.with(|fleet, _| fleet.place(id, None));
                }
                Placing::Nobody(decision) => {
                    self.fleet.with(|fleet, _| fleet.stop_waiting(id));
                    self.tell(id, Err(decision));
                }
            }
        }
    }

    fn tell(&self, id: WaiterId, news: News) {
        let bell = self.bells.lock().remove(&id);
        if let Some(bell) = bell {
            // Whoever has left does not take it, and a booking is given back by its drop.
            drop(bell.send(news));
        }
    }

    fn line_up(self: &Arc<Self>, query: &Arc<Query>, best: Option<HoldingId>, usable_at: Option<Moment>) -> Entered {
        let entered = self.fleet.with(|fleet, now| fleet.wait(query.clone(), best, now));
        let Ok(id) = entered else {
            // Where all want to be left alone, not before the first may be asked.
            let left = usable_at.map_or(Duration::ZERO, |at| at.since(self.fleet.now()));
            let retry_after_s = self.retry_after_s(best).max(left.as_secs_f64().ceil() as u64);
            return Entered::QueueFull { retry_after_s };
        };
        let (bell, news) = oneshot::channel();
        self.bells.lock().insert(id, bell);
        let position = self.fleet.with(|fleet, _| {
            let order = fleet.queue.order();
            order.iter().position(|other| *other == id).map_or(0, |index| index + 1)
        });
        Entered::Waiting(Ticket { id, best, position, news, room: self.clone() })
    }

    /// When trying again may help: by the speeds that were seen, else as long as others have waited.
    fn retry_after_s(&self, best: Option<HoldingId>) -> u64 {
        let seconds = self.fleet.with(|fleet, now| {
            let oldest = fleet.queue.waiters().next().map(|(_, waiter)| now.since(waiter.since).as_secs_f64());
            best.and_then(|best| fleet.wait_s(best)).or(oldest)
        });
        seconds.unwrap_or(0.0).ceil().clamp(1.0, RETRY_AFTER_MAX_S) as u64
    }

    fn look_again(&self) {
        if self.fleet.now().since(*self.swept_at.lock()) >= LOOK_AGAIN / 2 {
            self.sweep();
        }
    }

    fn leave(&self, id: WaiterId) {
        self.bells.lock().remove(&id);
        self.fleet.with(|fleet, _| fleet.stop_waiting(id));
    }
}

/// Ends a sweep, however it ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// A place in the queue.
pub struct Ticket {
    id: WaiterId,
    /// The best node when it lined up.
    best: Option<HoldingId>,
    /// How many turns there were until its own when it lined up.
    pub position: usize,
    news: oneshot::Receiver<News>,
    room: Arc<WaitingRoom>,
}

impl Ticket {
    /// Waits for a node, for `at_most`.
    pub async fn served(mut self, at_most: Duration) -> Result<Picked, Unserved> {
        let deadline = Instant::now() + at_most;
        loop {
            let look = deadline.min(Instant::now() + LOOK_AGAIN);
            match timeout_at(look, &mut self.news).await {
                Ok(Ok(Ok(picked))) => return Ok(picked),
                Ok(Ok(Err(decision))) => return Err(Unserved::Nobody(decision)),
                Ok(Err(_)) => return Err(Unserved::Nobody(Decision::default())),
                Err(_) if look >= deadline => {
                    return Err(Unserved::TooLong { retry_after_s: self.room.retry_after_s(self.best) });
                }
                Err(_) => self.room.look_again(),
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.room.leave(self.id);
    }
}
