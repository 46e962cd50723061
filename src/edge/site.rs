//! A server as the edge knows it: where it is, what it runs, what it lists.
//!
//! One URL, or one address of a name that has several. The rows that share it (`Node`) share what is
//! known of it; the fleet holds what decisions need of each row, a site what talking needs. What is
//! configured of a site never changes: under a new configuration another takes its place and goes on from
//! what it knew.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};

use super::complaint::LOADING;
use super::inquiries::Inquiries;
use super::problem::{Finder, Finding, Problem};
use super::shared_fleet::SharedFleet;
use super::standing::Standing;
use super::target::Target;
use crate::config;
use crate::engines::{self, Engine, Listing};
use crate::routing::fleet::UpstreamId;

pub struct Site {
    /// The upstream's name, with the label of its address if that was discovered.
    pub name: String,
    pub configured: config::Upstream,
    /// Its rows; more than one if its ranks are told apart, then in their order.
    pub rows: Vec<UpstreamId>,
    pub target: Target,
    /// Configured, or recognised at the first answer; never changes after.
    pub engine: OnceLock<&'static Engine>,
    /// Where requests are sent; the name led there last.
    pub address: ArcSwapOption<SocketAddr>,
    /// The models as the engine lists them, from the latest good reading.
    pub listings: ArcSwap<Vec<Listing>>,
    pub inquiries: Arc<Inquiries>,
    /// What is wrong with it.
    pub problem: Problem,
    pub standing: Standing,
}

/// What is said of a server whose certificate is taken unchecked.
pub const UNCHECKED: &str = "its certificate is not checked (tls.insecure): whoever is in between can read and \
                             change everything";

impl Site {
    pub fn new(name: String, configured: config::Upstream, rows: Vec<UpstreamId>, target: Target) -> Site {
        let engine = configured.engine.and_then(engines::find);
        Site {
            name,
            configured,
            rows,
            target,
            engine: engine.map_or_else(OnceLock::new, OnceLock::from),
            address: ArcSwapOption::empty(),
            listings: ArcSwap::default(),
            inquiries: Arc::default(),
            problem: Problem::new("not asked yet"),
            standing: Standing::default(),
        }
    }

    /// The same server under another configuration, with what is known of it.
    pub fn reconfigured(&self, configured: config::Upstream, target: Target) -> Site {
        Site {
            name: self.name.clone(),
            configured,
            rows: self.rows.clone(),
            target,
            engine: self.engine.clone(),
            address: ArcSwapOption::from(self.address.load_full()),
            listings: ArcSwap::from(self.listings.load_full()),
            inquiries: self.inquiries.clone(),
            problem: Problem::new(&self.problem.load()),
            standing: self.standing.clone(),
        }
    }

    /// Its first row, which is asked for all of them.
    pub fn is_led_by(&self, row: UpstreamId) -> bool {
        self.rows.first() == Some(&row)
    }

    /// Whether its engine keeps cached prompts apart by a salt.
    pub fn salts_cache(&self) -> bool {
        self.engine.get().is_some_and(|engine| engine.salts_cache)
    }

    /// Its certificate is taken unchecked.
    pub fn is_insecure(&self) -> bool {
        self.configured.tls.as_ref().is_some_and(|tls| tls.insecure)
    }

    /// Lets the fleet know whether it can serve.
    pub fn learn_health(&self, fleet: &SharedFleet, healthy: bool) {
        fleet.with(|fleet, now| self.rows.iter().for_each(|row| fleet.learn_health(*row, healthy, now)));
    }

    /// Sends requests elsewhere from now on; what stands there has yet to be seen.
    pub fn move_to(&self, address: Option<SocketAddr>) {
        let before = self.address.swap(address.map(Arc::new));
        if before.is_some_and(|before| Some(*before) != address) {
            self.standing.saw_move();
        }
    }

    /// Notes what `finder` found wrong, empty for nothing, and logs it if that was not known.
    pub fn note(&self, finder: Finder, finding: impl Into<Finding>) {
        match self.problem.note(finder, finding.into()).as_deref().map(String::as_str) {
            None => {}
            Some("") => log::info!("{}: fine", self.name),
            Some(LOADING) => log::info!("{}: {LOADING}", self.name),
            Some(problem) => log::warn!("{}: {problem}", self.name),
        }
    }
}
