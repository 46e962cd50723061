//! Who is in, and who of them would not be missed.
//!
//! A connection pauses while it has no request that could be served: before its first, between two, and while
//! one is still being sent. Whoever pauses for a while can be sent away; whoever is served never is. Who was served before
//! counts as one that came later, so that those who only hold a place go first.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::IDLE_MAX;

/// Sent away together: looking for them costs a look at everybody.
const SENT_AWAY_AT_ONCE: usize = 64;

/// Nobody is sent away sooner: so long a request takes to come in while all are busy.
const PAUSE_MIN: Duration = Duration::from_millis(500);

#[derive(Default)]
pub struct Guests {
    all: Mutex<Register>,
    /// Were sent away and have not left yet.
    leaving: AtomicUsize,
}

#[derive(Default)]
struct Register {
    last: u64,
    guests: HashMap<u64, Arc<Stand>>,
}

/// Where a connection stands.
#[derive(Default)]
struct Stand {
    pause: Mutex<Option<Pause>>,
    /// Of its requests, with HTTP/2, those that are served.
    served: AtomicUsize,
    sent_away: AtomicBool,
    told: Notify,
}

#[derive(Clone, Copy)]
struct Pause {
    /// When the head that is being read must be there; `None` where other limits hold.
    due: Option<Instant>,
    began: Instant,
    /// Was served before, or has sent a head at least.
    is_known: bool,
}

impl Pause {
    fn new(due: Option<Instant>, is_known: bool) -> Option<Pause> {
        Some(Pause { due, began: Instant::now(), is_known })
    }

    /// The lowest is sent away first.
    fn rank(&self) -> Instant {
        self.began + if self.is_known { IDLE_MAX } else { Duration::ZERO }
    }
}

impl Guests {
    /// Lets one in, who has until `due` for a first head.
    pub fn welcome(self: &Arc<Guests>, due: Instant) -> Guest {
        let stand = Arc::new(Stand::default());
        *stand.pause.lock() = Pause::new(Some(due), false);
        let mut register = self.all.lock();
        register.last += 1;
        let id = register.last;
        register.guests.insert(id, stand.clone());
        Guest { id, stand, guests: self.clone() }
    }

    pub fn leaving(&self) -> usize {
        self.leaving.load(Ordering::Relaxed)
    }

    /// Sends some of those away that have paused longest, and says how many.
    pub fn send_away(&self) -> usize {
        let register = self.all.lock();
        let pausing = register.guests.values().filter(|stand| !stand.sent_away.load(Ordering::Relaxed));
        let now = Instant::now();
        let long_enough = |pause: &Pause| now.saturating_duration_since(pause.began) >= PAUSE_MIN;
        let pausing = pausing.filter_map(|stand| Some((stand.pause().filter(long_enough)?.rank(), stand)));
        let mut pausing: Vec<_> = pausing.collect();
        if pausing.len() > SENT_AWAY_AT_ONCE {
            pausing.select_nth_unstable_by_key(SENT_AWAY_AT_ONCE, |(rank, _)| *rank);
            pausing.truncate(SENT_AWAY_AT_ONCE);
        }
        for (_, stand) in &pausing {
            stand.sent_away.store(true, Ordering::Relaxed);
            self.leaving.fetch_add(1, Ordering::Relaxed);
            stand.told.notify_one();
        }
        pausing.len()
    }
}

impl Stand {
    /// `None`: something is served.
    fn pause(&self) -> Option<Pause> {
        let pause = *self.pause.lock();
        pause.filter(|_| self.served.load(Ordering::Relaxed) == 0)
    }
}

/// One who is in; leaves with the drop.
pub struct Guest {
    id: u64,
    stand: Arc<Stand>,
    guests: Arc<Guests>,
}

impl Guest {
    pub fn visit(&self) -> Visit {
        Visit { stand: self.stand.clone(), stream: None }
    }

    /// Looks when the time comes, and now and then while there is none: told of every request it would cost each of
    /// them two wake-ups. Times that are set on the way are further off than the next look.
    pub async fn overdue(&self) {
        loop {
            let (now, due) = (Instant::now(), self.stand.pause.lock().and_then(|pause| pause.due));
            let look = now + IDLE_MAX;
            match due {
                Some(due) if due <= now => return,
                due => tokio::time::sleep_until(due.map_or(look, |due| due.min(look))).await,
            }
        }
    }

    /// Whoever has got on with a request meanwhile may stay.
    pub async fn is_sent_away(&self) {
        loop {
            self.stand.told.notified().await;
            if self.stand.pause().is_some() {
                return;
            }
            self.stays();
        }
    }

    fn stays(&self) {
        if self.stand.sent_away.swap(false, Ordering::Relaxed) {
            self.guests.leaving.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Under the lock nobody is sent away any more.
        let mut register = self.guests.all.lock();
        register.guests.remove(&self.id);
        self.stays();
    }
}

/// A connection in the eyes of those who serve it, or a request of one of HTTP/2.
#[derive(Clone)]
pub struct Visit {
    stand: Arc<Stand>,
    /// There with a request of HTTP/2: it counts as served.
    stream: Option<Arc<AtomicBool>>,
}

impl Visit {
    pub fn head_is_read(&self) {
        if self.stream.is_none() {
            *self.stand.pause.lock() = Pause::new(None, true);
        }
    }

    pub fn request_is_read(&self) {
        match &self.stream {
            None => *self.stand.pause.lock() = None,
            Some(counted) if !counted.swap(true, Ordering::Relaxed) => {
                self.stand.served.fetch_add(1, Ordering::Relaxed);
            }
            Some(_) => {}
        }
    }

    /// Its next request must have come by then.
    pub fn pause(&self, due: Instant) {
        *self.stand.pause.lock() = Pause::new(Some(due), true);
    }

    /// It is one of HTTP/2, and must have asked for something by then; from then on Pingora has limits for it.
    pub fn turns_http2(&self, due: Instant) {
        *self.stand.pause.lock() = Pause::new(Some(due), false);
    }

    /// A request of it, whose head has been read.
    pub fn stream(&self) -> Streaming {
        if let Some(pause) = &mut *self.stand.pause.lock() {
            pause.due = None;
        }
        Streaming(Visit { stand: self.stand.clone(), stream: Some(Arc::default()) })
    }
}

/// While a request of HTTP/2 runs.
pub struct Streaming(Visit);

impl Streaming {
    pub fn visit(&self) -> Visit {
        self.0.clone()
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        let Visit { stand, stream } = &self.0;
        if stream.as_ref().is_some_and(|counted| counted.load(Ordering::Relaxed)) {
            *stand.pause.lock() = Pause::new(None, true);
            stand.served.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn is_told(guest: &Guest) -> bool {
        guest.stand.sent_away.load(Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn who_only_holds_a_place_goes_first_and_who_is_served_stays() {
        let guests: Arc<Guests> = Arc::default();
        let later = || Instant::now() + Duration::from_secs(30);
        let kept = guests.welcome(later());
        kept.visit().pause(later());
        let served = guests.welcome(later());
        served.visit().head_is_read();
        served.visit().request_is_read();
        let http2 = guests.welcome(later());
        http2.visit().turns_http2(later());
        let stream = http2.visit().stream();
        stream.visit().request_is_read();
        let mute: Vec<Guest> = (0..SENT_AWAY_AT_ONCE).map(|_| guests.welcome(later())).collect();

        assert_eq!(guests.send_away(), 0, "they have only just come");
        advance(PAUSE_MIN).await;
        assert_eq!(guests.send_away(), SENT_AWAY_AT_ONCE);
        assert!(mute.iter().all(is_told) && ![&kept, &served, &http2].into_iter().any(is_told));
        assert_eq!(guests.leaving(), SENT_AWAY_AT_ONCE);
        drop(mute);
        assert_eq!(guests.leaving(), 0);

        drop(stream);
        advance(PAUSE_MIN).await;
        assert_eq!(guests.send_away(), 2);
        assert!([&kept, &http2].into_iter().all(is_told) && !is_told(&served));
        assert_eq!(guests.send_away(), 0, "nobody is left who would not be missed");
        kept.is_sent_away().await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_gets_on_with_a_request_after_all_may_stay() {
        let guests: Arc<Guests> = Arc::default();
        let guest = guests.welcome(Instant::now() + Duration::from_secs(30));
        advance(PAUSE_MIN).await;
        assert_eq!(guests.send_away(), 1);
        guest.visit().request_is_read();
        let leaves = tokio::time::timeout(Duration::from_secs(1), guest.is_sent_away()).await;
        assert!(leaves.is_err());
        assert_eq!(guests.leaving(), 0);
    }
}
