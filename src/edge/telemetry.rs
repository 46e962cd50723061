//! What the nodes say of themselves, asked for at intervals.
//!
//! Each node is asked by a task of its own, so that one which hangs delays no other. A failed or
//! malformed answer changes nothing but the note of what is wrong: a failed poll is not an empty node.

use std::sync::Arc;
use std::time::Duration;

use super::fetch::Fetcher;
use super::node::Node;
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
        let asked_at = self.fleet.now();
        match self.read(node).await {
            Ok(reading) => {
                self.fleet.with(|fleet, now| fleet.learn_report(node.id, &reading.report, asked_at, now));
                if **node.listings.load() != reading.listings {
                    node.listings.store(Arc::new(reading.listings));
                }
                node.note_problem("");
            }
            Err(problem) => node.note_problem(&problem),
        }
    }

    async fn read(&self, node: &Node) -> Result<Reading, String> {
        let engine = self.engine(node).await?;
        let mut bodies = Vec::with_capacity(engine.poll_paths.len());
        for path in engine.poll_paths {
            bodies.push(self.body(node, path).await?);
        }
        let bodies: Vec<&[u8]> = bodies.iter().map(|body| &body[..]).collect();
        (engine.read)(&bodies)
    }

    /// The node's engine: configured, or recognised by what it answers.
    async fn engine(&self, node: &Node) -> Result<&'static Engine, String> {
        if let Some(engine) = node.engine.get() {
            return Ok(engine);
        }
        for engine in engines::detection_order() {
            if let Ok(body) = self.body(node, engine.fingerprint_path).await
                && (engine.recognises)(&body)
            {
                log::info!("{}: it is {}", node.name, engine.name);
                self.fleet.with(|fleet, _| fleet.learn_engine(node.id, engine.traits()));
                return Ok(node.engine.get_or_init(|| engine));
            }
        }
        Err("nothing there answers like an engine we know; set `engine:` if it is one".to_string())
    }

    async fn body(&self, node: &Node, path: &str) -> Result<bytes::Bytes, String> {
        let answer = self.fetcher.get(&node.target, path, self.timeout).await.map_err(|error| error.to_string())?;
        match answer.status.is_success() {
            true => Ok(answer.body),
            false => Err(format!("it answers {} to GET {path}", answer.status.as_u16())),
        }
    }
}
