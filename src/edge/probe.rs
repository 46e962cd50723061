//! Asking a node whether it can serve, in its engine's own cheap way.
//!
//! Whether it answers is health; what it holds and how busy it is, is telemetry's matter. A node that
//! loads is not up, but has not failed. One that is late to answer while its requests are answered is
//! busy, and its requests tell more than its probe.

use std::sync::Arc;
use std::time::Duration;

use super::complaint;
use super::fetch::{FetchError, Fetched, Fetcher};
use super::problem::{Ailment, Finder, Finding};
use super::shared_fleet::SharedFleet;
use super::site::Site;
use crate::engines::Engine;
use crate::routing::moment::Moment;

pub struct Prober {
    pub fleet: Arc<SharedFleet>,
    pub fetcher: Arc<Fetcher>,
    pub timeout: Duration,
}

impl Prober {
    /// Probes a site, and lets the fleet know what that changes. An error is a failed check, and says why.
    pub async fn probe(&self, site: &Site) -> Result<(), String> {
        let engine = site.engine.get().ok_or("its engine is not recognised yet")?;
        let asked_at = self.fleet.now();
        let answer = match self.ask(site, engine).await {
            Err(FetchError::TimedOut(_)) if self.has_answered_since(site, asked_at) => return Ok(()),
            answer => answer,
        };
        let in_vain = answer.is_err();
        let reachable = !matches!(answer, Err(FetchError::Connect(_) | FetchError::Resolve(_) | FetchError::Tls(_)));
        self.fleet.with(|fleet, _| {
            for row in &site.rows {
                fleet.learn_reachable(*row, reachable);
                if in_vain {
                    fleet.learn_no_answer(*row, asked_at);
                }
            }
        });
        match judge(engine, answer) {
            Ok(()) => {
                site.note(Finder::Probe, "");
                if site.standing.saw_up() {
                    site.learn_health(&self.fleet, true);
                }
                Ok(())
            }
            Err(problem) if problem.ailment == Ailment::Loading => {
                site.note(Finder::Probe, problem);
                if site.standing.saw_loading() {
                    self.fleet.with(|fleet, _| site.rows.iter().for_each(|row| fleet.learn_loading(*row)));
                }
                Ok(())
            }
            Err(problem) => {
                site.note(Finder::Probe, problem.clone());
                Err(problem.words)
            }
        }
    }

    /// The answer, and the path that gave it.
    async fn ask(&self, site: &Site, engine: &Engine) -> Result<(Fetched, &'static str), FetchError> {
        let probe = &engine.probe;
        let get = |path| self.fetcher.ask_site(site, path, self.timeout.max(probe.patience));
        let answer = get(probe.path).await?;
        match probe.older_path {
            Some(path) if answer.status == 404 => Ok((get(path).await?, path)),
            _ => Ok((answer, probe.path)),
        }
    }

    fn has_answered_since(&self, site: &Site, asked_at: Moment) -> bool {
        self.fleet.with(|fleet, _| {
            let answered_at = |row| fleet.upstream(row).and_then(|upstream| upstream.answered_at);
            site.rows.iter().any(|row| answered_at(*row).is_some_and(|at| at >= asked_at))
        })
    }
}

fn judge(engine: &Engine, answer: Result<(Fetched, &'static str), FetchError>) -> Result<(), Finding> {
    let (answer, path) = answer.map_err(|error| error.to_string())?;
    match complaint::about(&answer, path, Some(engine)) {
        Some(problem) => Err(problem),
        None if (engine.probe.says_up)(&answer.body) => Ok(()),
        None => {
            let words = format!("what answers there is not {}: see `engine` and `url`", engine.name);
            Err(Finding::new(Ailment::WrongType, words))
        }
    }
}

#[cfg(test)]
mod tests;
