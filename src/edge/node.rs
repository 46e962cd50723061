//! An upstream as the edge knows it: where it is, what it runs, what it lists.
//!
//! The fleet holds what decisions need; a node holds what talking needs. Both go by the same id.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};

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
    /// What is wrong with it, in words; empty when nothing is.
    pub problem: ArcSwap<String>,
    /// A check has succeeded since the last refused connection.
    seen_up: AtomicBool,
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
            problem: ArcSwap::from_pointee("not asked yet".to_string()),
            seen_up: AtomicBool::new(false),
        }
    }

    /// Notes whether it was last seen up; true if that is news.
    pub fn saw_up(&self, up: bool) -> bool {
        self.seen_up.swap(up, Ordering::Relaxed) != up
    }

    /// Notes what is wrong, and logs it if it was not known.
    pub fn note_problem(&self, problem: &str) {
        if **self.problem.load() != problem {
            match problem {
                "" => log::info!("{}: fine", self.name),
                problem => log::warn!("{}: {problem}", self.name),
            }
            self.problem.store(problem.to_string().into());
        }
    }
}
