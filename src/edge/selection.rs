//! Pingora's way into the core: a `BackendSelection` that yields upstreams best first.
//!
//! The request's facts travel in the key (a `Query`, encoded), or where Warmgate itself books, beside it, with an
//! empty key; the live state is reached through the `Seat` in each backend's extensions. A selection is rebuilt at
//! every change of membership and holds nothing of its own. A key that is no query yields nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use pingora_core::protocols::l4::socket::SocketAddr as PingoraAddr;
use pingora_load_balancing::selection::{BackendIter, BackendSelection};
use pingora_load_balancing::{Backend, Extensions};

use super::shared_fleet::SharedFleet;
use crate::routing::fleet::UpstreamId;
use crate::routing::select::Query;

/// Ties a Pingora backend to its upstream in the fleet.
#[derive(Clone)]
pub struct Seat {
    pub upstream: UpstreamId,
    pub fleet: Arc<SharedFleet>,
}

impl Seat {
    /// The backend for this seat at `address`. Pingora compares backends by address and weight alone,
    /// so the weight, otherwise unused, carries the upstream: two upstreams at one address stay two.
    pub fn backend(self, address: SocketAddr) -> Backend {
        let mut ext = Extensions::new();
        let weight = self.upstream.0 as usize + 1;
        ext.insert(Arc::new(self));
        Backend { addr: PingoraAddr::Inet(address), weight, ext }
    }

    pub fn of(backend: &Backend) -> Option<&Arc<Seat>> {
        backend.ext.get::<Arc<Seat>>()
    }
}

/// Facts of a request as a selection key.
pub fn key_of(query: &Query) -> Vec<u8> {
    let room = Vec::with_capacity(KEY_BYTES + query.ask.chain.links.len() * LINK_BYTES);
    // Writing to memory cannot fail; an empty key would select nothing.
    postcard::to_extend(query, room).unwrap_or_default()
}

/// The key by which the query of the running step is meant.
pub const STEP: &[u8] = &[];

/// What most keys need besides the links of their conversation, and what one of these does at most.
const KEY_BYTES: usize = 160;
const LINK_BYTES: usize = 16;

/// Selects by the fleet's policy.
pub struct FleetSelection {
    seats: BTreeMap<UpstreamId, Backend>,
    fleet: Option<Arc<SharedFleet>>,
}

impl BackendSelection for FleetSelection {
    type Iter = FleetIter;
    type Config = ();

    fn build(backends: &BTreeSet<Backend>) -> FleetSelection {
        let seats: BTreeMap<UpstreamId, Backend> =
            backends.iter().filter_map(|backend| Some((Seat::of(backend)?.upstream, backend.clone()))).collect();
        let fleet = seats.values().find_map(Seat::of).map(|seat| seat.fleet.clone());
        FleetSelection { seats, fleet }
    }

    fn iter(self: &Arc<Self>, key: &[u8]) -> FleetIter {
        let decode = || postcard::from_bytes::<Query>(key).ok();
        let order = match &self.fleet {
            Some(fleet) if key == STEP => Order::One(fleet.decide_step()),
            Some(fleet) => Order::All(decode().map(|query| fleet.decide(&query)).unwrap_or_default().into_iter()),
            None => Order::One(None),
        };
        FleetIter { selection: self.clone(), order }
    }
}

/// The upstreams of one decision, best first.
pub struct FleetIter {
    selection: Arc<FleetSelection>,
    order: Order,
}

enum Order {
    All(std::vec::IntoIter<UpstreamId>),
    One(Option<UpstreamId>),
}

impl BackendIter for FleetIter {
    fn next(&mut self) -> Option<&Backend> {
        let seats = &self.selection.seats;
        match &mut self.order {
            Order::All(order) => order.find_map(|id| seats.get(&id)),
            Order::One(only) => seats.get(&only.take()?),
        }
    }
}
