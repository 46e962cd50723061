//! One list of models for many nodes, in each dialect's form.
//!
//! Pure functions over what the nodes listed last; nobody who asks waits for a node. Each model is
//! shown once, under one of its spellings (`names`). Of several entries the one that tells most is
//! shown, and equal ones are decided by their content, so the order of the nodes never matters.
//! Entries are otherwise passed on as the engine wrote them.

mod drift;
mod names;
mod quantisation;
mod timestamp;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

pub use drift::{Drift, Kind, drifts, labels};
pub use names::Spellings;

use crate::engines::Listing;
use crate::routing::name::{self, Naming};

/// What one node listed last.
#[derive(Clone, Debug)]
pub struct Node<'a> {
    pub name: &'a str,
    /// Calls in Ollama's dialect reach this node's models.
    pub speaks_ollama: bool,
    pub naming: Naming,
    pub listings: &'a [Listing],
    /// Configured names that this node serves, each with the model behind it.
    pub aliases: Vec<(&'a str, &'a Listing)>,
    /// The window that each of its models runs with, or ran with last, where that is known.
    pub windows: BTreeMap<String, u32>,
}

/// One node's copy of a model, under the name that clients see.
#[derive(Clone, Copy, Debug)]
pub struct Copied<'a> {
    node: &'a Node<'a>,
    listing: &'a Listing,
    shown: &'a str,
    is_alias: bool,
}

/// What clients see: the nodes' own models, and what they serve under the configured names. These
/// are looked up first, so a model that has the name of one is not seen beside it.
pub fn seen<'a>(nodes: &'a [Node<'a>], configured: &BTreeSet<String>) -> Vec<Copied<'a>> {
    let own = names::own(nodes).into_iter();
    let mut seen: Vec<Copied> = own.filter(|copy| !configured.contains(&name::fold(copy.shown))).collect();
    for node in nodes {
        let aliases = node.aliases.iter();
        seen.extend(aliases.map(|&(shown, listing)| Copied { node, listing, shown, is_alias: true }));
    }
    seen
}

/// `/api/tags`: each model once, with the names of the nodes that hold it.
pub fn tags(seen: &[Copied]) -> Value {
    let (native, other): (Vec<Copied>, Vec<Copied>) = seen.iter().partition(|copy| copy.node.speaks_ollama);
    let mut entries: BTreeMap<&str, Value> = BTreeMap::new();
    let mut natively: BTreeSet<String> = BTreeSet::new();
    for (shown, copies) in by_name(native.iter().filter(|copy| copy.listing.tags.is_some())) {
        natively.insert(name::fold(shown));
        let told = copies.iter().filter_map(|copy| copy.listing.tags.as_ref()).filter(|entry| entry.is_object());
        if let Some(entry) = richest(told.map(Cow::Borrowed)) {
            entries.insert(shown, with_holders(named(entry, &["name", "model"], shown), &copies));
        }
    }
    // Models of other engines are reached by translation, but only where no node speaks natively.
    for (shown, copies) in by_name(other.iter().filter(|copy| !natively.contains(&name::fold(copy.shown)))) {
        entries.insert(shown, with_holders(as_ollama(shown), &copies));
    }
    json!({ "models": entries.into_values().collect::<Vec<_>>() })
}

/// `/api/ps`: every copy in memory, with the name of its node.
pub fn ps(seen: &[Copied]) -> Value {
    let mut copies = BTreeMap::new();
    for copy in seen.iter().filter(|copy| copy.node.speaks_ollama && !copy.is_alias) {
        if let Some(entry) = copy.listing.ps.as_ref().filter(|entry| entry.is_object()) {
            let mut entry = named(entry.clone(), &["name", "model"], copy.shown);
            entry["node"] = copy.node.name.into();
            copies.insert((copy.shown, copy.node.name, copy.listing.name.as_str()), entry);
        }
    }
    json!({ "models": copies.into_values().collect::<Vec<_>>() })
}

/// The entries of `/v1/models` by id: every model, Ollama's too.
pub fn openai_models<'a>(seen: &[Copied<'a>]) -> BTreeMap<&'a str, Value> {
    let groups = by_name(seen.iter()).into_iter();
    let entries = groups.filter_map(|(shown, copies)| {
        let told = copies.iter().map(|copy| match &copy.listing.openai {
            Some(entry) => Cow::Borrowed(entry),
            None => Cow::Owned(as_openai(copy.listing)),
        });
        Some((shown, named(richest(told)?, &["id"], shown)))
    });
    entries.collect()
}

/// The copies under each name.
fn by_name<'a, 'b>(copies: impl Iterator<Item = &'b Copied<'a>>) -> BTreeMap<&'a str, Vec<Copied<'a>>>
where
    'a: 'b,
{
    let mut names: BTreeMap<&str, Vec<Copied>> = BTreeMap::new();
    for copy in copies {
        names.entry(copy.shown).or_default().push(*copy);
    }
    names
}

fn with_holders(mut entry: Value, copies: &[Copied]) -> Value {
    let holders: BTreeSet<&str> = copies.iter().map(|copy| copy.node.name).collect();
    entry["nodes"] = holders.into_iter().collect();
    entry
}

/// The entry under the name that clients see.
fn named(mut entry: Value, keys: &[&str], shown: &str) -> Value {
    if let Some(fields) = entry.as_object_mut() {
        fields.extend(keys.iter().map(|key| (key.to_string(), shown.into())));
    }
    entry
}

/// An entry with the fields that Ollama's clients insist on, for a model of which they are not known.
fn as_ollama(name: &str) -> Value {
    json!({
        "name": name,
        "model": name,
        "modified_at": "1970-01-01T00:00:00Z",
        "size": 0,
        "digest": "",
        "details": {
            "parent_model": "", "format": "", "family": "", "families": null,
            "parameter_size": "", "quantization_level": "",
        },
    })
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

/// The entry that tells most; of those, the one whose text comes last.
fn richest<'a>(entries: impl Iterator<Item = Cow<'a, Value>>) -> Option<Value> {
    let mut best: Vec<Cow<Value>> = Vec::new();
    let mut most = 0;
    for entry in entries {
        let told = facts(&entry);
        if told > most {
            best.clear();
            most = told;
        }
        if told == most && !best.contains(&entry) {
            best.push(entry);
        }
    }
    let one = if best.len() < 2 { best.pop() } else { last_by_text(best) };
    one.map(Cow::into_owned)
}

fn last_by_text(entries: Vec<Cow<Value>>) -> Option<Cow<Value>> {
    let texts = entries.into_iter().map(|entry| (entry.to_string(), entry));
    texts.max_by(|(a, _), (b, _)| a.cmp(b)).map(|(_, entry)| entry)
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
