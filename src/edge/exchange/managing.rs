//! What is noted of a request that manages models: there is no decision, only the nodes it was for.

use super::Exchange;
use crate::edge::verdict::Verdict;
use crate::routing::fleet::Outcome;

impl Exchange {
    /// The request manages a model, or unloads one, at these nodes.
    pub fn managing(&mut self, model: &str, nodes: Vec<String>) {
        self.receipt.model = model.to_string();
        self.receipt.nodes = nodes;
        self.receipt.intake_ms = self.elapsed_ms();
    }

    /// It has been answered here for the nodes.
    pub fn managed(&mut self, status: u16, verdict: Verdict) {
        self.receipt.status = status;
        self.end(verdict, Outcome::Void);
    }

    /// The nodes of a managing call, where answers may tell.
    pub fn nodes_told(&self) -> Option<String> {
        self.receipt.managed_nodes().filter(|_| self.plan.routing_headers)
    }

    /// The request's body goes through without being held.
    pub fn streams_body(&self) -> bool {
        self.carried.as_ref().is_some_and(|carried| carried.body.is_none())
    }
}
