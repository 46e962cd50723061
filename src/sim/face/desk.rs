//! The engine in real time: one clock, one task that lets the engine advance, a ticket for each job.
//!
//! A ticket's events arrive in order; its drop cancels the job. So whatever becomes of a connection,
//! its slot is free at once, and no job can be left behind.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::routing::moment::Moment;
use crate::sim::engine::{Demand, Engine, EngineParams, Job, JobId, Refused, Resident, Usage, What};

/// Events of a job besides its tokens: its start and its end.
const EVENTS_BESIDES_TOKENS: usize = 2;

pub struct Desk {
    origin: Instant,
    books: Mutex<Books>,
    changed: Notify,
}

struct Books {
    engine: Engine,
    told: HashMap<JobId, mpsc::Sender<What>>,
}

/// How busy the engine is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    pub running: usize,
    pub waiting: usize,
}

/// A running job.
pub struct Ticket {
    desk: Arc<Desk>,
    id: JobId,
    events: mpsc::Receiver<What>,
}

impl Desk {
    pub fn new(params: EngineParams) -> Arc<Desk> {
        Arc::new(Desk {
            origin: Instant::now(),
            books: Mutex::new(Books { engine: Engine::new(params), told: HashMap::new() }),
            changed: Notify::new(),
        })
    }

    /// Lets the engine advance, for ever.
    pub async fn run(self: Arc<Self>) {
        loop {
            let next = self.tell_events();
            let due = async {
                match next {
                    Some(at) => tokio::time::sleep_until(self.origin + Duration::from_micros(at.0)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = due => {}
                _ = self.changed.notified() => {}
            }
        }
    }

    /// Hands a job in; also says how busy the engine was just before.
    pub fn submit(self: &Arc<Self>, job: Job) -> (Census, Result<Ticket, Refused>) {
        // All events of a job fit, so that telling never waits for a slow client.
        let capacity = job.output_tokens as usize + EVENTS_BESIDES_TOKENS;
        let mut books = self.books.lock();
        let census = books.census();
        let id = match books.engine.submit(self.now(), job) {
            Ok(id) => id,
            Err(refused) => return (census, Err(refused)),
        };
        let (teller, events) = mpsc::channel(capacity);
        books.told.insert(id, teller);
        drop(books);
        self.changed.notify_one();
        let desk = self.clone();
        (census, Ok(Ticket { desk, id, events }))
    }

    pub fn unload(&self, model: &str) {
        self.books.lock().engine.unload(self.now(), model);
        self.changed.notify_one();
    }

    pub fn census(&self) -> Census {
        self.books.lock().census()
    }

    pub fn demand(&self) -> Vec<Demand> {
        self.books.lock().engine.demand()
    }

    pub fn loads(&self) -> u64 {
        self.books.lock().engine.loads()
    }

    /// The models in memory, and for how much longer.
    pub fn resident(&self) -> Vec<(Resident, Option<Duration>)> {
        let now = self.now();
        let resident = self.books.lock().engine.resident();
        let left = |model: Resident| {
            let expires = model.expires.map(|at| at.since(now));
            (model, expires)
        };
        resident.into_iter().map(left).collect()
    }

    fn now(&self) -> Moment {
        Moment(u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    fn tell_events(&self) -> Option<Moment> {
        let mut books = self.books.lock();
        for event in books.engine.advance(self.now()) {
            let ended = matches!(event.what, What::Done(_));
            if let Some(teller) = books.told.get(&event.job) {
                // Fails only when the ticket is being dropped, which cancels the job anyway.
                let _ = teller.try_send(event.what);
            }
            if ended {
                books.told.remove(&event.job);
            }
        }
        books.engine.next_event()
    }

    fn cancel(&self, id: JobId) -> Option<Usage> {
        let mut books = self.books.lock();
        books.told.remove(&id);
        let usage = books.engine.cancel(self.now(), id);
        drop(books);
        if usage.is_some() {
            self.changed.notify_one();
        }
        usage
    }
}

impl Books {
    fn census(&self) -> Census {
        Census { running: self.engine.running(), waiting: self.engine.waiting() }
    }
}

impl Ticket {
    /// What happens next; `None` after the end.
    pub async fn next(&mut self) -> Option<What> {
        self.events.recv().await
    }

    /// Ends the job; what it took until now, unless it had ended by itself.
    pub fn cancel(&self) -> Option<Usage> {
        self.desk.cancel(self.id)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.desk.cancel(self.id);
    }
}
