//! One upstream as one ask sees it at one instant: what the signals may know.
//!
//! Everything is looked up or worked out here once, so that a signal is a formula and nothing more.

use std::time::Duration;

/// Where the model is on that upstream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Residency {
    /// In memory, or being loaded for a request that is still there.
    Resident,
    /// Was in memory until this long ago.
    Unloaded(Duration),
    /// On disk.
    OnDisk,
}

/// An eligible upstream, judged for one ask.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    pub residency: Residency,
    /// Size of the model's weights; `None`: unknown.
    pub model_bytes: Option<u64>,
    /// What the model would take when loaded; `None`: unknown.
    pub need_bytes: Option<u64>,
    pub memory: Option<Memory>,
    /// Memory bandwidth, bytes a second; `None`: unknown.
    pub bandwidth_bytes_s: Option<f64>,
    /// Requests for the model here, divided by its slots.
    pub depth: f64,
    /// Requests running here for other models, divided by this model's slots.
    pub other_depth: f64,
    /// By how much of its due the node has had more than that of late, as far as it is busy.
    pub ahead: f64,
    /// Predicted time to the first token; `None`: nothing is known of any node's speed.
    pub first_token: Option<FirstToken>,
    /// The model is in memory, but will leave it for one that is being loaded.
    pub leaves: bool,
    /// How far the node can be relied on, 0 to 1.
    pub availability: f64,
    /// Context window the model runs with here; `None`: unknown.
    pub context_tokens: Option<u32>,
    /// The session was last served here.
    pub pinned: bool,
    /// Share of the prompt that the longest known prefix here covers, 0 to 1; zero for every
    /// candidate while the session has a pin on an eligible one.
    pub prefix_share: f64,
    /// How much it counts that the conversation is at home here, 0 to 1; zero where it is not, or that does not count.
    pub home: f64,
    /// What serving it here takes from others.
    pub external: External,
}

/// What a request takes from others, seconds of theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct External {
    /// They wait while it is computed, at the fleet's typical speed, as often as its weight says.
    pub work_s: f64,
    /// What it displaces is to be computed again.
    pub displaced_s: f64,
    /// What is evicted for its model is to be loaded again.
    pub evicted_s: f64,
    /// It is not found by those who look for it at home, and is to be computed again there.
    pub strays_s: f64,
    /// It shares what is nearly used up.
    pub pressure_s: f64,
}

/// What an upstream may use for models, and what is left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    pub total_bytes: u64,
    pub free_bytes: u64,
    /// Free once every model without a running request were gone.
    pub free_without_idle_bytes: u64,
}

/// The parts of a predicted first-token time, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FirstToken {
    pub wait_s: f64,
    pub load_s: f64,
    pub prefill_s: f64,
}

impl FirstToken {
    pub fn total_s(&self) -> f64 {
        self.wait_s + self.load_s + self.prefill_s
    }
}

impl Candidate {
    pub fn is_resident(&self) -> bool {
        self.residency == Residency::Resident
    }
}

#[cfg(test)]
impl Candidate {
    /// A node of which only the good is known: resident, idle, reliable.
    pub fn plain() -> Candidate {
        Candidate {
            residency: Residency::Resident,
            model_bytes: None,
            need_bytes: None,
            memory: None,
            bandwidth_bytes_s: None,
            depth: 0.0,
            other_depth: 0.0,
            ahead: 0.0,
            first_token: None,
            leaves: false,
            availability: 1.0,
            context_tokens: None,
            pinned: false,
            prefix_share: 0.0,
            home: 0.0,
            external: External::default(),
        }
    }
}
