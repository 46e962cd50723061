//! SRV records: host and port of each server behind a name, as Consul and Kubernetes' headless services tell them.
//!
//! The system's resolver does not ask for them, so a library does; it keeps answers for as long as their sender says,
//! within bounds, and asks over TCP what does not fit into a datagram. Of the priorities the lowest counts behind which
//! there is an address. Weights are not looked at: where a request goes is the fleet's to decide.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::system_conf::parse_resolv_conf;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::RESOLVE_MAX;
use crate::config::Srv;
use crate::edge::resolver::Resolver;

/// Who asks for them. One for the process; it keeps answers.
#[derive(Default)]
pub struct Services {
    /// By what is configured.
    askers: Mutex<HashMap<Srv, Arc<TokioResolver>>>,
}

/// What the records of a name lead to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Served {
    pub addresses: Vec<SocketAddr>,
    /// Hosts in them of which no address could be found: others may be where they were.
    pub missing: usize,
    /// There were more than are looked at.
    pub are_too_many: bool,
}

impl Served {
    /// What is wrong with it; empty: nothing.
    pub fn problem(&self) -> String {
        match self.missing {
            0 if self.are_too_many => format!("it has more than {RECORDS_MAX} SRV records"),
            0 => String::new(),
            missing => format!("{missing} of the hosts in its SRV records have no address"),
        }
    }
}

/// Name servers at once; those of a configuration of the past are forgotten.
const ASKERS_MAX: usize = 64;

/// Records that are looked at, the lowest priorities first. A message has room for three thousand.
const RECORDS_MAX: usize = 256;

/// Hosts that are looked up at the same time.
const LOOKUPS_AT_ONCE: usize = 16;

/// Answers kept for each name server.
const ANSWERS_KEPT_MAX: u64 = 512;

/// Answers are good for as long as their sender says, but not for less than this, nor for longer than the next: a server
/// that is gone must not be asked for an hour.
const KEPT_MIN: Duration = Duration::from_secs(1);
const KEPT_MAX: Duration = Duration::from_secs(60);

/// That there is nothing is asked about again soon.
const NOTHING_KEPT_MAX: Duration = Duration::from_secs(5);

/// For one try; there are two, and both must fit into what a round takes.
const TRY_MAX: Duration = Duration::from_millis(900);

/// Whom this machine asks.
const RESOLV_CONF: &str = "/etc/resolv.conf";

impl Services {
    /// What the records of `host` lead to now; hosts in them are looked up where the records come from.
    pub async fn find(&self, host: &str, srv: &Srv, resolver: Arc<dyn Resolver>) -> Result<Served, String> {
        let asker = self.asker(srv)?;
        let lookup = asker.lookup(host, RecordType::SRV);
        let lookup = timeout(RESOLVE_MAX, lookup).await.map_err(|_| "its SRV records do not come in time")?;
        let lookup = lookup.map_err(|why| {
            self.askers.lock().remove(srv);
            format!("it has no SRV records ({why})")
        })?;
        let records = Records::of(&lookup);
        let hosts = match srv.nameserver {
            Some(_) => Hosts::There(asker),
            None => Hosts::Here(resolver),
        };
        records.lead_to(&hosts).await
    }

    fn asker(&self, srv: &Srv) -> Result<Arc<TokioResolver>, String> {
        let mut askers = self.askers.lock();
        if let Some(asker) = askers.get(srv) {
            return Ok(asker.clone());
        }
        if askers.len() >= ASKERS_MAX {
            askers.clear();
        }
        let mut made = match srv.nameserver {
            Some(address) => TokioResolver::builder_with_config(only(address), TokioRuntimeProvider::default()),
            None => {
                let (config, options) = std::fs::read_to_string(RESOLV_CONF)
                    .map_err(|why| format!("{RESOLV_CONF}: {why}"))
                    .and_then(|text| servers_of(&text).map_err(|why| format!("{RESOLV_CONF}: {why}")))
                    .map_err(|why| format!("this machine does not say whom to ask for SRV records ({why})"))?;
                TokioResolver::builder_with_config(config, TokioRuntimeProvider::default()).with_options(options)
            }
        };
        bound(made.options_mut());
        let asker = made.build().map_err(|why| format!("nobody can be asked for SRV records ({why})"))?;
        let asker = Arc::new(asker);
        askers.insert(srv.clone(), asker.clone());
        Ok(asker)
    }
}

/// What a machine's file says of name servers.
fn servers_of(text: &str) -> Result<(ResolverConfig, ResolverOpts), String> {
    parse_resolv_conf(text).map_err(|why| why.to_string())
}

fn only(address: SocketAddr) -> ResolverConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    let server = NameServerConfig::new(address.ip(), true, connections.into());
    ResolverConfig::from_parts(None, Vec::new(), vec![server])
}

/// Leaves them as this machine has them, but for what bounds them.
fn bound(options: &mut ResolverOpts) {
    options.timeout = TRY_MAX;
    options.attempts = 1;
    options.cache_size = ANSWERS_KEPT_MAX;
    options.positive_min_ttl = Some(KEPT_MIN);
    options.positive_max_ttl = Some(KEPT_MAX);
    options.negative_max_ttl = Some(NOTHING_KEPT_MAX);
    options.ip_strategy = LookupIpStrategy::Ipv4thenIpv6;
    options.use_hosts_file = ResolveHosts::Never;
}

/// Where the hosts in records are looked up.
#[derive(Clone)]
enum Hosts {
    /// As all others.
    Here(Arc<dyn Resolver>),
    /// By the name server that told of them: only it may know them.
    There(Arc<TokioResolver>),
}

impl Hosts {
    async fn look_up(self, host: Name) -> Vec<IpAddr> {
        match self {
            Hosts::There(asker) => asker.lookup_ip(host).await.map(|found| found.iter().collect()).unwrap_or_default(),
            Hosts::Here(resolver) => {
                let found = resolver.lookup(&host.to_ascii(), 0).await.unwrap_or_default();
                found.iter().map(SocketAddr::ip).collect()
            }
        }
    }
}

/// The records of a name, in order.
#[derive(Debug, Default, PartialEq, Eq)]
struct Records {
    /// By priority: hosts and ports.
    by_priority: BTreeMap<u16, BTreeSet<(Name, u16)>>,
    /// Addresses that came with them.
    told: HashMap<Name, Vec<IpAddr>>,
    /// More than are looked at.
    are_too_many: bool,
}

impl Records {
    fn of(lookup: &Lookup) -> Records {
        let targets = lookup.answers().iter().filter_map(|record| match &record.data {
            // A dot alone says that there is no such service.
            RData::SRV(srv) if !srv.target.is_root() && srv.port > 0 => {
                Some((srv.priority, srv.target.to_lowercase(), srv.port))
            }
            _ => None,
        });
        let mut records = Records::among(targets.collect());
        for record in lookup.additionals() {
            let ip: IpAddr = match &record.data {
                RData::A(a) => a.0.into(),
                RData::AAAA(aaaa) => aaaa.0.into(),
                _ => continue,
            };
            records.told.entry(record.name.to_lowercase()).or_default().push(ip);
        }
        records
    }

    fn among(mut targets: Vec<(u16, Name, u16)>) -> Records {
        targets.sort();
        targets.dedup();
        let are_too_many = targets.len() > RECORDS_MAX;
        targets.truncate(RECORDS_MAX);
        let mut records = Records { are_too_many, ..Records::default() };
        for (priority, host, port) in targets {
            records.by_priority.entry(priority).or_default().insert((host, port));
        }
        records
    }

    /// The addresses of the lowest priority that has any.
    async fn lead_to(&self, hosts: &Hosts) -> Result<Served, String> {
        for servers in self.by_priority.values() {
            let (addresses, missing) = self.addresses(servers, hosts).await;
            if addresses.is_empty() {
                continue;
            }
            return Ok(Served { addresses, missing, are_too_many: self.are_too_many });
        }
        Err(match self.by_priority.len() {
            0 => "its SRV records name no host".into(),
            _ => "none of the hosts in its SRV records has an address".into(),
        })
    }

    /// Of these servers, and how many hosts have none.
    async fn addresses(&self, servers: &BTreeSet<(Name, u16)>, hosts: &Hosts) -> (Vec<SocketAddr>, usize) {
        let names: BTreeSet<&Name> = servers.iter().map(|(host, _)| host).collect();
        let mut found = self.told.clone();
        let unknown: Vec<&Name> = names.into_iter().filter(|name| !found.contains_key(*name)).collect();
        // What is not there in time is missing.
        let _ = timeout(RESOLVE_MAX, async {
            for names in unknown.chunks(LOOKUPS_AT_ONCE) {
                let mut looking = JoinSet::new();
                for name in names.iter().map(|name| (*name).clone()) {
                    let hosts = hosts.clone();
                    looking.spawn(async move { (name.clone(), hosts.look_up(name).await) });
                }
                while let Some(Ok((name, ips))) = looking.join_next().await {
                    found.insert(name, ips);
                }
            }
        })
        .await;
        let mut missing = BTreeSet::new();
        let mut addresses = Vec::new();
        for (host, port) in servers {
            let ips = found.get(host).map_or(&[][..], Vec::as_slice);
            let before = addresses.len();
            addresses.extend(of_one_family(ips).map(|ip| SocketAddr::new(ip, *port)));
            if addresses.len() == before {
                missing.insert(host);
            }
        }
        (addresses, missing.len())
    }
}

/// A host with addresses of both versions is one server and not two.
fn of_one_family(ips: &[IpAddr]) -> impl Iterator<Item = IpAddr> {
    let has_v4 = ips.iter().any(IpAddr::is_ipv4);
    ips.iter().copied().filter(move |ip| ip.is_ipv4() == has_v4)
}

#[cfg(test)]
mod tests;
