//! Pingora's health checks, asking each engine its own cheap question.
//!
//! Pingora counts how many checks in a row take a node out and bring it back; `probe` says what one
//! check found, and `standing` what that means where nothing is to be counted. Of the rows of one site the
//! first is asked for all; to Pingora the others are always well, and the fleet knows better.

use std::sync::Arc;

use async_trait::async_trait;
use pingora_core::{Error, ErrorType, Result};
use pingora_load_balancing::Backend;
use pingora_load_balancing::health_check::HealthCheck;

use super::node::Node;
use super::probe::Prober;
use super::roster::Roster;
use super::selection::Seat;

pub struct EngineCheck {
    pub roster: Arc<Roster>,
    pub prober: Prober,
    /// Failed checks in a row that take a node out.
    pub unhealthy_after: usize,
    /// Good checks in a row that bring it back.
    pub healthy_after: usize,
}

impl EngineCheck {
    /// The node, unless it has left or another row of its site is asked for it.
    fn node(&self, backend: &Backend) -> Option<Arc<Node>> {
        let id = Seat::of(backend)?.upstream;
        self.roster.nodes().here(id).filter(|node| node.is_led_by(id)).cloned()
    }
}

#[async_trait]
impl HealthCheck for EngineCheck {
    async fn check(&self, target: &Backend) -> Result<()> {
        let Some(node) = self.node(target) else { return Ok(()) };
        let probed = self.prober.probe(&node).await;
        probed.or_else(|problem| Error::e_explain(ErrorType::Custom("UnhealthyUpstream"), problem))
    }

    async fn health_status_change(&self, target: &Backend, healthy: bool) {
        if let Some(node) = self.node(target)
            && node.standing.turned(healthy)
        {
            log::warn!("{}: {}", node.site.name, if healthy { "back" } else { "taken out" });
            node.learn_health(&self.prober.fleet, healthy);
        }
    }

    fn health_threshold(&self, success: bool) -> usize {
        if success { self.healthy_after } else { self.unhealthy_after }
    }
}
