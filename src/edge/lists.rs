//! The merged lists as bytes, made anew in the background when what they are made of changes.
//!
//! Merging reads every entry of every node; clients ask for lists often, and some all the time. So who
//! asks is handed what is there, and never waits for a node or a merge. What differs between nodes is
//! found at the same time, and told once.

mod list;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::sleep;

pub use list::List;

use super::catalogue::{self, Copied, Drift, Spellings};
use super::ingress::Ingress;
use super::metrics::Metrics;
use super::site::Site;
use crate::engines::Listing;
use crate::routing::ask::Dialect;
use crate::routing::fleet::UpstreamId;
use crate::routing::group::Groups;
use crate::routing::name::{self, Naming};

/// How soon a change is seen. Looking compares pointers and costs microseconds.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// After making lists, so many times as long is rested: busy Ollama nodes change theirs with every
/// request, and the lists of a large fleet must not take more than a twentieth of a core.
const REST_TIMES: u32 = 19;

/// The latest lists.
#[derive(Default)]
pub struct Lists {
    made: ArcSwap<Made>,
    /// One at a time, so that each change is told once.
    catching_up: Mutex<()>,
}

/// Lists, and what they were made of.
pub struct Made {
    of: Sources,
    pub tags: List,
    pub ps: List,
    pub openai: List,
    models: HashMap<String, Bytes>,
    spellings: Spellings,
    /// What differs between the nodes that are up.
    pub drifts: Vec<Drift>,
}

/// The servers that are up with what they listed last, and the configured names.
#[derive(Default)]
struct Sources {
    sites: Vec<(Arc<Site>, Arc<Vec<Listing>>)>,
    groups: Groups,
}

/// Keeps the lists up to date.
pub async fn keep(ingress: Arc<Ingress>) -> Infallible {
    let mut rest = LOOK_EVERY;
    loop {
        sleep(rest).await;
        let began = Instant::now();
        ingress.lists.catch_up(&ingress);
        rest = LOOK_EVERY.max(began.elapsed() * REST_TIMES);
    }
}

impl Lists {
    /// The latest, from memory.
    pub fn latest(&self) -> Arc<Made> {
        self.made.load_full()
    }

    /// Makes the lists anew if they are out of date.
    pub fn catch_up(&self, ingress: &Ingress) {
        let _alone = self.catching_up.lock();
        let (before, of) = (self.latest(), Sources::now(ingress));
        if before.of == of {
            return;
        }
        let made = Arc::new(make(ingress, of));
        self.made.store(made.clone());
        tell(&before.drifts, &made.drifts, &ingress.metrics);
    }
}

/// Of no nodes.
impl Default for Made {
    fn default() -> Made {
        let models = ollama(&json!({ "models": [] }));
        Made {
            of: Sources::default(),
            tags: models.clone(),
            ps: models,
            openai: openai(&BTreeMap::new()),
            models: HashMap::new(),
            spellings: Spellings::default(),
            drifts: Vec::new(),
        }
    }
}

impl Made {
    /// One OpenAI entry, by any spelling its node accepts.
    pub fn openai_model(&self, id: &str) -> Option<Bytes> {
        self.models.get(id).or_else(|| self.models.get(self.spellings.meant(id)?)).cloned()
    }
}

impl Sources {
    fn now(ingress: &Ingress) -> Sources {
        let nodes = ingress.roster.nodes();
        let (up, groups) = ingress.fleet.with(|fleet, _| {
            let row_up = |row: &UpstreamId| fleet.upstream(*row).is_some_and(|upstream| upstream.healthy);
            let up = |site: &&Arc<Site>| site.rows.iter().any(row_up);
            (nodes.sites().filter(up).cloned().collect::<Vec<_>>(), fleet.rules.groups.clone())
        });
        let sites = up.into_iter().map(|site| {
            let listings = site.listings.load_full();
            (site, listings)
        });
        Sources { sites: sites.collect(), groups }
    }
}

impl PartialEq for Sources {
    fn eq(&self, other: &Sources) -> bool {
        let places = |(site, listings): &(Arc<Site>, Arc<_>)| (Arc::as_ptr(site), Arc::as_ptr(listings));
        self.sites.iter().map(places).eq(other.sites.iter().map(places)) && self.groups == other.groups
    }
}

fn make(ingress: &Ingress, of: Sources) -> Made {
    let told = of.sites.iter().map(|(site, listings)| told(ingress, site, listings, &of.groups));
    let nodes: Vec<catalogue::Node> = told.collect();
    let configured: BTreeSet<String> = of.groups.listed().iter().map(|group| name::fold(&group.name)).collect();
    let seen: Vec<Copied> = catalogue::seen(&nodes, &configured);
    let models = catalogue::openai_models(&seen);
    let bytes = |value: &Value| Bytes::from(value.to_string());
    Made {
        tags: ollama(&catalogue::tags(&seen)),
        ps: ollama(&catalogue::ps(&seen)),
        openai: openai(&models),
        models: models.iter().map(|(id, model)| (id.to_string(), bytes(model))).collect(),
        spellings: Spellings::of(&seen),
        drifts: catalogue::drifts(&nodes),
        of,
    }
}

fn ollama(models: &Value) -> List {
    List::of(r#"{"models":["#, models["models"].as_array().into_iter().flatten(), "name", "]}")
}

fn openai(models: &BTreeMap<&str, Value>) -> List {
    List::of(r#"{"data":["#, models.values(), "id", r#"],"object":"list"}"#)
}

fn told<'a>(ingress: &Ingress, site: &'a Site, listings: &'a [Listing], groups: &'a Groups) -> catalogue::Node<'a> {
    let engine = site.engine.get();
    let naming = engine.map_or(Naming::Exact, |engine| engine.naming);
    let windows: BTreeMap<String, u32> = ingress.fleet.with(|fleet, _| {
        let window = |held: &crate::routing::upstream::Holding| Some((held.name.clone(), held.context_tokens?));
        site.rows.iter().flat_map(|row| fleet.holdings_of(*row)).filter_map(window).collect()
    });
    let aliases = groups.listed().into_iter().filter_map(|group| {
        let mine = group.targets.iter().filter(|target| site.rows.contains(&target.upstream));
        let mut served =
            mine.filter_map(|target| listings.iter().find(|held| naming.is_same(&held.name, &target.model)));
        Some((group.name.as_str(), served.next()?))
    });
    catalogue::Node {
        name: &site.name,
        speaks_ollama: engine.is_some_and(|engine| engine.dialects.contains(&Dialect::Ollama)),
        naming,
        listings,
        aliases: aliases.collect(),
        windows,
    }
}

/// Says what has changed, and shows what there is.
fn tell(before: &[Drift], now: &[Drift], metrics: &Metrics) {
    for new in now.iter().filter(|drift| !before.contains(drift)) {
        log::warn!("{}", new.describe());
    }
    let same = |a: &Drift, b: &Drift| (&a.model, a.kind) == (&b.model, b.kind);
    for gone in before.iter().filter(|gone| !now.iter().any(|drift| same(drift, gone))) {
        log::info!("{}: its {} no longer differs between the nodes that are up", gone.model, gone.kind.name());
    }
    let labels = catalogue::labels(now);
    for (model, kind) in catalogue::labels(before).into_keys().filter(|label| !labels.contains_key(label)) {
        let _ = metrics.model_drift.remove_label_values(&[model, kind]);
    }
    for ((model, kind), count) in labels {
        metrics.model_drift.with_label_values(&[model, kind]).set(count);
    }
}

#[cfg(test)]
mod tests;
