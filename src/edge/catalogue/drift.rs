//! Names that do not mean the same on all nodes, for operators to see.
//!
//! Names meet as they do in the lists. What a node does not tell is not compared, so two nodes must
//! tell for there to be a difference.

use std::collections::{BTreeMap, BTreeSet};

use super::{Copied, Node, names, quantisation};

/// In what copies of a model may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Digest,
    Quantisation,
    /// The context window that it runs with.
    Context,
}

/// A model that differs between nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    pub model: String,
    pub kind: Kind,
    /// The nodes by what they tell.
    pub values: BTreeMap<String, BTreeSet<String>>,
}

/// Names of their own in the metric; of a fleet in which more differ, this many stand for all.
const MODELS_LABELLED_MAX: usize = 100;

/// Nodes invent names too.
const LABEL_BYTES_MAX: usize = 128;

/// All differences, in order of name and kind.
pub fn drifts(nodes: &[Node]) -> Vec<Drift> {
    let mut told: BTreeMap<(&str, Kind), BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for copy in names::own(nodes) {
        for kind in Kind::ALL {
            if let Some(value) = kind.of(&copy) {
                let values = told.entry((copy.shown, kind)).or_default();
                values.entry(value).or_default().insert(copy.node.name.to_string());
            }
        }
    }
    let differing = told.into_iter().filter(|(_, values)| values.len() > 1);
    differing.map(|((model, kind), values)| Drift { model: model.to_string(), kind, values }).collect()
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Digest, Kind::Quantisation, Kind::Context];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Digest => "digest",
            Kind::Quantisation => "quantisation",
            Kind::Context => "context",
        }
    }

    fn of(self, copy: &Copied) -> Option<String> {
        match self {
            Kind::Digest => {
                let digest = copy.listing.tags.as_ref()?["digest"].as_str()?;
                (!digest.is_empty()).then(|| digest.to_string())
            }
            Kind::Quantisation => quantisation::of(copy.listing),
            Kind::Context => copy.node.windows.get(&copy.listing.name).map(u32::to_string),
        }
    }
}

impl Drift {
    /// What differs, in words.
    pub fn describe(&self) -> String {
        let values = self.values.iter().map(|(value, nodes)| {
            let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
            format!("{value} on {}", nodes.join(", "))
        });
        format!("{}: its {} differs: {}", self.model, self.kind.name(), values.collect::<Vec<_>>().join("; "))
    }
}

/// The metric's labels and values: one for each model, and how many are left over as `other`.
pub fn labels(drifts: &[Drift]) -> BTreeMap<(&str, &'static str), i64> {
    let mut named: BTreeSet<&str> = BTreeSet::new();
    let mut labels = BTreeMap::new();
    for drift in drifts {
        let model = drift.model.as_str();
        let has_room = named.contains(model) || named.len() < MODELS_LABELLED_MAX;
        let label = if has_room && model.len() <= LABEL_BYTES_MAX { model } else { "other" };
        named.insert(label);
        *labels.entry((label, drift.kind.name())).or_default() += 1;
    }
    labels
}

#[cfg(test)]
mod tests;
