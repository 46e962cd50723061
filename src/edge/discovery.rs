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
            let known = node.address.load_full();
            if known.is_none_or(|known| !addresses.contains(&known)) {
                node.address.store(first_open(&addresses).await.map(Arc::new));
            }
        }
        Ok(Err(error)) => node.note_problem(&format!("its host name does not resolve ({})", error.kind())),
        Err(_) => node.note_problem("its host name does not resolve in time"),
    }
}

/// The first of the addresses that accepts connections, else the first: `localhost` often means two
/// and listens on one.
async fn first_open(addresses: &[SocketAddr]) -> Option<SocketAddr> {
    if addresses.len() > 1 {
        for address in addresses {
            if let Ok(Ok(_)) = timeout(TRY_MAX, TcpStream::connect(address)).await {
                return Some(*address);
            }
        }
    }
    addresses.first().copied()
}
