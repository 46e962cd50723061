//! Tells Pingora's load balancer where the upstreams are.
//!
//! Host names are resolved anew at every round; what watches Kubernetes tells by itself. A name that cannot be resolved keeps what was behind it;
//! one that never could is simply not there yet, and stops nothing. A lookup that fails is no sign that
//! anything is gone: rows that died are taken out by their health checks.

#[cfg_attr(not(feature = "kube"), path = "discovery/no_kubernetes.rs")]
pub mod kubernetes;
mod srv;
mod unfit;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use pingora_core::Result;
use pingora_load_balancing::Backend;
use pingora_load_balancing::discovery::ServiceDiscovery;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::problem::Finder;
use super::resolver::{Resolver, addresses};
use super::roster::{Name, Place, Roster, rows_max};
use super::selection::Seat;
use super::shared_fleet::SharedFleet;
use super::site::Site;
use crate::config::{Discover, Plan, UpstreamUrl};
use srv::{Served, Services};
use unfit::unfit;

pub struct FleetDiscovery {
    roster: Arc<Roster>,
    fleet: Arc<SharedFleet>,
    plan: Arc<ArcSwap<Plan>>,
    resolver: Arc<dyn Resolver>,
    services: Arc<Services>,
}

/// Resolving takes milliseconds or does not work.
const RESOLVE_MAX: Duration = Duration::from_secs(2);

/// How long each of several addresses of a name may take to accept a connection.
const TRY_MAX: Duration = Duration::from_millis(300);

impl FleetDiscovery {
    pub fn new(
        roster: &Arc<Roster>,
        fleet: &Arc<SharedFleet>,
        plan: &Arc<ArcSwap<Plan>>,
        resolver: Arc<dyn Resolver>,
    ) -> FleetDiscovery {
        let (roster, fleet, plan) = (roster.clone(), fleet.clone(), plan.clone());
        FleetDiscovery { roster, fleet, plan, resolver, services: Arc::default() }
    }

    /// What finds the addresses behind a name; `None`: it is told of them.
    fn look_up(&self, name: &Arc<Name>) -> Option<impl Future<Output = ()> + Send + 'static> {
        let (roster, name, plan) = (self.roster.clone(), name.clone(), self.plan.load_full());
        let (resolver, services) = (self.resolver.clone(), self.services.clone());
        let discover = name.upstream.discover.clone()?;
        if matches!(discover, Discover::Kubernetes(_)) {
            return None;
        }
        Some(async move {
            let url = &name.upstream.url;
            let served = match discover {
                Discover::Srv(srv) => services.find(&url.host, &srv, resolver).await,
                _ => resolve(&*resolver, url).await.map(|addresses| Served { addresses, ..Served::default() }),
            };
            tell(&roster, &name, served, &plan);
        })
    }
}

#[async_trait]
impl ServiceDiscovery for FleetDiscovery {
    async fn discover(&self) -> Result<(BTreeSet<Backend>, HashMap<u64, bool>)> {
        let nodes = self.roster.nodes();
        let mut resolving = JoinSet::new();
        for looking in nodes.names().iter().filter_map(|name| self.look_up(name)) {
            resolving.spawn(looking);
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

/// Makes rows of what was found behind a name by asking for it.
fn tell(roster: &Roster, name: &Name, served: Result<Served, String>, plan: &Plan) {
    let served = match served {
        Ok(served) => served,
        Err(problem) => return name.note(false, problem),
    };
    let mut places: Vec<Place> = served.addresses.iter().copied().map(Place::from).collect();
    // What was not found this time is not gone for that.
    if served.missing > 0 {
        places.extend(roster.behind(name));
    }
    let wrong = take(roster, name, places, plan);
    let problem = served.problem();
    name.note(true, if problem.is_empty() { wrong } else { problem });
}

/// Makes rows of these places, but for those where no node can be. Gives what is wrong; empty: nothing.
fn take(roster: &Roster, name: &Name, mut places: Vec<Place>, plan: &Plan) -> String {
    let all = places.len();
    let mut why = None;
    places.retain(|place| {
        let unfit = unfit(place.address, plan);
        why = unfit.or(why);
        unfit.is_none()
    });
    let left_out = why.map(|why| format!("{} of its {all} addresses are left out: one {why}", all - places.len()));
    if places.is_empty() && all > 0 {
        return left_out.unwrap_or_default();
    }
    let (count, max) = (places.len(), rows_max(name.upstream.discover.as_ref()));
    roster.found(name, places);
    let many = (count > max).then(|| format!("it has more than {max} addresses"));
    left_out.or(many).unwrap_or_default()
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
