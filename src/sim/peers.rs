//! The rules by which other routers choose a node, each on what it really knows.
//!
//! Written anew after their descriptions; simplified where a simulation has nothing to tell them. A rule
//! chooses at once and never lets a request wait. What it knows of a node is what it sent there: its own
//! index of prefixes, and the requests that have not come back.

mod blend;
mod chwbl;
mod dynamo;
mod expected;
mod herd;
pub mod index;
mod least;
mod lmetric;
mod round_robin;
mod sglang;
mod sticky;
#[cfg(test)]
mod tests;
mod until_saturated;

use super::chance::Chance;
use super::run::nodes::NodeParams;
use super::workload::Request;
use crate::routing::moment::Moment;

/// One rule.
pub struct Peer {
    /// As it is written in a plan.
    pub name: &'static str,
    pub about: &'static str,
    pub make: fn(&[NodeParams], u64) -> Box<dyn Rule>,
}

/// How a router chooses.
pub trait Rule: Send {
    /// The place in `seen` of the node that gets the request.
    fn pick(&mut self, request: &Request, seen: &[Seen], now: Moment, chance: &mut Chance) -> usize;

    /// A request is over, so many seconds after it was sent.
    fn over(&mut self, _request: &Request, _node: usize, _took_s: f64) {}
}

/// A node that holds the request's model, as the router sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// Its place among all nodes.
    pub node: usize,
    /// Requests sent there that are not over.
    pub active: u32,
    /// Of these, those for the request's own model.
    pub active_for_model: u32,
    /// Prompts and answers of the active ones.
    pub active_tokens: f64,
    /// Those that have no first token yet.
    pub pending: u32,
    /// Their tokens that are not believed to be cached.
    pub pending_tokens: f64,
    /// Tokens of this prompt that are believed to be cached.
    pub hit_tokens: f64,
    /// The same as a share of the prompt's blocks.
    pub hit_share: f64,
    /// Seconds until it has read what was sent there, if its cost model is known and right.
    pub wait_s: f64,
    /// Seconds to read the rest of this prompt, likewise.
    pub own_s: f64,
    /// The same on a node of speed 1.
    pub work_s: f64,
    /// Tokens that its cache holds.
    pub cache_tokens: f64,
    /// The model is in memory, as the latest reading says.
    pub is_resident: bool,
    /// Free memory then, divided by what the model needs.
    pub memory_ratio: f64,
    pub context_tokens: u32,
}

/// Every rule, in the order of tables.
pub const ROSTER: [Peer; 14] = [
    round_robin::PEER,
    least::PEER,
    chwbl::PEER,
    sglang::PEER,
    blend::PEER,
    until_saturated::PEER,
    lmetric::PEER,
    dynamo::PEER,
    sticky::PEER,
    herd::PEER,
    expected::MIN_TTFT,
    expected::WAIT_AND_4,
    expected::WAIT_AND_8,
    expected::WAIT_AND_16,
];

/// The rule of that name.
pub fn find(name: &str) -> Option<&'static Peer> {
    static ALL: [Peer; 14] = ROSTER;
    ALL.iter().find(|peer| peer.name == name)
}

/// The place of the smallest cost; equals by chance.
fn cheapest(seen: &[Seen], chance: &mut Chance, cost: impl Fn(&Seen) -> f64) -> usize {
    let all: Vec<usize> = (0..seen.len()).collect();
    cheapest_of(&all, seen, chance, cost)
}

/// The same among some of them.
fn cheapest_of(places: &[usize], seen: &[Seen], chance: &mut Chance, cost: impl Fn(&Seen) -> f64) -> usize {
    const EQUAL: f64 = 1e-12;
    let cost_at = |place: usize| seen.get(place).map_or(f64::INFINITY, &cost);
    let best = places.iter().map(|place| cost_at(*place)).fold(f64::INFINITY, f64::min);
    let equals: Vec<usize> = places.iter().copied().filter(|place| cost_at(*place) <= best + EQUAL).collect();
    equals.get(chance.below(equals.len())).copied().unwrap_or_default()
}
