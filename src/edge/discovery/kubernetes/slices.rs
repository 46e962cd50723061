//! EndpointSlices, several to a service, joined to the places behind it.
//!
//! A pod is one node, however many slices name it: one for each version of addresses, or two while it moves from one to
//! the other. Ready pods serve; those that terminate keep what runs there and get nothing new; others are left out.
//! That slices are there and none of their pods is ready is the truth, and empties the fleet; that they could not be
//! read is not known here.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointSlice};

use crate::config::EndpointPort;
use crate::edge::roster::{ENDPOINTS_MAX, Place};

/// By their names.
#[derive(Default)]
pub struct Slices(HashMap<String, Vec<Told>>);

/// What is behind a service.
#[derive(Debug, PartialEq, Eq)]
pub struct Joined {
    pub places: Vec<Place>,
    /// Why that is less than one would think.
    pub problem: Option<String>,
}

/// Endpoints that are held of one service, in all its slices: each may be there once for each version of addresses.
const HELD_MAX: usize = 2 * ENDPOINTS_MAX;

/// An endpoint in a slice.
#[derive(Clone, Debug)]
struct Told {
    /// What it is the address of: the same for all addresses of a pod.
    of: String,
    /// `None`: it has no such port.
    address: Option<SocketAddr>,
    condition: Condition,
}

/// Of two that are told of one pod the first counts: who is ready in one slice has just come there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Condition {
    Serves,
    Leaves,
    Out,
}

impl Slices {
    /// There is a slice, or another of that name.
    pub fn put(&mut self, slice: &EndpointSlice, port: Option<&EndpointPort>) {
        self.remove(slice);
        // Names as addresses are of the past, and no node has one.
        if !["IPv4", "IPv6"].contains(&slice.address_type.as_str()) {
            return;
        }
        let room = HELD_MAX.saturating_sub(self.count());
        let port = port_of(slice, port);
        let told = slice.endpoints.iter().filter_map(|endpoint| told(endpoint, port)).take(room);
        self.0.insert(name_of(slice), told.collect());
    }

    pub fn remove(&mut self, slice: &EndpointSlice) {
        self.0.remove(&name_of(slice));
    }

    fn count(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// The places of all of them, each once; of a pod with several addresses the one that is known.
    pub fn joined(&self, known: &[Place]) -> Joined {
        let mut pods: BTreeMap<&str, Vec<&Told>> = BTreeMap::new();
        for told in self.0.values().flatten() {
            pods.entry(&told.of).or_default().push(told);
        }
        let is_known = |address: SocketAddr| known.iter().any(|place| place.address == address);
        let place = |told: &Vec<&Told>| {
            let condition = told.iter().map(|told| told.condition).min().filter(|it| *it != Condition::Out)?;
            let addresses = told.iter().filter_map(|told| told.address);
            let address = addresses.min_by_key(|address| (!is_known(*address), *address))?;
            Some(Place { address, leaves: condition == Condition::Leaves })
        };
        let places: Vec<Place> = pods.values().filter_map(place).collect();
        let problem = match (places.len(), pods.len()) {
            (0, 0) => Some("its service has no endpoints, or there is no such service".to_owned()),
            (0, all) if self.0.values().flatten().all(|told| told.address.is_none()) => {
                Some(format!("none of its {all} endpoints has that port, or they have several and none is chosen"))
            }
            (0, all) => Some(format!("none of its {all} endpoints is ready")),
            _ if self.count() >= HELD_MAX => Some(format!("it has more than {HELD_MAX} endpoints in its slices")),
            _ => None,
        };
        Joined { places, problem }
    }
}

fn name_of(slice: &EndpointSlice) -> String {
    slice.metadata.name.clone().unwrap_or_default()
}

/// The port that is meant, as it is in this slice: by its name, its number, or because it is the only one.
fn port_of(slice: &EndpointSlice, wanted: Option<&EndpointPort>) -> Option<u16> {
    let ports = slice.ports.as_deref().unwrap_or_default();
    let tcp = ports.iter().filter(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP");
    let number = |port: Option<i32>| port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
    let mut fitting = tcp.filter(|port| match wanted {
        None => true,
        Some(EndpointPort::Name(name)) => port.name.as_ref() == Some(name),
        Some(EndpointPort::Number(wanted)) => number(port.port) == Some(*wanted),
    });
    let (first, another) = (fitting.next()?, fitting.next());
    number(first.port).filter(|_| another.is_none())
}

/// `None`: it has no address that a node can have.
fn told(endpoint: &Endpoint, port: Option<u16>) -> Option<Told> {
    // Those after the first lead to the same.
    let ip: IpAddr = endpoint.addresses.first()?.parse().ok()?;
    let pod = endpoint.target_ref.as_ref().and_then(|target| target.uid.clone()).filter(|uid| !uid.is_empty());
    Some(Told {
        of: pod.unwrap_or_else(|| ip.to_string()),
        address: port.map(|port| SocketAddr::new(ip, port)),
        condition: condition(endpoint.conditions.as_ref()),
    })
}

/// What is not said is so, or not, as Kubernetes has it. A service that publishes pods which are not ready says of all
/// that they are; that one terminates is said all the same.
fn condition(told: Option<&EndpointConditions>) -> Condition {
    let ready = told.and_then(|told| told.ready).unwrap_or(true);
    let serving = told.and_then(|told| told.serving).unwrap_or(ready);
    let terminating = told.and_then(|told| told.terminating).unwrap_or(false);
    match (terminating, ready, serving) {
        (true, _, true) => Condition::Leaves,
        (false, true, _) => Condition::Serves,
        _ => Condition::Out,
    }
}

#[cfg(test)]
mod tests;
