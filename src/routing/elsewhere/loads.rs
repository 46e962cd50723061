//! What each replica has at the nodes: how the others are told, and how they merge it.
//!
//! All of it is told now and then, and in between only what has changed. What is heard of a node takes the place of
//! what was heard of it before; whoever has missed all of it so far knows the changes until all is told again.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::tempo::Tempo;
use crate::routing::chain::hash_text;
use crate::routing::fleet::{Fleet, HoldingId, UpstreamId};
use crate::routing::moment::Moment;

/// What a replica has at a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLoad {
    pub node: u64,
    /// Its breaker is open there.
    pub broken: bool,
    pub models: Vec<ModelLoad>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelLoad {
    pub model: u64,
    pub running: u32,
    /// Those that wait at the replica with this as their best.
    pub waiting: u32,
    pub broken: bool,
}

/// What one message says of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loads {
    /// Nodes that are not named are as they were; else there is nothing at them.
    pub only_changes: bool,
    pub nodes: Vec<NodeLoad>,
}

/// What others were told last.
#[derive(Debug, Default)]
pub struct Telling {
    told: Vec<NodeLoad>,
    told_at: Option<Moment>,
    all_told_at: Option<Moment>,
}

/// What came of learning another replica's loads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadsLearnt {
    /// A place may have come free for somebody who waits here.
    pub has_less: bool,
    /// Somebody found a node broken of which nobody had said so.
    pub new_doubt: bool,
}

/// What another replica was last heard to have.
pub(super) struct Replica {
    until: Moment,
    /// At all nodes.
    running: u64,
    nodes: BTreeMap<u64, AtNode>,
}

struct AtNode {
    load: NodeLoad,
    id: UpstreamId,
    running: u32,
    holdings: Vec<(HoldingId, ModelLoad)>,
}

/// Loads of one replica that are taken in.
const LOADS_MAX: usize = 1 << 14;

impl Telling {
    /// Whether it is time to look.
    pub fn is_due(&self, tempo: &Tempo, now: Moment) -> bool {
        self.told_at.is_none_or(|at| now.since(at) >= tempo.loads_every)
    }

    /// What others are to be told, if anything is new or a heartbeat is due.
    pub fn next(&mut self, loads: Vec<NodeLoad>, tempo: &Tempo, now: Moment) -> Option<Loads> {
        let passed = |at: Option<Moment>| at.map_or(Duration::MAX, |at| now.since(at));
        let is_all = passed(self.all_told_at) >= tempo.all_every;
        let nodes = if is_all { loads.clone() } else { changed(&self.told, &loads) };
        if nodes.is_empty() && !is_all && passed(self.told_at) < tempo.heartbeat_every {
            return None;
        }
        self.told = loads;
        self.told_at = Some(now);
        self.all_told_at = if is_all { Some(now) } else { self.all_told_at };
        Some(Loads { only_changes: !is_all, nodes })
    }
}

/// Nodes at which something is other than it was; those at which nothing is any more stand there empty.
fn changed(before: &[NodeLoad], now: &[NodeLoad]) -> Vec<NodeLoad> {
    let mut gone: HashMap<u64, &NodeLoad> = before.iter().map(|load| (load.node, load)).collect();
    let mut changed: Vec<NodeLoad> = now.iter().filter(|load| gone.remove(&load.node) != Some(load)).cloned().collect();
    let gone = before.iter().filter(|load| gone.contains_key(&load.node));
    changed.extend(gone.map(|load| NodeLoad { node: load.node, ..NodeLoad::default() }));
    changed
}

impl Fleet {
    /// What this replica has at the nodes, for others.
    pub fn loads(&self, now: Moment) -> Vec<NodeLoad> {
        let load = |upstream: &crate::routing::upstream::Upstream| {
            let models = upstream.holdings.values().filter_map(|id| {
                let holding = self.holding(*id);
                let broken = is_broken(&holding.breaker, now);
                let busy = holding.running > 0 || holding.waiting > 0 || broken;
                busy.then(|| ModelLoad {
                    model: hash_text(&holding.name),
                    running: holding.running,
                    waiting: holding.waiting,
                    broken,
                })
            });
            NodeLoad { node: upstream.name_hash, broken: is_broken(&upstream.breaker, now), models: models.collect() }
        };
        let busy = |upstream: &crate::routing::upstream::Upstream| {
            upstream.in_flight > 0 || !upstream.holdings.is_empty() || upstream.breaker.opening().is_some()
        };
        let loads = self.upstreams.iter().map(|(_, upstream)| upstream).filter(|upstream| busy(upstream)).map(load);
        loads.filter(|load| load.broken || !load.models.is_empty()).collect()
    }

    /// What another replica has at the nodes. It counts for `life`.
    pub fn learn_loads(&mut self, replica: u64, loads: &Loads, life: Duration, now: Moment) -> LoadsLearnt {
        let mut learnt = LoadsLearnt::default();
        let known = self.elsewhere.replicas.remove(&replica);
        if known.is_none() && self.elsewhere.replicas.len() >= super::REPLICAS_MAX {
            return learnt;
        }
        let mut known = known.unwrap_or_else(|| Replica { until: now, running: 0, nodes: BTreeMap::new() });
        let had = known.running;
        // Of all that is told what is not named is gone; of changes it is as it was.
        let mut gone = if loads.only_changes { BTreeMap::new() } else { std::mem::take(&mut known.nodes) };
        for load in loads.nodes.iter().take(LOADS_MAX) {
            let old = gone.remove(&load.node).or_else(|| known.nodes.remove(&load.node));
            let is_known = old.as_ref().is_some_and(|old| old.load == *load && self.is_settled(old));
            let before = running(&old);
            let new = if is_known { old } else { self.replace(load, old, &mut learnt, now) };
            known.running = known.running.saturating_sub(before).saturating_add(running(&new));
            if let Some(new) = new {
                known.nodes.insert(load.node, new);
            }
        }
        for old in gone.into_values() {
            known.running = known.running.saturating_sub(u64::from(old.running));
            self.forget_load(old);
        }
        learnt.has_less = known.running < had;
        known.until = now + life;
        self.elsewhere.replicas.insert(replica, known);
        learnt
    }

    /// Another replica has what it had.
    pub fn hear_of(&mut self, replica: u64, life: Duration, now: Moment) {
        if let Some(known) = self.elsewhere.replicas.get_mut(&replica) {
            known.until = now + life;
        }
    }

    /// Forgets replicas that are silent for too long; true if that made a difference.
    pub fn forget_silent(&mut self, now: Moment) -> bool {
        let silent = self.elsewhere.replicas.iter().filter(|(_, replica)| replica.until <= now);
        let silent: Vec<u64> = silent.map(|(id, _)| *id).collect();
        for id in &silent {
            let told = self.elsewhere.replicas.remove(id).map(|replica| replica.nodes).unwrap_or_default();
            told.into_values().for_each(|old| self.forget_load(old));
        }
        !silent.is_empty()
    }

    /// To learn it anew would change nothing.
    fn is_settled(&self, old: &AtNode) -> bool {
        self.elsewhere.nodes.get(&old.load.node) == Some(&old.id) && old.holdings.len() == old.load.models.len()
    }

    /// `None`: there is nothing any more, or no such node here.
    fn replace(
        &mut self,
        load: &NodeLoad,
        old: Option<AtNode>,
        learnt: &mut LoadsLearnt,
        now: Moment,
    ) -> Option<AtNode> {
        let was = old.as_ref().map(|old| old.load.clone()).unwrap_or_default();
        let model_was_broken = |model: u64| was.models.iter().any(|was| was.model == model && was.broken);
        if let Some(old) = old {
            self.forget_load(old);
        }
        let id = self.elsewhere.nodes.get(&load.node).copied()?;
        let (mut running, mut holdings, mut new_doubt) = (0u32, Vec::new(), false);
        for model in load.models.iter().take(LOADS_MAX) {
            running = running.saturating_add(model.running);
            let Some((holding, _)) = self.held_at(id, model.model) else { continue };
            let Some(others) = self.holdings.get_mut(holding.0 as usize).map(|holding| &mut holding.others) else {
                continue;
            };
            new_doubt |= model.broken && others.broken == 0 && !model_was_broken(model.model);
            others.add(model.running, model.waiting, model.broken, now);
            holdings.push((holding, model.clone()));
        }
        let upstream = self.upstreams.get_mut(id)?;
        new_doubt |= load.broken && upstream.others.broken == 0 && !was.broken;
        upstream.others.add(running, 0, load.broken, now);
        learnt.new_doubt |= new_doubt;
        (load.broken || !load.models.is_empty()).then(|| AtNode { load: load.clone(), id, running, holdings })
    }

    fn forget_load(&mut self, old: AtNode) {
        for (id, load) in old.holdings {
            if let Some(holding) = self.holdings.get_mut(id.0 as usize) {
                holding.others.take(load.running, load.waiting, load.broken);
            }
        }
        if let Some(upstream) = self.upstreams.get_mut(old.id) {
            upstream.others.take(old.running, 0, old.load.broken);
        }
    }
}

fn running(at: &Option<AtNode>) -> u64 {
    at.as_ref().map_or(0, |at| u64::from(at.running))
}

fn is_broken(breaker: &crate::routing::breaker::Breaker, now: Moment) -> bool {
    breaker.opening().is_some_and(|opening| now < opening.until)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(node: u64, running: u32) -> NodeLoad {
        NodeLoad { node, broken: false, models: vec![ModelLoad { model: 1, running, ..ModelLoad::default() }] }
    }

    fn empty(node: u64) -> NodeLoad {
        NodeLoad { node, ..NodeLoad::default() }
    }

    #[test]
    fn only_changes_are_told_and_all_of_it_now_and_then() {
        let tempo = Tempo::of(2);
        let (mut telling, mut now) = (Telling::default(), Moment::from_secs(10));
        let mut next = |loads: &[NodeLoad], after: Duration| {
            now = now + after;
            telling.next(loads.to_vec(), &tempo, now).map(|loads| (loads.only_changes, loads.nodes))
        };
        let all = [load(1, 1), load(2, 2)];
        let soon = tempo.loads_every;
        assert_eq!(next(&all, soon), Some((false, all.to_vec())), "the first says all");
        assert_eq!(next(&all, soon), None);
        assert_eq!(next(&[load(1, 1), load(2, 3)], soon), Some((true, vec![load(2, 3)])));
        assert_eq!(next(&[load(3, 1), load(2, 3)], soon), Some((true, vec![load(3, 1), empty(1)])));
        assert_eq!(next(&[load(3, 1), load(2, 3)], tempo.heartbeat_every), Some((true, vec![])), "a heartbeat");
        assert_eq!(next(&[load(3, 1)], tempo.all_every), Some((false, vec![load(3, 1)])));
    }
}
