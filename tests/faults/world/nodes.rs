//! How nodes come, go and tell of themselves.

use super::*;

impl World {
    pub(super) fn join(&mut self) {
        if self.nodes.len() < NODES_MAX {
            let (spec, node) = Node::draw(self.joined, &mut self.chance);
            self.joined += 1;
            if let Some(id) = self.fleet.join(spec) {
                self.nodes.push(node(id));
            }
        }
    }

    pub(super) fn node_leaves(&mut self) {
        let staying: Vec<usize> = (0..self.nodes.len()).filter(|at| !self.nodes[*at].has_left).collect();
        if staying.len() > 2 {
            let node = &mut self.nodes[*self.chance.pick(&staying)];
            node.has_left = true;
            self.fleet.leave(node.id);
            self.left.insert(node.id);
        }
    }

    pub(super) fn late_news(&mut self) {
        let left: Vec<UpstreamId> = self.left.iter().copied().collect();
        if left.is_empty() {
            return;
        }
        let id = *self.chance.pick(&left);
        let asked = self.fleet.asked(id, self.now);
        let report = self.nodes[self.chance.below(self.nodes.len())].report();
        self.fleet.learn_report(id, &report, asked, self.now);
        self.fleet.learn_health(id, true, self.now);
        self.fleet.learn_reachable(id, false);
        self.fleet.drain(id, false, self.now);
        self.fleet.leave(id);
    }

    pub(super) fn configure(&mut self, at: usize) {
        let node = &self.nodes[at];
        let Some(spec) = self.fleet.upstream(node.id).map(|upstream| upstream.spec.clone()) else { return };
        let slots = self.chance.one_in(2).then(|| 1 + self.chance.below(4) as u32);
        let spec = Spec { engine: None, slots, tier: u32::from(self.chance.one_in(5)), ..spec };
        self.fleet.configure(node.id, spec, self.now);
    }

    pub(super) fn turn(&mut self, from: Health, to: Health) {
        if let Some(at) = self.node_in(|health| health == from) {
            self.nodes[at].health = to;
        }
    }

    /// Every node is well, and neither an operator nor its configuration keeps work from it.
    pub(super) fn mend(&mut self) {
        for at in 0..self.nodes.len() {
            let node = &mut self.nodes[at];
            (node.health, node.slowness) = (Health::Up, 1.0);
            node.deleted.clear();
            let id = self.nodes[at].id;
            self.fleet.drain(id, false, self.now);
            if let Some(spec) = self.fleet.upstream(id).map(|upstream| upstream.spec.clone()) {
                self.fleet.configure(id, Spec { drain: false, ..spec }, self.now);
            }
        }
    }

    pub(super) fn probe(&mut self, at: usize, up: bool) {
        let node = &self.nodes[at];
        if up {
            self.fleet.learn_engine(node.id, node.traits());
        }
        self.fleet.learn_reachable(node.id, node.health != Health::Dead);
        self.fleet.learn_health(node.id, up, self.now);
    }

    pub(super) fn poll_begins(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.answers() && node.polls.len() < 3 {
            let asked = self.fleet.asked(node.id, self.now);
            // Settled when it was asked, or only when the answer comes.
            let report = self.chance.one_in(2).then(|| node.report());
            node.polls.push((asked, report));
        }
    }

    pub(super) fn poll_ends(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if !node.answers() || node.polls.is_empty() {
            return;
        }
        let (asked, report) = node.polls.remove(self.chance.below(node.polls.len()));
        let report = report.unwrap_or_else(|| node.report());
        self.fleet.learn_report(node.id, &report, asked, self.now);
    }

    // === chance ===
}
