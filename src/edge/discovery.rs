//! Tells Pingora's load balancer where the upstreams are.
//!
//! Host names are resolved anew at every round. A name that cannot be resolved keeps its last address;
//! one that never could is simply not there yet, and stops nothing.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::Result;
use pingora_load_balancing::Backend;
use pingora_load_balancing::discovery::ServiceDiscovery;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::node::Node;
use super::problem::Finder;
use super::selection::Seat;
use super::shared_fleet::SharedFleet;

pub struct FleetDiscovery {
    pub nodes: Arc<[Arc<Node>]>,
    pub fleet: Arc<SharedFleet>,
}

/// Resolving takes milliseconds or does not work.
const RESOLVE_MAX: Duration = Duration::from_secs(2);

/// How long each of several addresses of a name may take to accept a connection.
const TRY_MAX: Duration = Duration::from_millis(300);

#[async_trait]
impl ServiceDiscovery for FleetDiscovery {
    async fn discover(&self) -> Result<(BTreeSet<Backend>, HashMap<u64, bool>)> {
        let resolving: Vec<_> = self.nodes.iter().map(|node| tokio::spawn(locate(node.clone()))).collect();
        for task in resolving {
            if let Err(died) = task.await {
                log::error!("resolving: {died}");
            }
        }
        let seats = self.nodes.iter().filter_map(|node| {
            let address = node.address.load_full()?;
            Some(Seat { upstream: node.id, fleet: self.fleet.clone() }.backend(*address))
        });
        Ok((seats.collect(), HashMap::new()))
    }
}

async fn locate(node: Arc<Node>) {
    match timeout(RESOLVE_MAX, node.target.resolve()).await {
        Ok(Ok(addresses)) => {
            let known = node.address.load_full().map(|known| *known);
            node.address.store(first_open(&addresses, known).await.map(Arc::new));
        }
        Ok(Err(error)) => node.note(Finder::Address, &format!("its host name does not resolve ({})", error.kind())),
        Err(_) => node.note(Finder::Address, "its host name does not resolve in time"),
    }
}

/// The known address if it accepts connections, else the first of the others that does, else the
/// known or the first: `localhost` often means two addresses and listens on one.
async fn first_open(addresses: &[SocketAddr], known: Option<SocketAddr>) -> Option<SocketAddr> {
    let known = known.filter(|known| addresses.contains(known));
    let first = known.or(addresses.first().copied())?;
    if addresses.len() == 1 {
        return Some(first);
    }
    let others = addresses.iter().copied().filter(|address| *address != first);
    for address in std::iter::once(first).chain(others) {
        if let Ok(Ok(_)) = timeout(TRY_MAX, TcpStream::connect(address)).await {
            return Some(address);
        }
    }
    Some(first)
}
