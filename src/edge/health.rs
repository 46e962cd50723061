//! Pingora's health checks, asking each engine its own cheap question.
//!
//! Pingora counts how many checks in a row take a node out and bring it back; `probe` says what one
//! check found, and `standing` what that means where nothing is to be counted.

use std::sync::Arc;

use async_trait::async_trait;
use pingora_core::{Error, ErrorType, Result};
use pingora_load_balancing::Backend;
use pingora_load_balancing::health_check::HealthCheck;

use super::node::Node;
use super::probe::Prober;
use super::selection::Seat;

pub struct EngineCheck {
    pub nodes: Arc<[Arc<Node>]>,
    pub prober: Prober,
    /// Failed checks in a row that take a node out.
    pub unhealthy_after: usize,
    /// Good checks in a row that bring it back.
    pub healthy_after: usize,
}

impl EngineCheck {
    fn node(&self, backend: &Backend) -> Option<&Arc<Node>> {
        let id = Seat::of(backend)?.upstream;
        self.nodes.iter().find(|node| node.id == id)
    }
}

#[async_trait]
impl HealthCheck for EngineCheck {
    async fn check(&self, target: &Backend) -> Result<()> {
        let Some(node) = self.node(target) else {
            return Error::e_explain(ErrorType::InternalError, "a backend that is no node");
        };
        let probed = self.prober.probe(node).await;
        probed.or_else(|problem| Error::e_explain(ErrorType::Custom("UnhealthyUpstream"), problem))
    }

    async fn health_status_change(&self, target: &Backend, healthy: bool) {
        if let Some(node) = self.node(target)
            && node.standing.turned(healthy)
        {
            log::warn!("{}: {}", node.name, if healthy { "back" } else { "taken out" });
            self.prober.fleet.with(|fleet, _| fleet.learn_health(node.id, healthy));
        }
    }

    fn health_threshold(&self, success: bool) -> usize {
        if success { self.healthy_after } else { self.unhealthy_after }
    }
}
