//! Where a run stands, and about how long it takes yet.

use std::time::{Duration, Instant};

pub struct Progress {
    began: Instant,
    all: Duration,
    done: Duration,
}

impl Progress {
    /// Of a run that is thought to take so long.
    pub fn of(all: Duration) -> Progress {
        Progress { began: Instant::now(), all, done: Duration::ZERO }
    }

    /// Says what comes next, which is thought to take so long.
    pub fn step(&mut self, planned: Duration, what: &str) {
        eprintln!("{what} (about {} left)", spoken(self.left()));
        self.done += planned;
    }

    /// As fast as it went so far.
    fn left(&self) -> Duration {
        let pace = match self.done {
            done if done < TOLD_FROM => 1.0,
            done => self.began.elapsed().as_secs_f64() / done.as_secs_f64(),
        };
        self.all.saturating_sub(self.done).mul_f64(pace)
    }
}

/// What was planned says more than what went until then.
const TOLD_FROM: Duration = Duration::from_secs(20);

fn spoken(left: Duration) -> String {
    match left.as_secs() {
        seconds @ 0..90 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}
