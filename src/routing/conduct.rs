//! How upstreams behave, as checks and attempts have shown, and what that does to trust in them.

use std::time::Duration;

use super::breaker::{Breaker, Fault, When};
use super::fleet::{Booking, Fleet, HoldingId, LeaseId, Outcome, UpstreamId};
use super::moment::Moment;
use super::retry::{Blame, Cause, Phase};
use super::upstream::Upstream;

/// A fleet in which nobody has been up for longer than this has just been started: everybody joins at
/// once, and there is nobody whose load a newcomer could take gradually.
const JUST_STARTED: Duration = Duration::from_secs(10);

impl Outcome {
    /// What a failure says about the node.
    pub fn of(cause: Cause) -> Outcome {
        // Whether the request moves makes no difference to who is to blame.
        match cause.verdict(Phase::Waiting, true).blame {
            Blame::Nobody => Outcome::Void,
            Blame::Holding => Outcome::Failed,
            Blame::Node if cause == Cause::KeyRefused => Outcome::KeyRefused,
            Blame::Node => Outcome::Unreachable,
            Blame::Busy => Outcome::Busy,
        }
    }
}

impl Fleet {
    /// Health checks came to another opinion.
    pub fn learn_health(&mut self, id: UpstreamId, healthy: bool, now: Moment) {
        let rises = self.has_settled_others(id, now);
        let Some(upstream) = self.upstreams.get_mut(id) else { return };
        let before = std::mem::replace(&mut upstream.healthy, healthy);
        if !healthy {
            upstream.out_since = upstream.out_since.or(before.then_some(now));
            upstream.up_since = None;
            return;
        }
        upstream.out_since = None;
        upstream.up_since.get_or_insert(now);
        let reached = upstream.breaker.reached(now);
        if rises && (!before || reached) {
            upstream.slow_start.begin(now);
        }
    }

    /// A check found an upstream loading: it is not up, and has not failed.
    pub fn learn_loading(&mut self, id: UpstreamId) {
        if let Some(upstream) = self.upstreams.get_mut(id) {
            (upstream.healthy, upstream.up_since, upstream.out_since) = (false, None, None);
        }
    }

    /// A check that began then had no answer at all.
    pub fn learn_no_answer(&mut self, id: UpstreamId, asked_at: Moment) {
        if let Some(upstream) = self.upstreams.get_mut(id) {
            upstream.checked_in_vain_at = Some(asked_at);
        }
    }

    /// A check found a connection, or found none.
    pub fn learn_reachable(&mut self, id: UpstreamId, reachable: bool) {
        if let Some(upstream) = self.upstreams.get_mut(id) {
            upstream.reachable = reachable;
        }
    }

    /// An operator takes an upstream out of service, or lets it in again as far as the configuration does.
    pub fn drain(&mut self, id: UpstreamId, drain: bool, now: Moment) {
        self.change_drain(id, now, |upstream| upstream.told_to_drain = drain);
    }

    /// An upstream that drained and no longer does comes back.
    pub(super) fn change_drain(&mut self, id: UpstreamId, now: Moment, change: impl FnOnce(&mut Upstream)) {
        let Some(upstream) = self.upstreams.get_mut(id) else { return };
        let drained = upstream.drains();
        change(upstream);
        if drained && !upstream.drains() && self.has_settled_others(id, now) {
            self.upstreams[id].slow_start.begin(now);
        }
    }

    /// An upstream gets another key from now on: that it refused the last one says nothing any more.
    pub fn learn_new_key(&mut self, id: UpstreamId, now: Moment) {
        if let Some(upstream) = self.upstreams.get_mut(id) {
            upstream.breaker.forgive(Fault::KeyRefused, now);
        }
    }

    /// An upstream asked not to be sent this model's requests for so long.
    pub fn learn_wait(&mut self, holding: HoldingId, wait: Duration, now: Moment) {
        if let Some(holding) = self.holdings.get_mut(holding.0 as usize) {
            holding.breaker.told(wait, now);
        }
    }

    fn has_settled_others(&self, id: UpstreamId, now: Moment) -> bool {
        let settled = JUST_STARTED.min(self.rules.slow_start);
        let others = self.upstreams().filter(|(other, upstream)| *other != id && upstream.is_open(now));
        others.filter_map(|(_, other)| other.up_since).any(|since| now.since(since) >= settled)
    }

    pub(super) fn learn_outcome(&mut self, lease: LeaseId, booking: &Booking, outcome: Outcome, now: Moment) {
        let (rules, sent_at) = (&self.rules.breaker, booking.booked_at);
        let upstream = &mut self.upstreams[booking.upstream];
        // Without a model at work nothing is said of it, and its place may be another's by now.
        let mut nobody = Breaker::default();
        let holding = match booking.runs_model {
            true => &mut self.holdings[booking.holding.0 as usize].breaker,
            false => &mut nobody,
        };
        let when = if booking.first_byte_at.is_some() { When::Answering } else { When::BeforeFirstByte };
        match outcome {
            Outcome::Done { .. } => {
                holding.done(rules, now);
                upstream.breaker.done(rules, now);
            }
            Outcome::Void => {}
            Outcome::Busy => holding.busy(now),
            Outcome::Failed => holding.fail(when, Fault::Failures, sent_at, rules, now),
            Outcome::KeyRefused => upstream.breaker.fail(when, Fault::KeyRefused, sent_at, rules, now),
            // One is enough: who listens nowhere serves nobody. Those that were under way as it opened
            // add nothing.
            Outcome::Unreachable => {
                if upstream.breaker.opening().is_none_or(|opening| sent_at >= opening.since) {
                    upstream.breaker.open(Fault::Unreachable, rules, now);
                }
            }
        }
        let had_connection = !matches!(outcome, Outcome::Void | Outcome::Unreachable);
        if had_connection && upstream.breaker.opening().is_some_and(|opening| sent_at >= opening.since) {
            upstream.breaker.reached(now);
        }
        upstream.breaker.trial_over(lease);
        holding.trial_over(lease);
    }
}
