//! Pingora's health checks, asking each engine its own cheap question.
//!
//! Pingora counts how many checks in a row take a node out and bring it back; `probe` says what one
//! check found, and `standing` what that means where nothing is to be counted. Of the rows of one site the
//! first is asked for all; to Pingora the others are always well, and the fleet knows better.

use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use pingora_core::{Error, ErrorType, Result};
use pingora_load_balancing::Backend;
use pingora_load_balancing::health_check::HealthCheck;

use super::fetch::Fetcher;
use super::node::Node;
use super::probe::Prober;
use super::roster::Roster;
use super::selection::Seat;
use super::shared_fleet::SharedFleet;
use crate::config::Plan;

pub struct EngineCheck {
    pub roster: Arc<Roster>,
    pub fleet: Arc<SharedFleet>,
    pub fetcher: Arc<Fetcher>,
    /// The settings in force.
    pub plan: Arc<ArcSwap<Plan>>,
}

impl EngineCheck {
    fn prober(&self) -> Prober {
        let timeout = self.plan.load().health.timeout.0;
        Prober { fleet: self.fleet.clone(), fetcher: self.fetcher.clone(), timeout }
    }

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
        let probed = self.prober().probe(&node).await;
        probed.or_else(|problem| Error::e_explain(ErrorType::Custom("UnhealthyUpstream"), problem))
    }

    async fn health_status_change(&self, target: &Backend, healthy: bool) {
        if let Some(node) = self.node(target)
            && node.standing.turned(healthy)
        {
            log::warn!("{}: {}", node.site.name, if healthy { "back" } else { "taken out" });
            node.learn_health(&self.fleet, healthy);
        }
    }

    fn health_threshold(&self, success: bool) -> usize {
        let health = self.plan.load().health;
        (if success { health.healthy_after } else { health.unhealthy_after }) as usize
    }
}
