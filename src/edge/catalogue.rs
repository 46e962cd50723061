//! One list of models for many nodes, in each dialect's form.
//!
//! Pure functions over what the nodes listed last; nobody who asks waits for a node. Of several
//! entries with one name the one that tells most is shown, and equal ones are decided by their
//! content, so the order of the nodes never matters. Entries are otherwise passed on as the engine
//! wrote them.

mod timestamp;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::engines::Listing;
use crate::routing::name;

/// What one node listed last.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    pub name: &'a str,
    /// Calls in Ollama's dialect reach this node's models.
    pub speaks_ollama: bool,
    pub listings: &'a [Listing],
}

/// `/api/tags`: each model once, with the names of the nodes that hold it.
pub fn tags(nodes: &[Node]) -> Value {
    let models = merge_tags(nodes).into_values().map(|(mut entry, holders)| {
        entry["nodes"] = holders.into();
        entry
    });
    json!({ "models": models.collect::<Vec<_>>() })
}

/// `/api/ps`: every copy in memory, with the name of its node.
pub fn ps(nodes: &[Node]) -> Value {
    let mut copies = BTreeMap::new();
    for node in nodes.iter().filter(|node| node.speaks_ollama) {
        for listing in node.listings {
            if let Some(mut entry) = listing.ps.clone().filter(Value::is_object) {
                entry["node"] = node.name.into();
                copies.insert((&listing.name, node.name), entry);
            }
        }
    }
    json!({ "models": copies.into_values().collect::<Vec<_>>() })
}

/// `/v1/models`: every model, Ollama's too.
pub fn openai_models(nodes: &[Node]) -> Value {
    json!({ "object": "list", "data": merge_openai(nodes).into_values().collect::<Vec<_>>() })
}

/// `/v1/models/{id}`. Ollama's models answer to every spelling that Ollama would accept.
pub fn openai_model(nodes: &[Node], id: &str) -> Option<Value> {
    let mut models = merge_openai(nodes);
    if let Some(model) = models.remove(id) {
        return Some(model);
    }
    let folded = name::fold(id);
    let listings = nodes.iter().flat_map(|node| node.listings);
    let alike = listings.filter(|listing| is_ollamas(listing) && name::fold(&listing.name) == folded);
    models.remove(alike.map(|listing| listing.name.as_str()).min()?)
}

/// A name under which nodes hold different models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub name: String,
    /// Digest to the nodes that report it.
    pub digests: BTreeMap<String, Vec<String>>,
}

/// Names that do not mean the same everywhere, for operators to see.
pub fn conflicts(nodes: &[Node]) -> Vec<Conflict> {
    let mut names: BTreeMap<&str, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for node in nodes {
        for listing in node.listings {
            let digest = listing.tags.as_ref().and_then(|entry| entry["digest"].as_str());
            if let Some(digest) = digest {
                let holders = names.entry(&listing.name).or_default().entry(digest.to_string()).or_default();
                holders.push(node.name.to_string());
                holders.sort();
            }
        }
    }
    let differing = names.into_iter().filter(|(_, digests)| digests.len() > 1);
    differing.map(|(name, digests)| Conflict { name: name.to_string(), digests }).collect()
}

fn merge_tags<'a>(nodes: &[Node<'a>]) -> BTreeMap<&'a str, (Value, Vec<&'a str>)> {
    let mut merged: BTreeMap<&str, (Value, Vec<&str>)> = BTreeMap::new();
    // Models of other engines are reached by translation, but only where no node speaks natively.
    for native in [true, false] {
        let natively_held: Vec<&str> = if native { Vec::new() } else { merged.keys().copied().collect() };
        for node in nodes.iter().filter(|node| node.speaks_ollama == native) {
            for listing in node.listings.iter().filter(|listing| !natively_held.contains(&listing.name.as_str())) {
                let entry = if native { listing.tags.clone() } else { Some(as_ollama(listing)) };
                if let Some(entry) = entry.filter(Value::is_object) {
                    let (kept, holders) = merged.entry(&listing.name).or_insert((Value::Null, Vec::new()));
                    keep_richer(kept, entry);
                    holders.push(node.name);
                    holders.sort_unstable();
                }
            }
        }
    }
    merged
}

/// An entry with the fields that Ollama's clients insist on, for a model of which they are not known.
fn as_ollama(listing: &Listing) -> Value {
    json!({
        "name": listing.name,
        "model": listing.name,
        "modified_at": "1970-01-01T00:00:00Z",
        "size": 0,
        "digest": "",
        "details": {
            "parent_model": "", "format": "", "family": "", "families": null,
            "parameter_size": "", "quantization_level": "",
        },
    })
}

fn merge_openai<'a>(nodes: &[Node<'a>]) -> BTreeMap<&'a str, Value> {
    let mut merged = BTreeMap::new();
    for listing in nodes.iter().flat_map(|node| node.listings) {
        let entry = listing.openai.clone().unwrap_or_else(|| as_openai(listing));
        keep_richer(merged.entry(listing.name.as_str()).or_insert(Value::Null), entry);
    }
    merged
}

fn is_ollamas(listing: &Listing) -> bool {
    listing.tags.is_some() || listing.ps.is_some()
}

/// An Ollama model as Ollama's own `/v1/models` shows it.
fn as_openai(listing: &Listing) -> Value {
    let modified_at = listing.tags.as_ref().and_then(|entry| entry["modified_at"].as_str());
    let created = modified_at.and_then(timestamp::unix_secs).unwrap_or(0);
    json!({ "id": listing.name, "object": "model", "created": created, "owned_by": namespace(&listing.name) })
}

/// `hub.test/org/name:tag` and `org/name` belong to `org`, a bare name to the library.
fn namespace(name: &str) -> &str {
    name.rsplit('/').nth(1).unwrap_or("library")
}

fn keep_richer(kept: &mut Value, entry: Value) {
    if by_richness(&entry, kept) == Ordering::Greater {
        *kept = entry;
    }
}

fn by_richness(a: &Value, b: &Value) -> Ordering {
    facts(a).cmp(&facts(b)).then_with(|| a.to_string().cmp(&b.to_string()))
}

/// How much an entry tells.
fn facts(value: &Value) -> usize {
    match value {
        Value::Null => 0,
        Value::Object(fields) => fields.values().map(facts).sum(),
        Value::Array(items) => items.iter().map(facts).sum(),
        Value::String(text) => usize::from(!text.is_empty()),
        Value::Bool(_) | Value::Number(_) => 1,
    }
}

#[cfg(test)]
mod tests;
