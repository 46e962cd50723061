//! Which copies of several nodes are one model to a client, and under which spelling it is shown.
//!
//! Ollama's models meet by Ollama's rules (`routing::name`): `moss`, `moss:latest` and
//! `library/Moss:latest` are one. Where one node holds two models that differ in case alone, case
//! tells them apart everywhere. Other engines' names are shown and found to the letter.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Copied, Node};
use crate::routing::name::{self, Naming};

/// The nodes' own models.
pub fn own<'a>(nodes: &'a [Node<'a>]) -> Vec<Copied<'a>> {
    let best = best_spellings(nodes);
    let mut own = Vec::new();
    for node in nodes {
        for listing in node.listings {
            let shown = match node.naming {
                Naming::Ollama => best.get(&listing.name).copied().unwrap_or(&listing.name),
                Naming::Exact => &listing.name,
            };
            own.push(Copied { node, listing, shown, is_alias: false });
        }
    }
    own
}

/// Of every spelling on an Ollama node the one that is shown for it.
fn best_spellings<'a>(nodes: &'a [Node<'a>]) -> HashMap<&'a String, &'a str> {
    // By the folded and then by the canonical name.
    let mut models: BTreeMap<String, BTreeMap<String, BTreeSet<&String>>> = BTreeMap::new();
    let mut told_by_case: BTreeSet<String> = BTreeSet::new();
    for node in nodes.iter().filter(|node| node.naming == Naming::Ollama) {
        let mut here: HashMap<String, String> = HashMap::new();
        for listing in node.listings {
            let (folded, canonical) = (name::fold(&listing.name), name::canonical(&listing.name));
            if here.insert(folded.clone(), canonical.clone()).is_some_and(|other| other != canonical) {
                told_by_case.insert(folded.clone());
            }
            models.entry(folded).or_default().entry(canonical).or_default().insert(&listing.name);
        }
    }
    let mut best = HashMap::new();
    for (folded, by_case) in &models {
        if told_by_case.contains(folded) {
            by_case.values().for_each(|spellings| show_one(spellings.iter().copied(), &mut best));
        } else {
            show_one(by_case.values().flatten().copied(), &mut best);
        }
    }
    best
}

fn show_one<'a>(spellings: impl Iterator<Item = &'a String> + Clone, best: &mut HashMap<&'a String, &'a str>) {
    let Some(shown) = spellings.clone().min_by_key(|spelling| plainness(spelling)) else { return };
    best.extend(spellings.map(|spelling| (spelling, shown.as_str())));
}

/// Ollama's own way first: with a tag, without what is implied, in lower case.
fn plainness(spelling: &str) -> (bool, bool, &str) {
    (name::canonical(spelling) != spelling, spelling.bytes().any(|b| b.is_ascii_uppercase()), spelling)
}

/// Finds what is shown by any spelling under which it may be asked for.
#[derive(Clone, Debug, Default)]
pub struct Spellings {
    shown: BTreeMap<String, Vec<String>>,
}

impl Spellings {
    /// Of Ollama's models and of the configured names.
    pub fn of(seen: &[Copied]) -> Spellings {
        let mut spellings = Spellings::default();
        for copy in seen.iter().filter(|copy| copy.is_alias || copy.node.naming == Naming::Ollama) {
            let shown = spellings.shown.entry(name::fold(copy.shown)).or_default();
            if !shown.iter().any(|known| known == copy.shown) {
                shown.push(copy.shown.to_string());
            }
        }
        spellings
    }

    /// The name that is shown for what this one means.
    pub fn meant(&self, name: &str) -> Option<&str> {
        let alike = self.shown.get(&name::fold(name))?;
        let canonical = name::canonical(name);
        let to_the_letter = alike.iter().find(|shown| name::canonical(shown) == canonical);
        let unique = if let [only] = alike.as_slice() { Some(only) } else { None };
        to_the_letter.or(unique).map(String::as_str)
    }
}
