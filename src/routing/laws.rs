//! The laws that hold after every step of the core, checked in debug builds and by the simulator.
//!
//! L1 an upstream's in-flight count equals its live leases. L2 a lease ends exactly once. L3 an
//! upstream that lacks the model, is ejected or drains is never chosen. L4 a score is finite and equals
//! the sum of its signals. L5 the same seed and events give the same decisions. L6 the order in which
//! upstreams are listed does not matter. L7 more load, more failures or less warmth never makes an
//! upstream likelier, but for the one request that tries it again. L8 every table has a named limit. L9 bytes forwarded equal bytes received. L10
//! readings past their age are neutral. L11 a request with an eligible upstream never starves.
//!
//! Here are those that can be read off the state: L1, its parts by model, and L8. The others are
//! properties of decisions and are tested as such.

use std::collections::BTreeMap;

use super::ask::Priority;
use super::fleet::{Fleet, MAX_HOLDINGS, UpstreamId};
use super::table::MAX_UPSTREAMS;

/// Panics in debug builds if the state breaks a law; costs nothing in release builds.
pub fn check(fleet: &Fleet) {
    if cfg!(debug_assertions)
        && let Err(broken) = broken(fleet)
    {
        panic!("{broken}");
    }
}

/// The first broken law, in words.
pub fn broken(fleet: &Fleet) -> Result<(), String> {
    let counted = Counted::of(fleet);
    for (id, upstream) in fleet.upstreams.iter() {
        let leases = counted.leases.get(&id).copied().unwrap_or(0);
        if upstream.in_flight != leases {
            return Err(format!("L1: {} counts {} in flight and has {leases}", upstream.spec.name, upstream.in_flight));
        }
    }
    for (holding, (running, answering, waiting, batch_waiting)) in fleet.holdings.iter().zip(counted.holdings) {
        if (holding.waiting, holding.batch_waiting) != (waiting, batch_waiting) {
            return Err(format!(
                "L1: {} counts {} waiting, {} of them batch, and has {waiting}, {batch_waiting}",
                holding.name, holding.waiting, holding.batch_waiting
            ));
        }
        if (holding.running, holding.answering) != (running, answering) {
            return Err(format!(
                "L1: {} counts {} running, {} answering and has {running}, {answering}",
                holding.name, holding.running, holding.answering
            ));
        }
    }
    let limits = [
        ("waiting requests", fleet.queue.len(), fleet.rules.admission.max_queue.max(fleet.queue_kept)),
        ("upstreams", fleet.upstreams.count(), MAX_UPSTREAMS),
        ("holdings", fleet.holdings.len(), MAX_HOLDINGS),
        ("pins", fleet.sessions.len(), fleet.sessions.max_pins()),
        ("models with strays", fleet.strays.len(), fleet.strays.max_models()),
        ("prefixes", fleet.prefixes.len(), fleet.prefixes.max_links()),
    ];
    match limits.into_iter().find(|(_, len, limit)| len > limit) {
        Some((table, len, limit)) => Err(format!("L8: {len} {table}, and the limit is {limit}")),
        None => Ok(()),
    }
}

/// What bookings and queue come to, counted in one pass over each.
struct Counted {
    leases: BTreeMap<UpstreamId, u32>,
    /// By holding: the leases that run it, of these those that are being answered, who waits for it, and how
    /// much of that is batch.
    holdings: Vec<(u32, u32, u32, u32)>,
}

impl Counted {
    fn of(fleet: &Fleet) -> Counted {
        let mut counted = Counted { leases: BTreeMap::new(), holdings: vec![(0, 0, 0, 0); fleet.holdings.len()] };
        for booking in fleet.bookings.values() {
            *counted.leases.entry(booking.upstream).or_default() += 1;
            if let Some((running, answering, ..)) = counted.holdings.get_mut(booking.holding.0 as usize)
                && booking.runs_model
            {
                *running += 1;
                *answering += u32::from(booking.first_byte_at.is_some());
            }
        }
        for (_, waiter) in fleet.queue.waiters() {
            let Some(at) = waiter.at else { continue };
            if let Some((.., waiting, batch_waiting)) = counted.holdings.get_mut(at.0 as usize) {
                *waiting += 1;
                *batch_waiting += u32::from(waiter.query.ask.priority == Priority::Batch);
            }
        }
        counted
    }
}
