//! The merged lists as bytes, made again only when a node's own list or its health has changed.
//!
//! Merging clones every entry of every node; clients ask for lists often, and some all the time.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use serde_json::Value;

use super::catalogue;
use super::ingress::Ingress;
use super::roster::Nodes;
use super::site::Site;
use crate::engines::Listing;
use crate::routing::ask::Dialect;
use crate::routing::group::Groups;
use crate::routing::name::Naming;

/// The latest lists, and what they were made of.
#[derive(Default)]
pub struct Lists {
    made: ArcSwapOption<Made>,
}

pub struct Made {
    nodes: Arc<Nodes>,
    of: Vec<Option<Arc<Vec<Listing>>>>,
    pub tags: Bytes,
    pub ps: Bytes,
    pub openai: Bytes,
}

impl Lists {
    /// The lists of the nodes that are up now.
    pub fn now(&self, ingress: &Ingress) -> Arc<Made> {
        let nodes = ingress.roster.nodes();
        let of = live(ingress, &nodes);
        let is_current = |made: &Arc<Made>| Arc::ptr_eq(&made.nodes, &nodes) && is_same(&made.of, &of);
        self.made.load_full().filter(is_current).unwrap_or_else(|| {
            let made = Arc::new(make(ingress, nodes, of));
            self.made.store(Some(made.clone()));
            made
        })
    }
}

/// One OpenAI entry, by any spelling its node accepts.
pub fn openai_model(ingress: &Ingress, id: &str) -> Option<Value> {
    let nodes = ingress.roster.nodes();
    merged(ingress, &nodes, &live(ingress, &nodes), |nodes| catalogue::openai_model(nodes, id))
}

/// Names under which nodes that are up hold different models.
pub fn conflicts(ingress: &Ingress) -> Vec<catalogue::Conflict> {
    let nodes = ingress.roster.nodes();
    merged(ingress, &nodes, &live(ingress, &nodes), catalogue::conflicts)
}

/// Of each site its list, if it is up.
fn live(ingress: &Ingress, nodes: &Nodes) -> Vec<Option<Arc<Vec<Listing>>>> {
    let up: Vec<bool> = ingress.fleet.with(|fleet, _| {
        let up = |row| fleet.upstream(row).is_some_and(|upstream| upstream.healthy);
        nodes.sites().map(|site| site.rows.iter().any(|row| up(*row))).collect()
    });
    nodes.sites().zip(up).map(|(site, up)| up.then(|| site.listings.load_full())).collect()
}

fn is_same(a: &[Option<Arc<Vec<Listing>>>], b: &[Option<Arc<Vec<Listing>>>]) -> bool {
    let same = |(a, b): (&Option<Arc<_>>, &Option<Arc<_>>)| match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

fn make(ingress: &Ingress, nodes: Arc<Nodes>, of: Vec<Option<Arc<Vec<Listing>>>>) -> Made {
    let bytes = |merge: fn(&[catalogue::Node]) -> Value| Bytes::from(merged(ingress, &nodes, &of, merge).to_string());
    let (tags, ps, openai) = (bytes(catalogue::tags), bytes(catalogue::ps), bytes(catalogue::openai_models));
    Made { nodes, of, tags, ps, openai }
}

fn merged<T>(
    ingress: &Ingress,
    nodes: &Nodes,
    of: &[Option<Arc<Vec<Listing>>>],
    merge: impl Fn(&[catalogue::Node]) -> T,
) -> T {
    let groups = ingress.fleet.with(|fleet, _| fleet.rules.groups.clone());
    let listings: Vec<Option<Vec<Listing>>> = nodes
        .sites()
        .zip(of)
        .map(|(node, listings)| listings.as_ref().map(|listings| with_groups(node, listings, &groups)))
        .collect();
    let nodes: Vec<catalogue::Node> = nodes
        .sites()
        .zip(&listings)
        .filter_map(|(node, listings)| {
            let speaks_ollama = node.engine.get().is_some_and(|engine| engine.dialects.contains(&Dialect::Ollama));
            Some(catalogue::Node { name: &node.name, listings: listings.as_ref()?, speaks_ollama })
        })
        .collect();
    merge(&nodes)
}

/// A node's models, and once more under the name of each group that they serve.
fn with_groups(node: &Site, listings: &[Listing], groups: &Groups) -> Vec<Listing> {
    let mut all = listings.to_vec();
    for group in groups.listed() {
        let mine = group.targets.iter().filter(|target| node.rows.contains(&target.upstream));
        let served = mine.flat_map(|target| listings.iter().find(|listing| is_named(node, listing, &target.model)));
        all.extend(served.take(1).map(|listing| renamed(listing, &group.name)));
    }
    all
}

fn is_named(node: &Site, listing: &Listing, model: &str) -> bool {
    let naming = node.engine.get().map_or(Naming::Exact, |engine| engine.naming);
    naming.is_same(&listing.name, model)
}

fn renamed(listing: &Listing, name: &str) -> Listing {
    let entry = |entry: &Option<Value>, keys: &[&str]| {
        let mut entry = entry.clone()?;
        let fields = entry.as_object_mut()?;
        fields.extend(keys.iter().map(|key| (key.to_string(), name.into())));
        Some(entry)
    };
    Listing {
        name: name.to_string(),
        tags: entry(&listing.tags, &["name", "model"]),
        ps: None,
        openai: entry(&listing.openai, &["id"]),
    }
}
