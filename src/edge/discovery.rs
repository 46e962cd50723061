//! Tells Pingora's load balancer where the upstreams are.
//!
//! Host names are resolved anew at every round. A name that cannot be resolved keeps what was behind it;
//! one that never could is simply not there yet, and stops nothing. A lookup that fails is no sign that
//! anything is gone: rows that died are taken out by their health checks.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::Result;
use pingora_load_balancing::Backend;
use pingora_load_balancing::discovery::ServiceDiscovery;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::problem::Finder;
use super::resolver::{Resolver, addresses};
use super::roster::{Name, ROWS_PER_NAME_MAX, Roster};
use super::selection::Seat;
use super::shared_fleet::SharedFleet;
use super::site::Site;
use crate::config::UpstreamUrl;

pub struct FleetDiscovery {
    pub roster: Arc<Roster>,
    pub fleet: Arc<SharedFleet>,
    pub resolver: Arc<dyn Resolver>,
}

/// Resolving takes milliseconds or does not work.
const RESOLVE_MAX: Duration = Duration::from_secs(2);

/// How long each of several addresses of a name may take to accept a connection.
const TRY_MAX: Duration = Duration::from_millis(300);

#[async_trait]
impl ServiceDiscovery for FleetDiscovery {
    async fn discover(&self) -> Result<(BTreeSet<Backend>, HashMap<u64, bool>)> {
        let nodes = self.roster.nodes();
        let mut resolving = JoinSet::new();
        for name in nodes.names() {
            resolving.spawn(look_up(self.resolver.clone(), self.roster.clone(), name.clone()));
        }
        for site in nodes.sites().filter(|site| site.configured.discover.is_none()) {
            resolving.spawn(locate(self.resolver.clone(), site.clone()));
        }
        while let Some(resolved) = resolving.join_next().await {
            if let Err(died) = resolved {
                log::error!("resolving: {died}");
            }
        }
        let nodes = self.roster.nodes();
        let seats = nodes.iter().filter_map(|node| {
            let address = node.address.load_full()?;
            Some(Seat { upstream: node.id, fleet: self.fleet.clone() }.backend(*address))
        });
        Ok((seats.collect(), HashMap::new()))
    }
}

/// Finds the one address of a site.
async fn locate(resolver: Arc<dyn Resolver>, site: Arc<Site>) {
    match resolve(&*resolver, site.target.url()).await {
        Ok(addresses) => {
            let known = site.address.load_full().map(|known| *known);
            site.move_to(first_open(&addresses, known).await);
        }
        Err(problem) => site.note(Finder::Address, problem),
    }
}

/// Finds the addresses behind a name that are to be rows.
async fn look_up(resolver: Arc<dyn Resolver>, roster: Arc<Roster>, name: Arc<Name>) {
    let problem = match resolve(&*resolver, &name.upstream.url).await {
        Ok(addresses) => {
            let many = addresses.len() > ROWS_PER_NAME_MAX;
            roster.found(&name, addresses);
            if many { format!("it has more than {ROWS_PER_NAME_MAX} addresses") } else { String::new() }
        }
        Err(problem) => problem,
    };
    if let Some(news) = name.problem.note(Finder::Address, problem.into()) {
        log::info!("{}: {}", name.upstream.name, if news.is_empty() { "found" } else { news.as_str() });
    }
}

async fn resolve(resolver: &dyn Resolver, url: &UpstreamUrl) -> Result<Vec<SocketAddr>, String> {
    let resolved = timeout(RESOLVE_MAX, addresses(resolver, url)).await;
    let resolved: io::Result<_> = resolved.map_err(|_| "its host name does not resolve in time")?;
    resolved.map_err(|error| format!("its host name does not resolve ({})", error.kind()))
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

#[cfg(test)]
mod tests;
