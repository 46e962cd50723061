//! Asking a node whether it can serve, in its engine's own cheap way.
//!
//! Whether it answers is health; what it holds and how busy it is, is telemetry's matter. A node that
//! loads is not up, but has not failed. One that is late to answer while its requests are answered is
//! busy, and its requests tell more than its probe.

use std::sync::Arc;
use std::time::Duration;

use super::complaint::{self, LOADING};
use super::fetch::{FetchError, Fetched, Fetcher};
use super::node::Node;
use super::problem::Finder;
use super::shared_fleet::SharedFleet;
use crate::engines::Engine;
use crate::routing::moment::Moment;

pub struct Prober {
    pub fleet: Arc<SharedFleet>,
    pub fetcher: Arc<Fetcher>,
    pub timeout: Duration,
}

impl Prober {
    /// Probes a node, and lets the fleet know what that changes. An error is a failed check, and says why.
    pub async fn probe(&self, node: &Node) -> Result<(), String> {
        let engine = node.engine.get().ok_or("its engine is not recognised yet")?;
        let asked_at = self.fleet.now();
        let answer = match self.ask(node, engine).await {
            Err(FetchError::TimedOut(_)) if self.has_answered_since(node, asked_at) => return Ok(()),
            answer => answer,
        };
        match judge(engine, answer) {
            Ok(()) => {
                node.note(Finder::Probe, "");
                if node.standing.saw_up() {
                    self.fleet.with(|fleet, _| fleet.learn_health(node.id, true));
                }
                Ok(())
            }
            Err(problem) if problem == LOADING => {
                node.note(Finder::Probe, LOADING);
                if node.standing.saw_loading() {
                    self.fleet.with(|fleet, _| fleet.learn_health(node.id, false));
                }
                Ok(())
            }
            Err(problem) => {
                node.note(Finder::Probe, &problem);
                Err(problem)
            }
        }
    }

    /// The answer, and the path that gave it.
    async fn ask(&self, node: &Node, engine: &Engine) -> Result<(Fetched, &'static str), FetchError> {
        let probe = &engine.probe;
        let get = |path| self.fetcher.get(&node.target, path, self.timeout.max(probe.patience));
        let answer = get(probe.path).await?;
        match probe.older_path {
            Some(path) if answer.status == 404 => Ok((get(path).await?, path)),
            _ => Ok((answer, probe.path)),
        }
    }

    fn has_answered_since(&self, node: &Node, asked_at: Moment) -> bool {
        self.fleet.with(|fleet, _| {
            let answered_at = fleet.upstream(node.id).and_then(|upstream| upstream.answered_at);
            answered_at.is_some_and(|at| at >= asked_at)
        })
    }
}

fn judge(engine: &Engine, answer: Result<(Fetched, &'static str), FetchError>) -> Result<(), String> {
    let (answer, path) = answer.map_err(|error| error.to_string())?;
    match complaint::about(&answer, path, Some(engine)) {
        Some(problem) => Err(problem),
        None if (engine.probe.says_up)(&answer.body) => Ok(()),
        None => Err(format!("what answers there is not {}: see `engine` and `url`", engine.name)),
    }
}

#[cfg(test)]
mod tests;
