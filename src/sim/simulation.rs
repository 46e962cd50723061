//! A plan, run: every policy at every rate with every seed.

use std::time::Duration;

use super::plan::{Contestant, Plan};
use super::report::Row;
use super::run::nodes::Nodes;
use super::run::peer::PeerRouter;
use super::run::product::{Product, Setting};
use super::run::record::Record;
use super::run::{Router, run};
use crate::routing::fleet::Rules;

/// One run of a plan.
#[derive(Clone, Copy)]
pub struct Run {
    pub contestant: Contestant,
    pub rate: f64,
    pub seed: u64,
}

/// All runs, in the order of the table.
pub fn runs(plan: &Plan) -> Vec<Run> {
    let mut runs = Vec::new();
    for rate in &plan.rates {
        for contestant in &plan.contestants {
            runs.extend(plan.seeds.iter().map(|seed| Run { contestant: *contestant, rate: *rate, seed: *seed }));
        }
    }
    runs
}

/// Does one of them.
pub fn row(plan: &Plan, at: Run) -> Row {
    let summary = record(plan, at).summary();
    Row {
        plan: plan.name.clone(),
        policy: at.contestant.name(),
        rate: at.rate,
        load: at.rate / plan.full_rate,
        seed: at.seed,
        summary,
    }
}

fn record(plan: &Plan, at: Run) -> Record {
    let mut router = router(plan, at);
    run(plan.source.open(at.seed, at.rate), Nodes::new(&plan.nodes), &mut *router)
}

fn router(plan: &Plan, at: Run) -> Box<dyn Router> {
    match at.contestant {
        Contestant::Ours(policy) => {
            let rules = Rules { policy, ..plan.setting.rules.clone() };
            Box::new(Product::new(&Setting { rules, ..plan.setting.clone() }, &plan.nodes, at.seed))
        }
        Contestant::Theirs(peer) => {
            Box::new(PeerRouter::new(peer, &plan.nodes, plan.setting.index, POLL_OF_PEERS, at.seed))
        }
    }
}

/// How often a peer learns which models are in memory: Herd's agents tell every five seconds.
const POLL_OF_PEERS: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
