//! All rows, in one place; they join and leave while the process runs.
//!
//! What is configured and what is behind discovered names are laid together into the rows that are wanted.
//! Those that are there already stay, with all that was learnt of them; the others leave or join. The
//! fleet and everybody who asks for the nodes see each change in one step. A row that has left is still
//! found by its id for a while: requests end there, and receipts name it.

mod drains;
mod name;
mod wanted;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::node::{Node, row_name};
use super::shared_fleet::SharedFleet;
use super::site::Site;
use crate::config;
use crate::routing::fleet::{Fleet, UpstreamId};
use crate::routing::group::{Group, Groups, Target};
use drains::Drains;
pub use name::Name;
use wanted::Wanted;
pub use wanted::{ENDPOINTS_MAX, Place, rows_max};

pub struct Roster {
    fleet: Arc<SharedFleet>,
    nodes: ArcSwap<Nodes>,
    /// What the rows are made of; held through each change.
    sources: Mutex<Sources>,
    /// Counts the reasons to look at the rows before their time.
    news: watch::Sender<u64>,
}

/// The rows at one time.
#[derive(Default)]
pub struct Nodes {
    /// In the order of the configuration.
    all: Vec<Arc<Node>>,
    /// The same in the order of their ids, to be found by them.
    by_id: Vec<Arc<Node>>,
    left: VecDeque<Arc<Node>>,
    names: Vec<Arc<Name>>,
}

/// Rows that have left and are still found; receipts that name them do not live longer.
const LEFT_MAX: usize = 1024;

#[derive(Default)]
struct Sources {
    upstreams: Vec<config::Upstream>,
    models: Vec<config::Group>,
    /// By the name of the upstream; what the latest lookup that was answered told.
    found: HashMap<String, Vec<Place>>,
    drains: Drains,
}

impl Roster {
    pub fn new(fleet: Arc<SharedFleet>) -> Roster {
        Roster { fleet, nodes: ArcSwap::default(), sources: Mutex::default(), news: watch::Sender::new(0) }
    }

    /// The rows now.
    pub fn nodes(&self) -> Arc<Nodes> {
        self.nodes.load_full()
    }

    /// Makes the rows those of this configuration. What stays keeps what was learnt of it.
    pub fn apply(&self, upstreams: &[config::Upstream], models: &[config::Group]) {
        self.apply_with(upstreams, models, |_| ());
    }

    /// The same, with more that is to change of the fleet in the same step.
    pub fn apply_with(&self, upstreams: &[config::Upstream], models: &[config::Group], more: impl FnOnce(&mut Fleet)) {
        let mut sources = self.sources.lock();
        sources.upstreams = upstreams.to_vec();
        sources.models = models.to_vec();
        sources.found.retain(|name, _| upstreams.iter().any(|upstream| upstream.name == *name));
        sources.drains.retain(upstreams);
        self.change(&sources, more);
    }

    /// An operator takes a row, or all rows of an upstream, out of service or lets them in again. These are
    /// they; `None`: there is nothing of that name.
    pub fn drain(&self, name: &str, drain: bool) -> Option<Vec<Arc<Node>>> {
        let mut sources = self.sources.lock();
        let nodes = self.nodes();
        let named: Vec<Arc<Node>> = nodes.iter().filter(|node| node.goes_by(name)).cloned().collect();
        // A discovered name may have no row just now.
        if named.is_empty() && !sources.upstreams.iter().any(|upstream| upstream.name == name) {
            return None;
        }
        let Sources { upstreams, drains, .. } = &mut *sources;
        drains.set(name, drain, upstreams);
        self.fleet.with(|fleet, now| sources.drains.tell(&nodes, fleet, now));
        Some(named)
    }

    /// All that operators drain, by name.
    pub fn drained(&self) -> Vec<String> {
        self.sources.lock().drains.names()
    }

    /// Takes over what operators drained at another process; gives how many names of it are known here.
    pub fn recall_drained(&self, names: &[String]) -> usize {
        let mut sources = self.sources.lock();
        let Sources { upstreams, drains, .. } = &mut *sources;
        let recalled = drains.recall(names, upstreams);
        let nodes = self.nodes();
        self.fleet.with(|fleet, now| sources.drains.tell(&nodes, fleet, now));
        recalled
    }

    /// The name under which an operator drains a row: its own, or that of its upstream.
    pub fn drained_as(&self, node: &Node) -> Option<String> {
        self.sources.lock().drains.of(node).map(str::to_owned)
    }

    /// These places are behind a discovered name now.
    pub fn found(&self, name: &Name, places: Vec<Place>) {
        let mut sources = self.sources.lock();
        // Looked up for a configuration that is still in force.
        if !sources.upstreams.contains(&name.upstream) {
            return;
        }
        let known = sources.found.get(&name.upstream.name).map_or(&[][..], Vec::as_slice);
        let chosen = wanted::choose(places, known, rows_max(name.upstream.discover.as_ref()));
        if sources.found.get(&name.upstream.name) != Some(&chosen) {
            sources.found.insert(name.upstream.name.clone(), chosen);
            self.change(&sources, |_| ());
        }
    }

    /// What was found last behind a discovered name.
    pub fn behind(&self, name: &Name) -> Vec<Place> {
        self.sources.lock().found.get(&name.upstream.name).cloned().unwrap_or_default()
    }

    /// Asks for a look at the rows before its time.
    pub fn ask_for_a_look(&self) {
        self.news.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Woken by each change of the rows, and when somebody asks for a look.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    fn change(&self, sources: &Sources, more: impl FnOnce(&mut Fleet)) {
        let before = self.nodes();
        let wanted = wanted::rows(&sources.upstreams, &sources.found);
        let after = self.fleet.with(|fleet, now| {
            more(fleet);
            let mut here: HashMap<&str, &Arc<Site>> = before.sites().map(|site| (site.name.as_str(), site)).collect();
            let kept = |wanted: &Wanted| here.remove(wanted.name.as_str()).filter(|site| wanted.is_same(site));
            let kept: Vec<Option<&Arc<Site>>> = wanted.iter().map(kept).collect();
            let stays: HashSet<*const Site> = kept.iter().flatten().map(|site| Arc::as_ptr(site)).collect();
            for gone in before.sites().filter(|site| !stays.contains(&Arc::as_ptr(site))) {
                log::info!("{}: leaves", gone.name);
                gone.rows.iter().for_each(|row| fleet.leave(*row));
            }
            let site = |(wanted, kept): (&Wanted, Option<&Arc<Site>>)| match kept {
                Some(site) => Some(wanted.keep(site, fleet, now)),
                None => wanted.join(fleet),
            };
            let sites: Vec<Arc<Site>> = wanted.iter().zip(kept).filter_map(site).collect();
            let after = Nodes::new(&sites, &before, names(&sources.upstreams, &before.names));
            fleet.rules.groups = groups(&sources.models, &after);
            sources.drains.tell(&after, fleet, now);
            // Before the fleet is let go of, so that whoever picks a row finds its node.
            self.nodes.store(Arc::new(after));
            self.nodes()
        });
        for gone in before.sites().filter(|site| !after.has(site)) {
            gone.listings.store(Arc::default());
        }
        self.ask_for_a_look();
    }
}

impl Nodes {
    fn new(sites: &[Arc<Site>], before: &Nodes, names: Vec<Arc<Name>>) -> Nodes {
        let node_of = |node: Arc<Node>| match before.here(node.id) {
            Some(same) if Arc::ptr_eq(&same.site, &node.site) => same.clone(),
            _ => node,
        };
        let all: Vec<Arc<Node>> = sites.iter().flat_map(Node::all_of).map(node_of).collect();
        let mut by_id = all.clone();
        by_id.sort_by_key(|node| node.id);
        let mut nodes = Nodes { all, by_id, left: VecDeque::new(), names };
        let gone = before.all.iter().filter(|node| nodes.here(node.id).is_none());
        let mut left: VecDeque<Arc<Node>> = before.left.iter().chain(gone).cloned().collect();
        left.drain(..left.len().saturating_sub(LEFT_MAX));
        nodes.left = left;
        nodes
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Arc<Node>> {
        self.all.iter()
    }

    /// Each site once, in order.
    pub fn sites(&self) -> impl Iterator<Item = &Arc<Site>> {
        self.all.iter().filter(|node| node.is_led_by(node.id)).map(|node| &node.site)
    }

    /// A row, be it that it left not long ago.
    pub fn find(&self, id: UpstreamId) -> Option<&Arc<Node>> {
        self.here(id).or_else(|| self.left.iter().rev().find(|node| node.id == id))
    }

    /// A row that has not left.
    pub fn here(&self, id: UpstreamId) -> Option<&Arc<Node>> {
        self.by_id.binary_search_by_key(&id, |node| node.id).ok().map(|at| &self.by_id[at])
    }

    /// Rows that left not long ago.
    pub fn left(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.left.iter()
    }

    /// Whether that very site is in force: neither left nor configured anew.
    pub fn has(&self, site: &Arc<Site>) -> bool {
        let here = site.rows.first().and_then(|row| self.here(*row));
        here.is_some_and(|node| Arc::ptr_eq(&node.site, site))
    }

    /// The host names whose addresses are rows.
    pub fn names(&self) -> &[Arc<Name>] {
        &self.names
    }

    /// How many rows are behind a discovered name.
    pub fn rows_of(&self, name: &Name) -> usize {
        self.all.iter().filter(|node| node.site.configured.name == name.upstream.name).count()
    }

    /// Whether some address is known behind every discovered name.
    pub fn are_found(&self) -> bool {
        let has_row = |name: &Arc<Name>| self.sites().any(|site| site.configured.name == name.upstream.name);
        self.names.iter().all(has_row)
    }
}

/// The names of these upstreams, with what is wrong with those that stay.
fn names(upstreams: &[config::Upstream], before: &[Arc<Name>]) -> Vec<Arc<Name>> {
    let discovered = upstreams.iter().filter(|upstream| upstream.discover.is_some());
    let name = |upstream: &config::Upstream| {
        let same = before.iter().find(|name| name.upstream == *upstream);
        let made = || Arc::new(Name::new(upstream.clone()));
        same.cloned().unwrap_or_else(made)
    };
    discovered.map(name).collect()
}

/// The configured names over several nodes' models, for the rows that there are. An upstream of several
/// rows serves with each of them; what it may be given in a minute is shared out among them.
fn groups(models: &[config::Group], nodes: &Nodes) -> Groups {
    let targets = |written: &config::GroupTarget| {
        let rows: Vec<UpstreamId> = nodes
            .sites()
            .filter(|site| site.configured.name == written.upstream)
            .flat_map(|site| site.rows.iter().copied())
            .collect();
        let share = |limit: Option<u32>| limit.map(|limit| (limit / rows.len().max(1) as u32).max(1));
        let (rpm, tpm) = (share(written.rpm), share(written.tpm));
        let target = |upstream| Target {
            upstream,
            model: written.model.clone(),
            weight: written.weight,
            rpm,
            tpm,
            cost: written.cost,
        };
        rows.iter().map(|row| target(*row)).collect::<Vec<_>>()
    };
    let group = |written: &config::Group| Group {
        name: written.name.clone(),
        targets: written.targets.iter().flat_map(targets).collect(),
        fallbacks: written.fallbacks.clone(),
        policy: written.policy,
    };
    Groups::new(models.iter().map(group).collect())
}

#[cfg(test)]
mod tests;
