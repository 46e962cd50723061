//! The merged lists as bytes, made again only when a node's own list or its health has changed.
//!
//! Merging clones every entry of every node; clients ask for lists often, and some all the time.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use serde_json::Value;

use super::catalogue;
use super::ingress::Ingress;
use super::node::Node;
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
    of: Vec<Option<Arc<Vec<Listing>>>>,
    pub tags: Bytes,
    pub ps: Bytes,
    pub openai: Bytes,
}

impl Lists {
    /// The lists of the nodes that are up now.
    pub fn now(&self, ingress: &Ingress) -> Arc<Made> {
        let of = live(ingress);
        let made = self.made.load_full().filter(|made| is_same(&made.of, &of));
        made.unwrap_or_else(|| {
            let made = Arc::new(make(ingress, of));
            self.made.store(Some(made.clone()));
            made
        })
    }
}

/// One OpenAI entry, by any spelling its node accepts.
pub fn openai_model(ingress: &Ingress, id: &str) -> Option<Value> {
    merged(ingress, &live(ingress), |nodes| catalogue::openai_model(nodes, id))
}

/// Names under which nodes that are up hold different models.
pub fn conflicts(ingress: &Ingress) -> Vec<catalogue::Conflict> {
    merged(ingress, &live(ingress), catalogue::conflicts)
}

/// Of each node its list, if it is up.
fn live(ingress: &Ingress) -> Vec<Option<Arc<Vec<Listing>>>> {
    let up: Vec<bool> = ingress.fleet.with(|fleet, _| {
        let up = |id| fleet.upstream(id).is_some_and(|upstream| upstream.healthy);
        ingress.nodes.iter().map(|node| up(node.id)).collect()
    });
    ingress.nodes.iter().zip(up).map(|(node, up)| up.then(|| node.listings.load_full())).collect()
}

fn is_same(a: &[Option<Arc<Vec<Listing>>>], b: &[Option<Arc<Vec<Listing>>>]) -> bool {
    let same = |(a, b): (&Option<Arc<_>>, &Option<Arc<_>>)| match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

fn make(ingress: &Ingress, of: Vec<Option<Arc<Vec<Listing>>>>) -> Made {
    let bytes = |merge: fn(&[catalogue::Node]) -> Value| Bytes::from(merged(ingress, &of, merge).to_string());
    Made { tags: bytes(catalogue::tags), ps: bytes(catalogue::ps), openai: bytes(catalogue::openai_models), of }
}

fn merged<T>(ingress: &Ingress, of: &[Option<Arc<Vec<Listing>>>], merge: impl Fn(&[catalogue::Node]) -> T) -> T {
    let groups = ingress.fleet.with(|fleet, _| fleet.rules.groups.clone());
    let listings: Vec<Option<Vec<Listing>>> = ingress
        .nodes
        .iter()
        .zip(of)
        .map(|(node, listings)| listings.as_ref().map(|listings| with_groups(node, listings, &groups)))
        .collect();
    let nodes: Vec<catalogue::Node> = ingress
        .nodes
        .iter()
        .zip(&listings)
        .filter_map(|(node, listings)| {
            let speaks_ollama = node.engine.get().is_some_and(|engine| engine.dialects.contains(&Dialect::Ollama));
            Some(catalogue::Node { name: &node.name, listings: listings.as_ref()?, speaks_ollama })
        })
        .collect();
    merge(&nodes)
}

/// A node's models, and once more under the name of each group that they serve.
fn with_groups(node: &Node, listings: &[Listing], groups: &Groups) -> Vec<Listing> {
    let mut all = listings.to_vec();
    for group in groups.listed() {
        let mine = group.targets.iter().filter(|target| target.upstream == node.id);
        let served = mine.flat_map(|target| listings.iter().find(|listing| is_named(node, listing, &target.model)));
        all.extend(served.take(1).map(|listing| renamed(listing, &group.name)));
    }
    all
}

fn is_named(node: &Node, listing: &Listing, model: &str) -> bool {
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
