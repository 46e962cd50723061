//! How much a tenant may use: requests and tokens a minute, and requests at once.
//!
//! A minute slides by whole seconds: what was booked in a second counts until sixty seconds after its end.
//! So no sixty seconds ever see more than the limit, exact to the request, and a place comes back at most
//! one second late. A request is booked whole or not at all. Of tokens only a guess is known at first: what
//! was too much of it is given back when the request ends, and what was too little is added then.

mod ledger;

use std::time::Duration;

pub use ledger::{Booked, Part};

use ledger::Ledger;

use super::ask::Ask;
use super::moment::Moment;

/// What a tenant may use; `None`: as much as it likes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub requests_a_minute: Option<u32>,
    /// Prompts and answers.
    pub tokens_a_minute: Option<u32>,
    /// Running and waiting ones.
    pub concurrent: Option<u32>,
}

/// The limit that a request would go over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    Requests,
    Tokens,
    Concurrent,
}

impl Over {
    pub const ALL: [Over; 3] = [Over::Requests, Over::Tokens, Over::Concurrent];

    pub fn name(self) -> &'static str {
        match self {
            Over::Requests => "requests",
            Over::Tokens => "tokens",
            Over::Concurrent => "concurrent",
        }
    }
}

/// A request that must not go now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    pub over: Over,
    /// When it could go, if nobody else went before; `None`: nobody knows when a running request ends.
    pub free_in: Option<Duration>,
}

/// What one request was booked with. It is given back to the meter that it came from, once.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Booking {
    second: u64,
    tokens: u64,
    /// What counted before it.
    requests_before: u64,
    tokens_before: u64,
}

/// What a request used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Used {
    Tokens(u64),
    /// As much as was guessed, since nobody told.
    AsBooked,
    /// Nothing: no node was asked, and not for anything that the client did.
    Nothing,
}

/// What is left and when all of it is back, of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    pub limit: u32,
    pub remaining: u64,
    pub reset_in: Duration,
}

/// How many requests run after one was admitted or has ended. Of several of one meter that with the highest number
/// is the latest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    pub number: u64,
    pub running: u32,
}

/// What a tenant has used of late.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    requests: Minute,
    tokens: Minute,
    running: u32,
    stamps: u64,
    others: Others,
    ledger: Ledger,
    /// When the account was last asked for somebody who was refused here.
    asked_at: Moment,
}

/// Which of how many replicas this is that take from the same account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    pub replicas: usize,
    /// In an order that is the same for all of them, from zero.
    pub place: usize,
    /// Nobody can ask the account.
    pub is_apart: bool,
}

/// Whether a request may go that the account was not asked for in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is in this replica's share.
    Fits,
    /// It is beyond it, and alone in that: the account may still let it go.
    Beyond(Refused),
    Over(Refused),
}

/// What it has used at other replicas, as last told.
#[derive(Clone, Copy, Debug, Default)]
struct Others {
    requests: u64,
    tokens: u64,
    running: u32,
    /// What ran here when that was told.
    running_here: u32,
    running_told_at: Moment,
    told_at: Moment,
}

/// Between two looks at the account while requests are refused without one.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// So long counts what others were said to have running.
const OTHERS_RUN: Duration = Duration::from_secs(2);

impl Others {
    /// What is left of it, as its minute passes; nobody knows in which seconds it was used.
    fn left(&self, count: u64, now: Moment) -> u64 {
        let passed = now.since(self.told_at).as_secs_f64() / SECONDS as f64;
        (count as f64 * (1.0 - passed).max(0.0)).ceil() as u64
    }
}

impl Meter {
    /// Books a request that will use about so many tokens. One that is larger than the whole minute waits for
    /// an empty one, and takes all of it.
    pub fn admit(&mut self, limits: &Limits, tokens: u64, now: Moment) -> Result<Booking, Refused> {
        let now_s = self.turn(now);
        self.fits(limits, tokens, now)?;
        let tokens = limits.tokens_a_minute.map_or(tokens, |limit| tokens.min(u64::from(limit)));
        let (requests_before, tokens_before) = (self.requests.sum, self.tokens.sum);
        self.requests.add(now_s, 1);
        self.tokens.add(now_s, tokens);
        self.running = self.running.saturating_add(1);
        Ok(Booking { second: now_s, tokens, requests_before, tokens_before })
    }

    /// Whether a request could be admitted; nothing is booked.
    pub fn look(&mut self, limits: &Limits, tokens: u64, now: Moment) -> Result<(), Refused> {
        self.turn(now);
        self.fits(limits, tokens, now)
    }

    /// The request has ended; gives what it was charged.
    pub fn settle(&mut self, booking: Booking, used: Used, now: Moment) -> u64 {
        let now_s = self.turn(now);
        self.running = self.running.saturating_sub(1);
        let tokens = match used {
            Used::Tokens(tokens) => tokens,
            Used::AsBooked => booking.tokens,
            Used::Nothing => {
                self.requests.take_back(booking.second, 1);
                0
            }
        };
        self.tokens.take_back(booking.second, booking.tokens.saturating_sub(tokens));
        self.tokens.add(now_s, tokens.saturating_sub(booking.tokens));
        tokens
    }

    pub fn requests_left(&mut self, limits: &Limits, now: Moment) -> Option<Left> {
        self.turn(now);
        let elsewhere = self.others.left(self.others.requests, now);
        Some(self.requests.left(limits.requests_a_minute?, now).less(elsewhere))
    }

    pub fn tokens_left(&mut self, limits: &Limits, now: Moment) -> Option<Left> {
        self.turn(now);
        let elsewhere = self.others.left(self.others.tokens, now);
        Some(self.tokens.left(limits.tokens_a_minute?, now).less(elsewhere))
    }

    /// How many run now, numbered.
    pub fn stamp(&mut self) -> Stamp {
        self.stamps += 1;
        Stamp { number: self.stamps, running: self.running }
    }

    /// The account of all replicas was changed for who came at `at`; what of it is to be booked anew.
    pub fn learn_booked(&mut self, born: u64, booked: Booked, at: Moment, now: Moment) -> Vec<Part> {
        self.ledger.note(born, booked, at, now)
    }

    /// What all replicas have used together, and what others have running, if that was told.
    pub fn learn_used(&mut self, requests: u64, tokens: u64, others_running: Option<u32>, now: Moment) {
        self.ledger.turn(now);
        self.others.requests = requests.saturating_sub(self.ledger.requests.sum);
        self.others.tokens = tokens.saturating_sub(self.ledger.tokens.sum);
        self.others.told_at = now;
        if let Some(running) = others_running {
            self.others.running = running;
            self.others.running_here = self.running;
            self.others.running_told_at = now;
        }
    }

    /// True: it is long enough ago that the account was asked for somebody who was refused here without.
    pub fn may_ask_again(&mut self, now: Moment) -> bool {
        let may = now.since(self.asked_at) >= ASK_EVERY;
        self.asked_at = if may { now } else { self.asked_at };
        may
    }

    /// Whether who is admitted here already may go, if what others were last said to use is counted and each replica
    /// goes on with its share of what was left then. Shares add up to what is left: so however late the account
    /// answers, all together let in no more than the limit, but for what was under way when each heard of it last, one
    /// for each replica that asks beyond its share, and one for each that is apart and has none.
    pub fn stands(&mut self, limits: &Limits, booking: &Booking, sharing: Sharing, now: Moment) -> Standing {
        self.turn(now);
        self.ledger.turn(now);
        let running = self.stands_at_once(limits, sharing, now);
        let others = self.others;
        let (requests, tokens) = (&self.ledger.requests, &self.ledger.tokens);
        let rows = [
            (
                Over::Requests,
                &self.requests,
                requests,
                limits.requests_a_minute,
                others.requests,
                booking.requests_before,
            ),
            (Over::Tokens, &self.tokens, tokens, limits.tokens_a_minute, others.tokens, booking.tokens_before),
        ];
        let rows = rows.into_iter().filter_map(|(over, minute, booked, limit, elsewhere, before)| {
            let left = u64::from(limit?).saturating_sub(booked.sum.saturating_add(others.left(elsewhere, now)));
            // Of those that came before it; so one is never too large for its share.
            let unsaid = before.saturating_sub(booked.sum);
            let too_many = (unsaid + 1).saturating_sub(sharing.of(left));
            let refused = Refused { over, free_in: Some(minute.free_in(too_many, now)) };
            Some(match too_many {
                0 => Standing::Fits,
                _ if unsaid == 0 && left > 0 && !sharing.is_apart => Standing::Beyond(refused),
                _ => Standing::Over(refused),
            })
        });
        rows.fold(running, Standing::and)
    }

    /// Those that run: what came since the account told counts against this replica's share of what was free then.
    fn stands_at_once(&self, limits: &Limits, sharing: Sharing, now: Moment) -> Standing {
        let Some(limit) = limits.concurrent else { return Standing::Fits };
        let is_fresh = now.since(self.others.running_told_at) < OTHERS_RUN;
        let (here, elsewhere) = if is_fresh { (self.others.running_here, self.others.running) } else { (0, 0) };
        let free = u64::from(limit.saturating_sub(here.saturating_add(elsewhere)));
        let refused = Refused { over: Over::Concurrent, free_in: None };
        if u64::from(self.running) <= u64::from(here) + sharing.of(free) {
            Standing::Fits
        } else if free > 0 && self.running.saturating_add(elsewhere) <= limit && !sharing.is_apart {
            Standing::Beyond(refused)
        } else {
            Standing::Over(refused)
        }
    }

    /// Requests and tokens of the last minute, and requests that run or wait.
    pub fn used(&mut self, now: Moment) -> (u64, u64, u32) {
        self.turn(now);
        (self.requests.sum, self.tokens.sum, self.running)
    }

    fn fits(&self, limits: &Limits, tokens: u64, now: Moment) -> Result<(), Refused> {
        if limits.concurrent.is_some_and(|limit| self.running >= limit) {
            return Err(Refused { over: Over::Concurrent, free_in: None });
        }
        let rows = [
            (Over::Requests, &self.requests, limits.requests_a_minute, 1),
            (Over::Tokens, &self.tokens, limits.tokens_a_minute, tokens),
        ];
        for (over, minute, limit, wanted) in rows {
            let Some(limit) = limit.map(u64::from) else { continue };
            let too_many = minute.sum.saturating_add(wanted.min(limit)).saturating_sub(limit);
            if too_many > 0 {
                return Err(Refused { over, free_in: Some(minute.free_in(too_many, now)) });
            }
        }
        Ok(())
    }

    /// Forgets what is over a minute old; gives the second that is now.
    fn turn(&mut self, now: Moment) -> u64 {
        self.requests.turn(second(now));
        self.tokens.turn(second(now));
        self.requests.newest
    }
}

impl Sharing {
    /// There is nobody else.
    pub const ALONE: Sharing = Sharing { replicas: 1, place: 0, is_apart: false };

    /// This replica's share. Whoever is apart works all the same, if anything is left.
    fn of(&self, left: u64) -> u64 {
        let replicas = self.replicas.max(1) as u64;
        let share = left / replicas + u64::from((self.place as u64) < left % replicas);
        if self.is_apart { share.max(left.min(1)) } else { share }
    }
}

impl Standing {
    /// If nobody can be asked.
    pub fn refused(self) -> Option<Refused> {
        match self {
            Standing::Fits => None,
            Standing::Beyond(refused) | Standing::Over(refused) => Some(refused),
        }
    }

    /// The stricter of the two; of two alike the first.
    fn and(self, other: Standing) -> Standing {
        match (self, other) {
            (Standing::Over(_), _) | (Standing::Beyond(_), Standing::Fits | Standing::Beyond(_)) => self,
            (Standing::Fits | Standing::Beyond(_), other) => other,
        }
    }
}

impl Left {
    /// So much of it is used elsewhere; all of that is back in a minute.
    fn less(self, elsewhere: u64) -> Left {
        let reset_in = if elsewhere > 0 { self.reset_in.max(Duration::from_secs(60)) } else { self.reset_in };
        Left { remaining: self.remaining.saturating_sub(elsewhere), reset_in, ..self }
    }
}

impl Booking {
    /// What it was guessed to use.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }
}

/// What a request is taken to use before anybody knows: its prompt, and as long an answer as the client
/// allows, or as most are.
pub fn tokens_guessed(ask: &Ask) -> u64 {
    let output =
        if ask.endpoint.is_conversation() { ask.max_output_tokens.unwrap_or(OUTPUT_TOKENS_GUESSED) } else { 0 };
    u64::from(ask.prompt_tokens).saturating_add(u64::from(output))
}

/// Of an answer whose length the client leaves open.
pub const OUTPUT_TOKENS_GUESSED: u32 = 512;

/// Seconds that count: the sixty before the running one, and that.
const SECONDS: usize = 61;

/// Counts of the last seconds.
#[derive(Clone, Debug)]
struct Minute {
    /// By second, modulo their number.
    counts: [u64; SECONDS],
    newest: u64,
    sum: u64,
}

impl Default for Minute {
    fn default() -> Minute {
        Minute { counts: [0; SECONDS], newest: 0, sum: 0 }
    }
}

impl Minute {
    /// A second that has passed is not gone back to.
    fn turn(&mut self, now_s: u64) {
        let passed = now_s.saturating_sub(self.newest).min(SECONDS as u64);
        let newest = self.newest.max(now_s);
        for second in (newest + 1 - passed)..=newest {
            let gone = self.count(second).map(std::mem::take).unwrap_or(0);
            self.sum = self.sum.saturating_sub(gone);
        }
        self.newest = newest;
    }

    fn add(&mut self, second: u64, count: u64) {
        if let Some(held) = self.count(second) {
            *held = held.saturating_add(count);
            self.sum = self.sum.saturating_add(count);
        }
    }

    /// Of a second that still counts.
    fn take_back(&mut self, second: u64, count: u64) {
        if second + (SECONDS as u64) <= self.newest {
            return;
        }
        if let Some(held) = self.count(second) {
            let taken = count.min(*held);
            *held -= taken;
            self.sum = self.sum.saturating_sub(taken);
        }
    }

    /// How long until so much of what counts now no longer does.
    fn free_in(&self, wanted: u64, now: Moment) -> Duration {
        let oldest = (self.newest + 1).saturating_sub(SECONDS as u64);
        let mut freed = 0u64;
        let enough = (oldest..=self.newest).find(|second| {
            freed = freed.saturating_add(self.count_of(*second));
            freed >= wanted
        });
        until_gone(enough.unwrap_or(self.newest), now)
    }

    fn left(&self, limit: u32, now: Moment) -> Left {
        let oldest = (self.newest + 1).saturating_sub(SECONDS as u64);
        let last = (oldest..=self.newest).rev().find(|second| self.count_of(*second) > 0);
        let reset_in = last.map_or(Duration::ZERO, |second| until_gone(second, now));
        Left { limit, remaining: u64::from(limit).saturating_sub(self.sum), reset_in }
    }

    fn count(&mut self, second: u64) -> Option<&mut u64> {
        self.counts.get_mut((second % SECONDS as u64) as usize)
    }

    fn count_of(&self, second: u64) -> u64 {
        self.counts.get((second % SECONDS as u64) as usize).copied().unwrap_or(0)
    }
}

fn second(now: Moment) -> u64 {
    now.since(Moment::default()).as_secs()
}

fn until_gone(second: u64, now: Moment) -> Duration {
    Moment::from_secs(second + SECONDS as u64).since(now)
}

#[cfg(test)]
mod tests;
