//! What the nodes say of themselves, asked for at intervals.
//!
//! Each node is asked by a task of its own and all its questions at once, so that neither a node that
//! hangs nor one of its paths delays anything else. A failed or malformed answer changes nothing but the
//! note of what is wrong: a failed poll is not an empty node. An optional answer that fails leaves
//! unknown what it would have told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;

use super::complaint;
use super::fetch::{FetchError, Fetched, Fetcher};
use super::inquiries::Asker;
use super::node::Node;
use super::problem::Finder;
use super::shared_fleet::SharedFleet;
use crate::engines::{self, Engine, Reading};

pub struct Telemetry {
    pub fleet: Arc<SharedFleet>,
    pub fetcher: Arc<Fetcher>,
    pub timeout: Duration,
    pub interval: Duration,
}

impl Telemetry {
    /// Asks one node once, and learns from what it says.
    pub async fn poll(&self, node: &Node) {
        match self.engine(node).await {
            Ok(engine) => self.poll_as(node, engine).await,
            Err(problem) => node.note(Finder::Telemetry, &problem),
        }
    }

    async fn poll_as(&self, node: &Node, engine: &'static Engine) {
        let asked = self.fleet.with(|fleet, now| fleet.asked(node.id, now));
        match self.read(node, engine).await {
            Ok(mut reading) => {
                if let Some(inquiry) = &engine.inquiry {
                    node.inquiries.complete(inquiry, &mut reading);
                    node.inquiries.go_on(inquiry, &reading, self.asker(node));
                }
                self.fleet.with(|fleet, now| fleet.learn_report(node.id, &reading.report, asked, now));
                if **node.listings.load() != reading.listings {
                    node.listings.store(Arc::new(reading.listings));
                }
                node.note(Finder::Telemetry, "");
            }
            Err(problem) => node.note(Finder::Telemetry, &problem),
        }
    }

    fn asker(&self, node: &Node) -> Asker {
        let (target, fetcher) = (node.target.clone(), self.fetcher.clone());
        Asker { node: node.name.clone(), target, fetcher, timeout: self.timeout }
    }

    async fn read(&self, node: &Node, engine: &'static Engine) -> Result<Reading, String> {
        let mut asking = JoinSet::new();
        for (place, poll) in engine.polls.iter().enumerate() {
            let (fetcher, target, timeout) = (self.fetcher.clone(), node.target.clone(), self.timeout);
            asking.spawn(async move { (place, fetcher.get(&target, poll.path, timeout).await) });
        }
        let mut bodies: Vec<Option<Bytes>> = vec![None; engine.polls.len()];
        while let Some(asked) = asking.join_next().await {
            let (place, answer) = asked.map_err(|died| format!("asking it failed: {died}"))?;
            let poll = &engine.polls[place];
            match good_body(answer, poll.path, engine) {
                Ok(body) => bodies[place] = Some(body),
                Err(problem) if poll.required => return Err(problem),
                Err(problem) => log::debug!("{}: GET {}: {problem}", node.name, poll.path),
            }
        }
        let bodies: Vec<Option<&[u8]>> = bodies.iter().map(Option::as_deref).collect();
        (engine.read)(&bodies)
    }

    /// The node's engine: configured, or recognised by what it answers.
    async fn engine(&self, node: &Node) -> Result<&'static Engine, String> {
        if let Some(engine) = node.engine.get() {
            return Ok(engine);
        }
        let engine = self.recognise(node).await?;
        log::info!("{}: it is {}", node.name, engine.name);
        self.fleet.with(|fleet, _| fleet.learn_engine(node.id, engine.traits()));
        Ok(node.engine.get_or_init(|| engine))
    }

    async fn recognise(&self, node: &Node) -> Result<&'static Engine, String> {
        let mut heard: BTreeMap<&str, Option<Bytes>> = BTreeMap::new();
        let mut complaint = None;
        for engine in engines::detection_order() {
            let path = engine.fingerprint_path;
            if !heard.contains_key(path) {
                let answer = match self.fetcher.get(&node.target, path, self.timeout).await {
                    // Others may be served better; who cannot be reached is not asked six times.
                    Err(FetchError::Broken(_) | FetchError::TooLarge) => None,
                    answer => Some(answer.map_err(|error| error.to_string())?),
                };
                complaint = complaint.or(answer.as_ref().and_then(|answer| about_the_server(answer, path)));
                heard.insert(path, answer.filter(|answer| answer.status.is_success()).map(|answer| answer.body));
            }
            if heard[path].as_ref().is_some_and(|body| (engine.recognises)(body)) {
                return Ok(engine);
            }
        }
        Err(complaint.unwrap_or("nothing there answers like an engine we know; set `engine:` if it is one".into()))
    }
}

/// What stands in the way at any path; that it does not know this one says nothing.
fn about_the_server(answer: &Fetched, path: &str) -> Option<String> {
    let tells = matches!(answer.status.as_u16(), 401 | 403 | 500..);
    if tells { complaint::about(answer, path, None) } else { None }
}

fn good_body(answer: Result<Fetched, FetchError>, path: &str, engine: &Engine) -> Result<Bytes, String> {
    let answer = answer.map_err(|error| error.to_string())?;
    match complaint::about(&answer, path, Some(engine)) {
        Some(problem) => Err(problem),
        None => Ok(answer.body),
    }
}

#[cfg(test)]
mod tests;
