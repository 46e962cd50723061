//! What an upstream said about itself at one poll.
//!
//! Produced by `engines/`, learnt by `Fleet::learn_report`. Absent means "the engine does not tell",
//! never zero.

/// What a model can do, where the engine tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    pub vision: bool,
    pub tools: bool,
    pub embedding: bool,
}

/// One model as one upstream reports it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelReport {
    /// The upstream's own spelling.
    pub name: String,
    /// In memory now. Engines that serve a fixed model are always resident.
    pub resident: bool,
    /// Size of the weights, bytes.
    pub size_bytes: Option<u64>,
    /// Memory it takes while resident, bytes.
    pub resident_bytes: Option<u64>,
    /// Context window it runs with (or would run with), tokens.
    pub context_tokens: Option<u32>,
    pub abilities: Option<Abilities>,
}

/// One poll of one upstream, complete.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    pub models: Vec<ModelReport>,
    /// Parallel requests a model, where the engine tells.
    pub slots: Option<u32>,
}
