//! Finding nodes that hang: their checks are green, their requests wait, and nothing comes.
//!
//! Slow is not stuck. A request is overdue only after several times what it can be expected to take, its
//! prompt and a load counted, and only while nothing at all comes from its model on that node: as long as
//! somebody is served there, the others wait their turn. Only several overdue requests, or fewer that are
//! so several times over, open the breaker, and only while other nodes do answer; the trial that follows is
//! judged alone.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ask::Ask;
use super::breaker::{Breaker, Fault, Opening};
use super::fleet::{Booking, Fleet, HoldingId, LeaseId};
use super::moment::Moment;
use super::upstream::Holding;

/// The limits on an attempt's silence; what is overdue follows from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SilenceLimits {
    /// From a request to its first byte.
    pub first_byte: Duration,
    /// Between two pieces of an answer.
    pub idle: Duration,
}

impl Default for SilenceLimits {
    fn default() -> SilenceLimits {
        SilenceLimits { first_byte: Duration::from_secs(15 * 60), idle: Duration::from_secs(5 * 60) }
    }
}

/// Of the first-byte limit, what every request may take: half a minute of a quarter of an hour, many
/// times what a short prompt takes on a model in memory.
const BASE_SHARE: u32 = 30;

/// Of the first-byte limit, what a load of unknown length may take.
const LOAD_SHARE: u32 = 3;

/// Of the idle limit, after which a stream counts as stalled. Engines that hold a tool call back until it
/// is whole are silent for the better part of a minute.
const STALL_SHARE: u32 = 5;

/// A request is overdue after so many times what it was expected to take.
const TIMES_EXPECTED: f64 = 4.0;

/// Prompt tokens a second that are expected where no speed is known: a processor without a GPU.
const SLOWEST_PREFILL: f64 = 50.0;

/// Output tokens and tokens a second that are expected of an answer that comes in one piece, where they
/// are not known.
const LONG_ANSWER_TOKENS: f64 = 4096.0;
const SLOWEST_DECODE: f64 = 10.0;

impl SilenceLimits {
    /// How long a request that is sent now may be silent before it counts as overdue.
    pub(super) fn patience(&self, holding: &Holding, ask: &Ask, cold: bool) -> Duration {
        let speed = &holding.speed;
        let tokens = f64::from(ask.prompt_tokens);
        let prefill_s = speed.prefill_s_per_token().map_or(tokens / SLOWEST_PREFILL, |s| TIMES_EXPECTED * s * tokens);
        let load_s = match speed.load_s() {
            _ if !cold => 0.0,
            Some(seconds) => TIMES_EXPECTED * seconds,
            None => (self.first_byte / LOAD_SHARE).as_secs_f64(),
        };
        let answer_s = if ask.stream || !ask.endpoint.is_conversation() {
            0.0
        } else {
            LONG_ANSWER_TOKENS
                / speed.decode_tokens_per_s().map_or(SLOWEST_DECODE, |rate| rate / TIMES_EXPECTED).max(0.1)
        };
        let expected = Duration::try_from_secs_f64(prefill_s + load_s + answer_s).unwrap_or(self.first_byte);
        (self.first_byte / BASE_SHARE + expected).min(self.first_byte)
    }
}

/// What a model on a node has to show, over its live requests in the order in which they were sent.
#[derive(Default)]
struct Silence {
    /// Until then the requests so far may rightly be silent: whoever came later waits for them.
    until: Moment,
    overdue: u32,
    /// How often over they are, together.
    weight: u32,
    /// Since when the first of the overdue has waited for anything.
    since: Option<Moment>,
    /// A trial is overdue.
    trial: bool,
}

impl Fleet {
    /// Looks for nodes that hang, opens their breakers, and tells which requests wait at nodes that were
    /// taken out since. To be called a few times a second.
    pub fn sweep(&mut self, now: Moment) -> Vec<LeaseId> {
        let silences = self.silences(now);
        self.holdings.iter_mut().for_each(|holding| holding.overdue = 0);
        for (id, silence) in silences {
            self.judge(id, &silence, now);
        }
        let waiting = self.bookings.iter().filter(|(_, booking)| booking.first_byte_at.is_none());
        waiting.filter(|(_, booking)| self.was_taken_out(booking)).map(|(lease, _)| *lease).collect()
    }

    /// Bytes of the answer came.
    pub fn heard(&mut self, lease: LeaseId, at: Moment) {
        if let Some(booking) = self.bookings.get(&lease).filter(|booking| booking.runs_model) {
            let progress = &mut self.holdings[booking.holding.0 as usize].progress_at;
            *progress = at.max(*progress);
        }
    }

    fn silences(&self, now: Moment) -> BTreeMap<HoldingId, Silence> {
        let mut silences: BTreeMap<HoldingId, Silence> = BTreeMap::new();
        for (lease, booking) in self.bookings.iter().filter(|(_, booking)| booking.runs_model) {
            let holding = self.holding(booking.holding);
            let patience = match booking.first_byte_at {
                Some(_) => self.rules.silence.idle / STALL_SHARE,
                None => booking.patience,
            };
            let silent_since = booking.booked_at.max(holding.progress_at);
            let silence = silences.entry(booking.holding).or_default();
            silence.until = silence.until.max(silent_since + patience);
            if now >= silence.until {
                silence.overdue += 1;
                let times = now.since(silent_since).as_secs_f64() / patience.as_secs_f64().max(f64::MIN_POSITIVE);
                // The cast saturates.
                silence.weight = silence.weight.saturating_add((times as u32).max(1));
                silence.since.get_or_insert(silent_since);
            }
            silence.trial |= self.is_trial(*lease, booking) && now >= booking.booked_at + patience;
        }
        silences
    }

    fn judge(&mut self, id: HoldingId, silence: &Silence, now: Moment) {
        let Some(since) = silence.since else { return };
        let rules = self.rules.breaker;
        let upstream = self.holding(id).upstream;
        let hangs = silence.weight >= rules.failures && self.others_answered(id, since);
        if !silence.trial && self.loads_another(id, now) {
            return;
        }
        let node = &mut self.upstreams[upstream].breaker;
        let holding = &mut self.holdings[id.0 as usize];
        holding.overdue = silence.overdue;
        if silence.trial {
            for breaker in [node, &mut holding.breaker] {
                if breaker.opening().is_some_and(|opening| opening.trial.is_some()) {
                    breaker.open(Fault::Stuck, &rules, now);
                }
            }
        } else if hangs && holding.breaker.opening().is_none() {
            holding.breaker.open(Fault::Stuck, &rules, now);
        }
    }

    fn is_trial(&self, lease: LeaseId, booking: &Booking) -> bool {
        let tries = |breaker: &Breaker| breaker.opening().is_some_and(|opening| opening.trial == Some(lease));
        tries(&self.holding(booking.holding).breaker) || tries(&self.upstreams[booking.upstream].breaker)
    }

    /// Something came from another node meanwhile, so that the silence is not our own.
    fn others_answered(&self, id: HoldingId, since: Moment) -> bool {
        let here = self.holding(id).upstream;
        self.holdings.iter().any(|other| other.upstream != here && other.progress_at > since)
    }

    /// Another model is being loaded there, which everything else waits for.
    fn loads_another(&self, id: HoldingId, now: Moment) -> bool {
        let longest = self.rules.silence.first_byte / LOAD_SHARE;
        let held = self.upstreams[self.holding(id).upstream].holdings.values();
        let others = held.filter(|held| **held != id).map(|held| self.holding(*held));
        others.filter_map(|other| other.loading_since).any(|since| now.since(since) < longest)
    }

    /// The node failed its checks, or was found to hang, after this request was sent there; or the request
    /// was to prove a node that was out already, and not even a check was answered since.
    fn was_taken_out(&self, booking: &Booking) -> bool {
        let upstream = &self.upstreams[booking.upstream];
        let hangs = |breaker: &Breaker| {
            let stuck = |opening: &Opening| opening.fault == Fault::Stuck && booking.booked_at <= opening.since;
            breaker.opening().is_some_and(|opening| stuck(&opening))
        };
        let in_vain = |since: Moment| upstream.checked_in_vain_at.is_some_and(|asked_at| asked_at >= since);
        upstream.out_since.is_some_and(|since| booking.booked_at <= since || in_vain(booking.booked_at))
            || hangs(&upstream.breaker)
            || hangs(&self.holding(booking.holding).breaker)
    }
}
