//! Pingora's health checks, asking each engine its own cheap question.
//!
//! Health says whether a node can be used at all. What it holds and how busy it is, is telemetry's
//! matter: a node that is loading or busy answers its probe and is not down.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::{Error, ErrorType, Result};
use pingora_load_balancing::Backend;
use pingora_load_balancing::health_check::HealthCheck;

use super::fetch::Fetcher;
use super::node::Node;
use super::selection::Seat;
use super::shared_fleet::SharedFleet;

pub struct EngineCheck {
    pub nodes: Arc<[Arc<Node>]>,
    pub fleet: Arc<SharedFleet>,
    pub fetcher: Arc<Fetcher>,
    pub timeout: Duration,
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

    async fn probe(&self, node: &Node) -> Result<(), String> {
        let engine = node.engine.get().ok_or("no engine recognised there")?;
        let answer = self.fetcher.get(&node.target, engine.probe_path, self.timeout).await;
        match answer {
            Ok(answer) if answer.status.is_success() => Ok(()),
            Ok(answer) if answer.status == 401 || answer.status == 403 => {
                Err(format!("it refuses our key ({} to its probe): see `api_key`", answer.status.as_u16()))
            }
            Ok(answer) => Err(format!("its probe answers {}", answer.status.as_u16())),
            Err(error) => Err(error.to_string()),
        }
    }
}

#[async_trait]
impl HealthCheck for EngineCheck {
    async fn check(&self, target: &Backend) -> Result<()> {
        let Some(node) = self.node(target) else {
            return Error::e_explain(ErrorType::InternalError, "a backend that is no node");
        };
        match self.probe(node).await {
            Ok(()) => {
                if node.saw_up(true) {
                    // Pingora takes a new or refused node for healthy all along; the fleet does not.
                    self.fleet.with(|fleet, _| fleet.learn_health(node.id, true));
                }
                Ok(())
            }
            Err(problem) => {
                node.note_problem(&problem);
                Error::e_explain(ErrorType::Custom("UnhealthyUpstream"), problem)
            }
        }
    }

    async fn health_status_change(&self, target: &Backend, healthy: bool) {
        if let Some(node) = self.node(target) {
            log::warn!("{}: {}", node.name, if healthy { "back" } else { "taken out" });
            node.saw_up(healthy);
            self.fleet.with(|fleet, _| fleet.learn_health(node.id, healthy));
        }
    }

    fn health_threshold(&self, success: bool) -> usize {
        if success { self.healthy_after } else { self.unhealthy_after }
    }
}
