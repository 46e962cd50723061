//! Whether a node, or a model on it, is trusted with requests.
//!
//! Two things are kept apart. Broken: failures in a row, or too many of all, open the breaker; after a
//! cooldown, which doubles each time, one request at a time tries it, and the first that is answered
//! closes it. Busy: the node asked us to wait, or turned a request away for want of a place; it is left
//! alone for that long and nothing is held against it. Time alone leads from open to the trial, so that
//! there is always a way back, asked for or not.

use std::time::Duration;

use super::fleet::LeaseId;
use super::moment::Moment;
use super::recent::Recent;

/// What may be configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerRules {
    /// Failures in a row that open it.
    pub failures: u32,
    /// Failures older than this are forgotten.
    pub window: Duration,
    /// From its opening to the first trial; doubles with each failed one.
    pub cooldown: Duration,
    pub max_cooldown: Duration,
}

/// As Warmgate is configured when nothing is said.
impl Default for BreakerRules {
    fn default() -> BreakerRules {
        let s = Duration::from_secs;
        BreakerRules { failures: 3, window: s(60), cooldown: s(10), max_cooldown: s(300) }
    }
}

/// What opened a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Failures,
    /// No connection could be made.
    Unreachable,
    KeyRefused,
    /// Requests wait there without a sign of life.
    Stuck,
}

/// Where in an answer a failure came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    BeforeFirstByte,
    Answering,
}

/// Why no request may be sent, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bar {
    Open(Moment),
    /// A trial is under way.
    Trial,
    Cooling(Moment),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    pub fault: Fault,
    pub since: Moment,
    /// Trials begin then.
    pub until: Moment,
    /// The request that tries it.
    pub trial: Option<LeaseId>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Breaker {
    /// Failures in a row before a first byte; a first byte ends the row.
    unanswered: u32,
    /// Failures in a row within an answer; a whole answer ends the row.
    broken_off: u32,
    last_failure: Moment,
    ended: Recent,
    failed: Recent,
    opening: Option<Opening>,
    /// Openings one after the other.
    strikes: u32,
    closed_at: Moment,
    /// The node said so.
    told_until: Moment,
    /// It turned a request away without saying for how long.
    paused_until: Moment,
    pauses: u32,
}

/// Share of failures that opens a breaker, given enough requests.
const BAD_SHARE: f64 = 0.5;

/// Requests in the window below which a share says nothing.
const ENOUGH_REQUESTS: f64 = 10.0;

/// What a row of failures that is one short of opening takes from the availability.
const ROW_MAX: f64 = 0.5;

/// More doublings than these change nothing: the maximum is reached.
const STRIKES_MAX: u32 = 20;

/// For a node that is busy and does not say for how long. Doubles while every trial finds it busy, so
/// that a node which refuses in milliseconds is not asked again and again.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(16);

/// The longest that a node's `Retry-After` is believed. A wrong value costs no more than this, even where
/// it is a model's only holder, and a right one is told again.
const TOLD_MAX: Duration = Duration::from_secs(60);

/// The only holder of a model is tried again this soon, whatever the cooldown: there is nobody else.
pub const ONLY_HOLDER_PAUSE: Duration = Duration::from_secs(1);

impl Breaker {
    /// What stands against sending a request now.
    pub fn bar(&self, now: Moment) -> Option<Bar> {
        match self.opening {
            Some(opening) if now < opening.until => Some(Bar::Open(opening.until)),
            Some(Opening { trial: Some(_), .. }) => Some(Bar::Trial),
            _ if now < self.cooling_until() => Some(Bar::Cooling(self.cooling_until())),
            _ => None,
        }
    }

    /// When it may be used if nobody else can: after a short pause where it is broken, at once where it
    /// is busy, unless it named a time itself.
    pub fn last_resort_at(&self) -> Moment {
        let reopened = self.opening.map_or(Moment(0), |opening| opening.until.min(opening.since + ONLY_HOLDER_PAUSE));
        reopened.max(self.told_until)
    }

    pub fn opening(&self) -> Option<Opening> {
        self.opening
    }

    /// The cooldown is over and no trial runs.
    pub fn wants_trial(&self, now: Moment) -> Option<Opening> {
        self.opening.filter(|opening| opening.until <= now && opening.trial.is_none())
    }

    pub fn cooling_until(&self) -> Moment {
        self.told_until.max(self.paused_until)
    }

    /// 1: nothing speaks against it. A single failure does not; a row does, and a share of all.
    pub fn trust(&self, rules: &BreakerRules, now: Moment) -> f64 {
        if self.failed.is_zero() && self.row() <= 1 {
            return 1.0;
        }
        let failed = self.failed.sum(rules.window, now);
        let ended = self.ended.sum(rules.window, now);
        let share = (failed - 1.0).max(0.0) / (ended + ENOUGH_REQUESTS);
        let left = 1.0 - (now.since(self.last_failure).as_secs_f64() / rules.window.as_secs_f64()).min(1.0);
        let row = f64::from(self.row().saturating_sub(1)) / f64::from(rules.failures.saturating_sub(1).max(1));
        (1.0 - share.min(1.0)) * (1.0 - ROW_MAX * row.min(1.0) * left)
    }

    /// A request is sent; while the breaker is open it is the trial.
    pub fn sent(&mut self, lease: LeaseId) {
        if let Some(opening) = &mut self.opening {
            opening.trial = Some(lease);
        }
    }

    /// A request that was sent at `sent_at` was answered: true if that closed the breaker.
    pub fn answered(&mut self, sent_at: Moment, now: Moment) -> bool {
        self.unanswered = 0;
        if now >= self.paused_until {
            self.pauses = 0;
        }
        // Who was only thought to hang is cleared by any sign of life, others by a request sent since.
        let proves = |opening: &Opening| opening.fault == Fault::Stuck || sent_at >= opening.since;
        self.opening.is_some_and(|opening| proves(&opening)) && self.close(now)
    }

    /// An answer came to its end.
    pub fn done(&mut self, rules: &BreakerRules, now: Moment) {
        self.broken_off = 0;
        self.ended.add(1.0, rules.window, now);
    }

    /// A request that was sent at `sent_at` failed.
    pub fn fail(&mut self, when: When, fault: Fault, sent_at: Moment, rules: &BreakerRules, now: Moment) {
        if now.since(self.last_failure) >= rules.window {
            (self.unanswered, self.broken_off) = (0, 0);
        }
        let row = match when {
            When::BeforeFirstByte => &mut self.unanswered,
            When::Answering => &mut self.broken_off,
        };
        *row = row.saturating_add(1);
        self.last_failure = now;
        self.ended.add(1.0, rules.window, now);
        self.failed.add(1.0, rules.window, now);
        let opens = match self.opening {
            // What was under way when it opened says nothing new.
            Some(opening) => sent_at >= opening.since,
            None => self.row() >= rules.failures || self.fails_too_often(rules, now),
        };
        if opens {
            self.open(fault, rules, now);
        }
    }

    /// Opens it, or opens it anew.
    pub fn open(&mut self, fault: Fault, rules: &BreakerRules, now: Moment) {
        if self.opening.is_none() && now.since(self.closed_at) >= rules.window {
            self.strikes = 0;
        }
        let doubled = rules.cooldown.saturating_mul(1 << self.strikes.min(STRIKES_MAX));
        self.strikes = (self.strikes + 1).min(STRIKES_MAX);
        let until = now + doubled.min(rules.max_cooldown);
        self.opening = Some(Opening { fault, since: now, until, trial: None });
    }

    /// The node can be reached again, as a check has shown: true if that closed the breaker.
    pub fn reached(&mut self, now: Moment) -> bool {
        self.opening.is_some_and(|opening| opening.fault == Fault::Unreachable) && self.close(now)
    }

    /// The trial ended without saying anything.
    pub fn trial_over(&mut self, lease: LeaseId) {
        if let Some(opening) = self.opening.as_mut().filter(|opening| opening.trial == Some(lease)) {
            opening.trial = None;
        }
    }

    /// It turned a request away for want of a place.
    pub fn busy(&mut self, now: Moment) {
        if now < self.paused_until {
            // One of several that were under way; it is known already.
            return;
        }
        if now.since(self.paused_until) > PAUSE_MAX {
            self.pauses = 0;
        }
        let pause = PAUSE.saturating_mul(1 << self.pauses.min(STRIKES_MAX)).min(PAUSE_MAX);
        self.pauses = (self.pauses + 1).min(STRIKES_MAX);
        self.paused_until = now + pause;
    }

    /// It asked not to be sent anything for so long. Of several such times the latest holds.
    pub fn told(&mut self, wait: Duration, now: Moment) {
        self.told_until = self.told_until.max(now + wait.min(TOLD_MAX));
    }

    /// The reason for which it opened is gone.
    pub fn forgive(&mut self, fault: Fault, now: Moment) {
        if self.opening.is_some_and(|opening| opening.fault == fault) {
            self.close(now);
        }
    }

    /// What is proven to work again is in normal use at once; how it failed before is forgotten, but for the
    /// cooldown's length should it fail anew.
    fn close(&mut self, now: Moment) -> bool {
        (self.unanswered, self.broken_off) = (0, 0);
        (self.ended, self.failed) = Default::default();
        self.closed_at = now;
        self.opening.take().is_some()
    }

    fn row(&self) -> u32 {
        self.unanswered.max(self.broken_off)
    }

    fn fails_too_often(&self, rules: &BreakerRules, now: Moment) -> bool {
        let ended = self.ended.sum(rules.window, now);
        ended >= ENOUGH_REQUESTS && self.failed.sum(rules.window, now) >= BAD_SHARE * ended
    }
}

#[cfg(test)]
mod tests;
