//! What operators have taken out of service.
//!
//! By name, so that it holds through every reload for as long as the upstream is configured, for rows that are
//! yet to be discovered, and for a server that takes the name's place. What the configuration drains is
//! no matter of this: a row drains if either says so.

use std::collections::BTreeSet;

use crate::config::{self, ADDRESS_MARK, RANK_MARK};
use crate::edge::node::Node;
use crate::edge::roster::Nodes;
use crate::routing::fleet::Fleet;
use crate::routing::moment::Moment;
use crate::routing::table::MAX_UPSTREAMS;

/// As many as there may be rows, so that only rows which are gone could fill it.
const DRAINS_MAX: usize = MAX_UPSTREAMS;

/// Names of rows, sites and upstreams.
#[derive(Default)]
pub struct Drains(BTreeSet<String>);

impl Drains {
    /// Draining an upstream holds for all its rows, and so does letting it in again.
    pub fn set(&mut self, name: &str, drain: bool, upstreams: &[config::Upstream]) {
        let is_upstream = |name: &str| upstreams.iter().any(|upstream| upstream.name == name);
        self.0.retain(|drained| drained != name && (!is_part(drained, name) || is_upstream(drained)));
        if drain && self.0.len() < DRAINS_MAX {
            self.0.insert(name.to_owned());
        }
    }

    /// The name under which a row drains, the widest first.
    pub fn of(&self, node: &Node) -> Option<&str> {
        let names = [&node.site.configured.name, &node.site.name, &node.name];
        names.into_iter().find_map(|name| self.0.get(name)).map(String::as_str)
    }

    /// Forgets those of upstreams that are configured no more.
    pub fn retain(&mut self, upstreams: &[config::Upstream]) {
        let is_of = |drained: &str, name: &str| drained == name || is_part(drained, name);
        self.0.retain(|drained| upstreams.iter().any(|upstream| is_of(drained, &upstream.name)));
    }

    pub fn names(&self) -> Vec<String> {
        self.0.iter().cloned().collect()
    }

    /// Takes over what an operator told another process, for upstreams that are configured here; gives how many.
    pub fn recall(&mut self, names: &[String], upstreams: &[config::Upstream]) -> usize {
        let before = self.0.len();
        self.0.extend(names.iter().take(DRAINS_MAX - before.min(DRAINS_MAX)).cloned());
        self.retain(upstreams);
        self.0.len() - before
    }

    /// Lets the fleet know.
    pub fn tell(&self, nodes: &Nodes, fleet: &mut Fleet, now: Moment) {
        for node in nodes.iter() {
            let drain = self.of(node).is_some();
            if fleet.upstream(node.id).is_some_and(|upstream| upstream.told_to_drain != drain) {
                fleet.drain(node.id, drain, now);
            }
        }
    }
}

/// Whether that is a row or a site of an upstream or a site.
fn is_part(name: &str, whole: &str) -> bool {
    name.strip_prefix(whole).is_some_and(|rest| rest.starts_with([RANK_MARK, ADDRESS_MARK]))
}
