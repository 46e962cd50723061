//! An upstream as the edge knows it: where it is, what it runs, what it lists.
//!
//! The fleet holds what decisions need; a node holds what talking needs. Both go by the same id.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};

use super::complaint::LOADING;
use super::inquiries::Inquiries;
use super::problem::{Finder, Problem};
use super::standing::Standing;
use super::target::Target;
use crate::engines::{Engine, Listing};
use crate::routing::fleet::UpstreamId;

pub struct Node {
    pub id: UpstreamId,
    pub name: String,
    pub target: Target,
    /// Configured, or recognised at the first answer; never changes after.
    pub engine: OnceLock<&'static Engine>,
    /// Where the name led last.
    pub address: ArcSwapOption<SocketAddr>,
    /// The models as the engine lists them, from the latest good reading.
    pub listings: ArcSwap<Vec<Listing>>,
    pub inquiries: Arc<Inquiries>,
    /// What is wrong with it.
    pub problem: Problem,
    pub standing: Standing,
}

impl Node {
    pub fn new(id: UpstreamId, name: String, target: Target, engine: Option<&'static Engine>) -> Node {
        Node {
            id,
            name,
            target,
            engine: engine.map_or_else(OnceLock::new, OnceLock::from),
            address: ArcSwapOption::empty(),
            listings: ArcSwap::default(),
            inquiries: Arc::default(),
            problem: Problem::new("not asked yet"),
            standing: Standing::default(),
        }
    }

    /// Notes what `finder` found wrong, empty for nothing, and logs it if that was not known.
    pub fn note(&self, finder: Finder, finding: &str) {
        match self.problem.note(finder, finding).as_deref().map(String::as_str) {
            None => {}
            Some("") => log::info!("{}: fine", self.name),
            Some(LOADING) => log::info!("{}: {LOADING}", self.name),
            Some(problem) => log::warn!("{}: {problem}", self.name),
        }
    }
}
