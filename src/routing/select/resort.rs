//! Who is used although something speaks against it, because there is nobody else, or too few.
//!
//! Exclusion protects requests from a bad node; with nobody left it would only turn a fault into an
//! outage. So the last holder is tried again after a moment's pause, a busy one at once unless it named
//! a time, and nodes that only their checks speak against are used. A refused connection, a load in
//! progress and a node never seen up are facts, and are not overlooked.

use super::{Exclusion, Holding, Moment, Offer, Pool, Query, Upstream};
use crate::routing::breaker::Bar;

/// Of the holders of a model that connections still open to, the share that health checks may take out.
/// Engines of one process answer checks late when they are busy; without a limit each that is taken out
/// makes the others busier, until all are out.
const OUT_BY_CHECKS_MAX: f64 = 0.5;

/// What passes by itself, or is overlooked where nobody else can serve.
pub fn left_alone(upstream: &Upstream, holding: &Holding, now: Moment) -> Option<Exclusion> {
    match upstream.breaker.bar(now).or(holding.breaker.bar(now)) {
        Some(Bar::Open(_)) => Some(Exclusion::BreakerOpen),
        Some(Bar::Trial) => Some(Exclusion::HalfOpen),
        Some(Bar::Cooling(_)) => Some(Exclusion::Cooling),
        None if !upstream.healthy => Some(Exclusion::Unhealthy),
        None => None,
    }
}

/// Lets enough of those in again that only their checks speak against. Each must prove itself: one
/// request at a time, until an answer since then shows that it serves. So a hung node costs one request,
/// and none that has waited for another in vain.
pub fn keep_enough(query: &Query, pool: &mut Pool) {
    let by_checks =
        |offer: &Offer, reason: Exclusion| reason == Exclusion::Unhealthy && offer.upstream.is_out_by_checks();
    let out = pool.excluded.iter().filter(|(offer, reason)| by_checks(offer, *reason)).count();
    let all = pool.eligible.len() + out;
    if !query.tried.is_empty() || pool.eligible.is_empty() || out as f64 <= OUT_BY_CHECKS_MAX * all as f64 {
        return;
    }
    let serves = |offer: &Offer| {
        let upstream = offer.upstream;
        let proven = upstream.answered_at.zip(upstream.out_since).is_some_and(|(answered, out)| answered > out);
        proven && offer.model.overdue == 0 || upstream.in_flight == 0
    };
    let kept = pool.excluded.extract_if(.., |(offer, reason)| by_checks(offer, *reason) && serves(offer));
    pool.eligible.extend(kept.map(|(offer, _)| offer));
}

/// Takes back whoever can be used at all; true if that is anybody. Those that answer their checks come
/// first: one that failed before fails at once if it does again, one that answers no check may hang.
pub fn recall(pool: &mut Pool, now: Moment) -> bool {
    let is_usable = |offer: &Offer, reason: Exclusion| match reason {
        Exclusion::Unhealthy => offer.upstream.is_out_by_checks(),
        _ => last_resort_at(offer, reason).is_some_and(|at| at <= now),
    };
    for answers_checks in [true, false] {
        let recalled = pool
            .excluded
            .extract_if(.., |(offer, reason)| offer.upstream.healthy == answers_checks && is_usable(offer, *reason));
        pool.eligible.extend(recalled.map(|(offer, _)| offer));
        if !pool.eligible.is_empty() {
            return true;
        }
    }
    false
}

/// The earliest time at which one of those left alone may be used: with others to serve when their time
/// is over, without any as a last resort.
pub fn usable_at(pool: &Pool, now: Moment) -> Option<Moment> {
    let times = pool.excluded.iter().filter_map(|(offer, reason)| {
        if pool.eligible.is_empty() {
            return last_resort_at(offer, *reason);
        }
        let left_alone = matches!(reason, Exclusion::BreakerOpen | Exclusion::Cooling);
        let until = [&offer.upstream.breaker, &offer.model.breaker]
            .map(|breaker| breaker.cooling_until().max(breaker.opening().map_or(Moment(0), |opening| opening.until)));
        left_alone.then(|| until[0].max(until[1]))
    });
    times.min().map(|at| at.max(now))
}

fn last_resort_at(offer: &Offer, reason: Exclusion) -> Option<Moment> {
    let left_alone = matches!(reason, Exclusion::BreakerOpen | Exclusion::HalfOpen | Exclusion::Cooling);
    left_alone.then(|| offer.upstream.breaker.last_resort_at().max(offer.model.breaker.last_resort_at()))
}
