//! The sites that a configuration wants, given what is behind its names.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::{Site, row_name};
use crate::config::{self, ADDRESS_MARK, Auth, Discover};
use crate::edge::site::UNCHECKED;
use crate::edge::target::Target;
use crate::engines;
use crate::routing::fleet::{Fleet, UpstreamId};
use crate::routing::moment::Moment;
use crate::routing::upstream::Spec;

/// Addresses of one name that are rows: more replicas than one name has, and few enough that a
/// resolver gone mad does not fill the fleet.
pub const ROWS_PER_NAME_MAX: usize = 64;

/// Endpoints of one service that are rows. What tells of them has counted them itself; an eighth of the rows that
/// there may be.
pub const ENDPOINTS_MAX: usize = 1024;

/// How many rows an upstream may have that finds them so.
pub fn rows_max(discover: Option<&Discover>) -> usize {
    match discover {
        Some(Discover::Kubernetes(_)) => ENDPOINTS_MAX,
        _ => ROWS_PER_NAME_MAX,
    }
}

/// Where a server is that was discovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub address: SocketAddr,
    /// It is on its way out: what runs there goes on, and nothing new begins.
    pub leaves: bool,
}

impl From<SocketAddr> for Place {
    fn from(address: SocketAddr) -> Place {
        Place { address, leaves: false }
    }
}

/// One site as it is wanted.
pub struct Wanted<'a> {
    /// The upstream's name, with a label for the address if that was discovered.
    pub name: String,
    upstream: &'a config::Upstream,
    /// Where it is, if that was discovered.
    place: Option<Place>,
}

/// Of the places behind a name those that are rows, in order: each once, and with too many of them
/// those that stay, and of these those that are rows already.
pub fn choose(mut places: Vec<Place>, known: &[Place], max: usize) -> Vec<Place> {
    let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    places.iter_mut().for_each(|place| place.address = plain(place.address));
    places.sort_by_key(|place| (place.address, place.leaves));
    places.dedup_by_key(|place| place.address);
    if places.len() > max {
        let known: HashSet<SocketAddr> = known.iter().map(|place| place.address).collect();
        places.sort_by_key(|place| (place.leaves, !known.contains(&place.address), place.address));
        places.truncate(max);
        places.sort_by_key(|place| place.address);
    }
    places
}

pub fn rows<'a>(upstreams: &'a [config::Upstream], found: &HashMap<String, Vec<Place>>) -> Vec<Wanted<'a>> {
    let mut rows = Vec::new();
    for upstream in upstreams {
        match &upstream.discover {
            None => rows.push(Wanted { name: upstream.name.clone(), upstream, place: None }),
            Some(discover) => {
                let places = found.get(&upstream.name).map_or(&[][..], Vec::as_slice);
                let names = labelled(&upstream.name, places, *discover == Discover::Dns);
                let row = |(name, place): (String, &Place)| Wanted { name, upstream, place: Some(*place) };
                rows.extend(names.into_iter().zip(places).map(row));
            }
        }
    }
    rows
}

/// The name with a label for each address, the same after a restart and on every replica. A label is no
/// address, though who guesses one can see whether it fits. Where all have the port of the URL it is no part of it.
fn labelled(name: &str, places: &[Place], of_one_port: bool) -> Vec<String> {
    let mut taken = HashSet::new();
    let label = |Place { address, .. }: &Place| {
        let address = if of_one_port { address.ip().to_string() } else { address.to_string() };
        let mut text = format!("{name}{ADDRESS_MARK}{address}");
        loop {
            let label = xxh3_64(text.as_bytes()) >> LABEL_SHIFT;
            if taken.insert(label) {
                return format!("{name}{ADDRESS_MARK}{label:06x}");
            }
            text.push('+');
        }
    };
    places.iter().map(label).collect()
}

/// Leaves 24 bits: short to read, and with that few rows hardly ever twice the same.
const LABEL_SHIFT: u32 = 40;

impl Wanted<'_> {
    /// Whether it is that site, so that what was learnt there holds: the same server under the same name,
    /// with the same rows.
    pub fn is_same(&self, site: &Site) -> bool {
        let (new, old) = (self.upstream, &site.configured);
        let engine = new.engine == old.engine
            || new.engine.is_some_and(|name| site.engine.get().is_some_and(|e| e.name == name));
        self.name == site.name
            && new.url == old.url
            && engine
            && (new.data_parallel, &new.discover) == (old.data_parallel, &old.discover)
            && self.place.is_none_or(|place| site.address.load().as_deref() == Some(&place.address))
    }

    /// That site, under what is configured now.
    pub fn keep(&self, site: &Arc<Site>, fleet: &mut Fleet, now: Moment) -> Arc<Site> {
        if *self.upstream == site.configured {
            if self.is_told_otherwise(site, fleet) {
                let rows = site.rows.iter().zip(self.specs());
                rows.for_each(|(row, spec)| fleet.configure(*row, spec, now));
            }
            return site.clone();
        }
        for (row, spec) in site.rows.iter().zip(self.specs()) {
            fleet.configure(*row, spec, now);
            if self.upstream.api_key != site.configured.api_key {
                fleet.learn_new_key(*row, now);
            }
        }
        Arc::new(site.reconfigured(self.upstream.clone(), self.target(&site.rows)))
    }

    /// It has begun to leave, or is to stay after all.
    fn is_told_otherwise(&self, site: &Site, fleet: &Fleet) -> bool {
        let drains = |row: &UpstreamId| fleet.upstream(*row).is_some_and(|upstream| upstream.spec.drain);
        site.rows.iter().any(|row| drains(row) != self.drains())
    }

    fn drains(&self) -> bool {
        self.upstream.drain || self.place.is_some_and(|place| place.leaves)
    }

    /// A new site. `None`: the fleet is full.
    pub fn join(&self, fleet: &mut Fleet) -> Option<Arc<Site>> {
        let rows: Vec<UpstreamId> = self.specs().map_while(|spec| fleet.join(spec)).collect();
        if rows.len() < self.specs().count() {
            log::error!("{}: there are too many rows for it to join", self.name);
            rows.into_iter().for_each(|row| fleet.leave(row));
            return None;
        }
        let target = self.target(&rows);
        let site = Site::new(self.name.clone(), self.upstream.clone(), rows, target);
        site.address.store(self.place.map(|place| Arc::new(place.address)));
        if site.is_insecure() {
            log::warn!("{}: {UNCHECKED}", site.name);
        }
        Some(Arc::new(site))
    }

    /// Of each of its rows.
    fn specs(&self) -> impl Iterator<Item = Spec> + '_ {
        let ranks = self.upstream.data_parallel;
        (0..ranks.unwrap_or(1)).map(move |rank| self.spec(row_name(&self.name, ranks.map(|_| rank))))
    }

    fn spec(&self, name: String) -> Spec {
        let upstream = self.upstream;
        Spec {
            name,
            engine: upstream.engine.and_then(engines::find).map(|engine| engine.traits()),
            slots: upstream.slots,
            memory_bytes: upstream.memory.map(|memory| memory.0),
            bandwidth_bytes_s: upstream.memory_bandwidth.map(|bandwidth| bandwidth.0),
            weight: upstream.weight,
            tier: upstream.tier,
            drain: self.drains(),
        }
    }

    fn target(&self, rows: &[UpstreamId]) -> Target {
        let upstream = self.upstream;
        let api_key = upstream.api_key.as_ref().map(|key| key.expose().to_string());
        let mut target = Target::of(&upstream.url).with_bearer(api_key);
        target.forwards_keys = upstream.auth == Auth::Forward;
        match rows.first() {
            Some(row) => target.of_row(*row, upstream.tls.as_ref()),
            None => target,
        }
    }
}
