//! Ollama Herd's scorer, as far as a simulation has something to tell it: points that add up, a queue penalty
//! with a floor, conversations known by their client's address, and ties to whoever comes first.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Peer, Rule, Seen};
use crate::routing::moment::Moment;
use crate::sim::chance::Chance;
use crate::sim::run::nodes::NodeParams;
use crate::sim::workload::Request;

pub const PEER: Peer = Peer {
    name: "herd",
    about: "Ollama Herd's scorer, sessions by client address",
    make: |nodes, _| Box::new(Herd::new(nodes)),
};

const LOADED: f64 = 50.0;
const ON_DISK: f64 = 10.0;
const MEMORY_FIT: f64 = 20.0;
const A_REQUEST: f64 = 6.0;
const QUEUE_MAX: f64 = 30.0;
const WAIT_MAX: f64 = 25.0;
const SECONDS_A_POINT: f64 = 10.0;
const SESSION: f64 = 20.0;
const PREFIX: f64 = 10.0;
/// Answers that are remembered for a model on a node.
const LATENCIES: usize = 500;

struct Herd {
    nodes: Vec<NodeParams>,
    sessions: HashMap<(u64, Arc<str>), usize>,
    heads: HashMap<u64, usize>,
    /// Seconds from dispatch to the end, latest last.
    latencies: HashMap<(usize, Arc<str>), Vec<f64>>,
}

impl Herd {
    fn new(nodes: &[NodeParams]) -> Herd {
        Herd { nodes: nodes.to_vec(), sessions: HashMap::new(), heads: HashMap::new(), latencies: HashMap::new() }
    }

    fn score(&self, request: &Request, at: &Seen) -> f64 {
        let depth = f64::from(at.active_for_model);
        let loaded = if at.is_resident { LOADED } else { ON_DISK };
        let half = |points: f64| points / (1.0 + depth / 2.0);
        let affinity = match self.sessions.get(&(request.client, request.model.clone())) {
            Some(node) if *node == at.node => half(SESSION),
            _ if self.heads.get(&head(request)) == Some(&at.node) => half(PREFIX),
            _ => 0.0,
        };
        loaded + memory_fit(at) - self.queue(at, depth) - self.wait(request, at, depth)
            + self.role(request, at)
            + context_fit(request, at)
            + affinity
    }

    fn queue(&self, at: &Seen, depth: f64) -> f64 {
        let known: Vec<f64> = self.nodes.iter().filter_map(|node| node.told_bandwidth).collect();
        let own = self.nodes.get(at.node).and_then(|node| node.told_bandwidth);
        let by_bandwidth = own.zip(median(known)).map(|(own, median)| (own / median).clamp(0.25, 4.0));
        (A_REQUEST * depth / by_bandwidth.unwrap_or(1.0)).min(QUEUE_MAX)
    }

    fn wait(&self, request: &Request, at: &Seen, depth: f64) -> f64 {
        let Some(latencies) = self.latencies.get(&(at.node, request.model.clone())) else { return 0.0 };
        let mut sorted = latencies.clone();
        sorted.sort_by(f64::total_cmp);
        let index = (sorted.len() as f64 * 0.75) as usize;
        let p75 = sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default();
        (depth * p75 / SECONDS_A_POINT).min(WAIT_MAX)
    }

    fn role(&self, request: &Request, at: &Seen) -> f64 {
        const GB: f64 = 1e9;
        let Some(node) = self.nodes.get(at.node) else { return 0.0 };
        let size = node.model(&request.model).map_or(0.0, |model| model.memory_bytes as f64 / GB);
        let Some(bandwidth) = node.told_bandwidth else { return 0.0 };
        let strength = (5.0 + bandwidth / GB / 40.0).min(25.0);
        match size {
            size if size > 20.0 => strength,
            size if size < 8.0 => (18.0 - 0.6 * strength).max(3.0),
            _ => 0.6 * strength,
        }
    }
}

impl Rule for Herd {
    fn pick(&mut self, request: &Request, seen: &[Seen], _: Moment, _: &mut Chance) -> usize {
        let mut best = (0, f64::NEG_INFINITY);
        for (place, at) in seen.iter().enumerate() {
            let score = self.score(request, at);
            if score > best.1 {
                best = (place, score);
            }
        }
        if let Some(at) = seen.get(best.0) {
            self.sessions.insert((request.client, request.model.clone()), at.node);
            self.heads.insert(head(request), at.node);
        }
        best.0
    }

    fn over(&mut self, request: &Request, node: usize, took_s: f64) {
        let latencies = self.latencies.entry((node, request.model.clone())).or_default();
        latencies.push(took_s);
        if latencies.len() > LATENCIES {
            latencies.remove(0);
        }
    }
}

fn memory_fit(at: &Seen) -> f64 {
    match at.memory_ratio {
        _ if at.is_resident => MEMORY_FIT,
        ratio if ratio > 2.0 => 20.0,
        ratio if ratio > 1.5 => 15.0,
        ratio if ratio > 1.2 => 8.0,
        ratio if ratio >= 1.0 => 3.0,
        _ => 0.0,
    }
}

fn context_fit(request: &Request, at: &Seen) -> f64 {
    if !at.is_resident || at.context_tokens == 0 {
        return 0.0;
    }
    match f64::from(at.context_tokens) / f64::from(request.prompt_tokens.max(1)) {
        fit if fit < 1.0 => -15.0,
        fit if fit < 1.5 => 3.0,
        fit if fit < 3.0 => 7.5,
        fit if fit < 8.0 => 12.0,
        _ => 15.0,
    }
}

fn head(request: &Request) -> u64 {
    request.chain.links.first().map_or(0, |link| link.hash)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        even if even.is_multiple_of(2) => Some((values[middle - 1] + values[middle]) / 2.0),
        _ => Some(values[middle]),
    }
}
