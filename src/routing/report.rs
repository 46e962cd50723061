//! What an upstream said about itself at one poll.
//!
//! Produced by `engines/`, learnt by `Fleet::learn_report`. Absent means "the engine does not tell",
//! never zero.

/// What a model can do, where the engine tells. What it leaves open counts as there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    pub vision: bool,
    pub tools: bool,
    pub embedding: bool,
    pub thinking: bool,
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
    /// The most tokens that any window of it can hold.
    pub trained_tokens: Option<u32>,
    /// Window that it is loaded with when nobody asks for another, where its own settings say.
    pub own_window: Option<u32>,
    pub abilities: Option<Abilities>,
}

/// Requests at an engine, ours and other people's. It counts them for the whole server: engines that
/// count at all serve one model, be it under several names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    pub running: u32,
    pub waiting: u32,
}

impl Load {
    pub fn requests(self) -> u32 {
        self.running.saturating_add(self.waiting)
    }
}

/// One poll of one upstream, complete.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    pub models: Vec<ModelReport>,
    /// Parallel requests a model, where the engine tells.
    pub slots: Option<u32>,
    /// Tokens that its prefix cache holds, where the engine tells.
    pub cache_tokens: Option<u64>,
    pub load: Option<Load>,
    /// Whether its version takes a salt on the paths of `Traits::unsalted` as well, where the engine tells.
    pub salts_all_paths: Option<bool>,
}
