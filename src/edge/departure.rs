//! How far the process is on its way out, for everybody who has to part with a client.
//!
//! It only ever goes forward: it serves, it takes no new clients, it cuts what still runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Serving,
    /// Running requests may finish. Nobody else listens here.
    Stopping,
    /// The same, and another process has the listeners.
    HandedOver,
    /// What still runs ends now.
    Cutting,
}

pub struct Departure {
    stage: watch::Sender<Stage>,
    has_successor: AtomicBool,
    is_hurried: AtomicBool,
}

/// Connections that are kept open get so long for one more request: a client that sends one just as we close
/// would have to find out that it was never read. After a hand-over there is time for that.
const LINGER_HANDED_OVER: Duration = Duration::from_secs(5);
const LINGER_STOPPING: Duration = Duration::from_millis(100);

impl Stage {
    pub fn name(self) -> &'static str {
        match self {
            Stage::Serving => "serving",
            Stage::Stopping => "stopping",
            Stage::HandedOver => "handed over",
            Stage::Cutting => "cutting",
        }
    }
}

impl Default for Departure {
    fn default() -> Departure {
        Departure {
            stage: watch::Sender::new(Stage::Serving),
            has_successor: AtomicBool::default(),
            is_hurried: AtomicBool::default(),
        }
    }
}

impl Departure {
    /// Goes on to a later stage; does nothing if it has been reached.
    pub fn reach(&self, stage: Stage) {
        if stage == Stage::HandedOver {
            self.has_successor.store(true, Ordering::Relaxed);
        }
        self.stage.send_if_modified(|now| {
            let later = *now < stage;
            *now = (*now).max(stage);
            later
        });
    }

    pub fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    /// Nobody serves here for much longer; after a hand-over somebody does.
    pub fn is_the_end(&self) -> bool {
        *self.stage.borrow() != Stage::Serving && !self.has_successor()
    }

    /// What is in the file system is another process's.
    pub fn has_successor(&self) -> bool {
        self.has_successor.load(Ordering::Relaxed)
    }

    /// Whoever stops it does not want to wait.
    pub fn hurry(&self) {
        self.is_hurried.store(true, Ordering::Relaxed);
    }

    pub fn is_hurried(&self) -> bool {
        self.is_hurried.load(Ordering::Relaxed)
    }

    pub fn watch(&self) -> watch::Receiver<Stage> {
        self.stage.subscribe()
    }

    /// How long kept connections stay open though no request runs on them.
    pub fn linger(&self) -> Duration {
        match *self.stage.borrow() {
            Stage::HandedOver => LINGER_HANDED_OVER,
            Stage::Stopping => LINGER_STOPPING,
            Stage::Serving | Stage::Cutting => Duration::ZERO,
        }
    }
}

/// Comes back once everything is to be cut.
pub async fn cut_off(stage: &mut watch::Receiver<Stage>) {
    if stage.wait_for(|stage| *stage == Stage::Cutting).await.is_err() {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_successor_it_is_the_end() {
        let departure = Departure::default();
        departure.reach(Stage::Stopping);
        assert!(departure.is_the_end());
        departure.reach(Stage::Cutting);
        assert!(departure.is_the_end());
    }

    #[test]
    fn it_only_goes_forward() {
        let departure = Departure::default();
        assert!(!departure.is_the_end());
        departure.reach(Stage::HandedOver);
        departure.reach(Stage::Stopping);
        assert_eq!((departure.is_the_end(), departure.linger()), (false, LINGER_HANDED_OVER));
        departure.reach(Stage::Cutting);
        assert_eq!((departure.has_successor(), departure.linger()), (true, Duration::ZERO));
    }
}
