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

use super::fleet::{Fleet, HoldingId, MAX_HOLDINGS};
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
    for (id, upstream) in fleet.upstreams.iter() {
        let leases = fleet.bookings.values().filter(|booking| booking.upstream == id).count();
        if upstream.in_flight as usize != leases {
            return Err(format!("L1: {} counts {} in flight and has {leases}", upstream.spec.name, upstream.in_flight));
        }
    }
    for (index, holding) in fleet.holdings.iter().enumerate() {
        let id = HoldingId(index as u32);
        let leases = fleet.bookings.values().filter(|booking| booking.runs_model && booking.holding == id);
        let (running, answering) =
            leases.fold((0, 0), |(all, begun), lease| (all + 1, begun + u32::from(lease.first_byte_at.is_some())));
        if (holding.running, holding.answering) != (running, answering) {
            return Err(format!(
                "L1: {} counts {} running, {} answering and has {running}, {answering}",
                holding.name, holding.running, holding.answering
            ));
        }
    }
    for (index, holding) in fleet.holdings.iter().enumerate() {
        let waiting = fleet.queue.waiters().filter(|(_, waiter)| waiter.at == Some(HoldingId(index as u32))).count();
        if holding.waiting as usize != waiting {
            return Err(format!("L1: {} counts {} waiting and has {waiting}", holding.name, holding.waiting));
        }
    }
    let limits = [
        ("waiting requests", fleet.queue.len(), fleet.rules.admission.max_queue),
        ("upstreams", fleet.upstreams.count(), MAX_UPSTREAMS),
        ("holdings", fleet.holdings.len(), MAX_HOLDINGS),
        ("pins", fleet.sessions.len(), fleet.sessions.max_pins()),
        ("prefixes", fleet.prefixes.len(), fleet.prefixes.max_links()),
    ];
    match limits.into_iter().find(|(_, len, limit)| len > limit) {
        Some((table, len, limit)) => Err(format!("L8: {len} {table}, and the limit is {limit}")),
        None => Ok(()),
    }
}
