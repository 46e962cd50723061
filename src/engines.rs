//! The software that upstreams run: one file an engine, one line in the roster.
//!
//! An engine is data: which paths to ask, what a good answer looks like, how names compare. The only
//! code is a few pure functions over the bodies of answers: `read` says what one poll told, the others
//! what an answer means. Reading is strict about the list of models, because a failed poll must never
//! look like an empty node, and lenient about everything else. Nothing here opens a connection;
//! `edge::telemetry` and `edge::probe` do the asking.

mod litellm;
mod llama_cpp;
mod ollama;
mod openai;
mod sglang;
mod vllm;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::routing::ask::{Dialect, Endpoint};
pub use crate::routing::name::Naming;
use crate::routing::prefix::CacheKind;
use crate::routing::report::{Abilities, Load, ModelReport, Report};
use crate::routing::upstream::Traits;
use crate::wire::prometheus::samples;

/// Every engine, by name. Configuration, detection and metrics run over it.
#[rustfmt::skip]
pub static ROSTER: &[&Engine] = &[
    &litellm::ENGINE,
    &llama_cpp::ENGINE,
    &ollama::ENGINE,
    &openai::ENGINE,
    &sglang::ENGINE,
    &vllm::ENGINE,
];

/// Models one upstream may list. LiteLLM and hosted catalogues have hundreds; what exceeds this is
/// no list of models.
const MODELS_MAX: usize = 4096;

/// Parts of one engine that count their requests apart: ranks, or models.
const PARTS_MAX: usize = 1024;

/// The bodies of one round, in the order of `Engine::polls`; `None` for an optional one that did not come.
pub type Bodies<'a> = [Option<&'a [u8]>];

/// One engine, as data.
pub struct Engine {
    /// The value of `engine:` in the configuration.
    pub name: &'static str,
    pub dialects: &'static [Dialect],
    /// Paths of its dialects that it does not have.
    pub lacks: &'static [Endpoint],
    pub naming: Naming,
    pub probe: Probe,
    /// What one telemetry round asks.
    pub polls: &'static [Poll],
    /// What is asked of each model besides, where the lists do not tell enough.
    pub inquiry: Option<Inquiry>,
    /// Sent with every request that is passed on to it.
    pub headers: &'static [(&'static str, &'static str)],
    /// The engine serves the models it lists and no others: always resident, nothing to load.
    pub fixed_models: bool,
    /// A stream of its OpenAI API ends with an event of counts if `stream_options` asks for it.
    pub counts_on_request: bool,
    /// Requests may say a `cache_salt`, under which alone their prompts are found in its cache.
    pub salts_cache: bool,
    /// Paths where they may not, although on others they may; of some versions, see `Report::salts_all_paths`.
    pub unsalted: &'static [Endpoint],
    /// Parallel requests a model, assumed only to divide depth by, never to limit.
    pub default_slots: u32,
    /// How it keeps what it has read.
    pub cache: CacheKind,
    /// Statuses by which it says that it has no place for a request now; the request moves on. 429 is one of
    /// them: no client's key goes upstream, so whatever limit it tells is Warmgate's own on that node.
    pub busy_statuses: &'static [u16],
    /// Understands the bodies of one round; an error says which is not what it should be.
    pub read: fn(&Bodies) -> Result<Reading, String>,
    /// GET path whose answer gives the engine away.
    pub fingerprint_path: &'static str,
    /// Whether the body of a 200 from `fingerprint_path` is this engine's.
    pub recognises: fn(&[u8]) -> bool,
    /// What others imitate: recognised only when no other engine is.
    pub generic: bool,
    /// Header that chooses one of its data-parallel ranks by number; `None`: it cannot be chosen.
    pub rank_header: Option<&'static str>,
    /// Members by which a chat takes a last message of the assistant for the beginning of its answer; empty: it
    /// always does. `None`: it is not known to.
    pub continues: Option<&'static str>,
}

/// How to find out whether an engine can serve, without costing it anything.
pub struct Probe {
    /// GET path.
    pub path: &'static str,
    /// What is asked instead of servers too old for `path`, which answer 404 to it.
    pub older_path: Option<&'static str>,
    /// An answer may take this long even where less is configured.
    pub patience: Duration,
    /// Whether the body of a 200 is this engine's, and says that it can serve.
    pub says_up: fn(&[u8]) -> bool,
    /// Whether the body of a 503, to the probe or to any poll, says that it will serve soon.
    pub says_loading: fn(&[u8]) -> bool,
}

/// One GET of a telemetry round.
pub struct Poll {
    pub path: &'static str,
    /// Without its answer nothing is learnt; otherwise only what it would have told is unknown.
    pub required: bool,
}

/// A question about one model, asked once for each edition of it. A POST that only reads: it must neither
/// load a model nor make a token.
pub struct Inquiry {
    pub path: &'static str,
    /// The body that asks about the model of that name.
    pub body: fn(&str) -> Vec<u8>,
    /// What tells one edition of a model from another of the same name; `None`: it is not to be asked about.
    pub edition: fn(&Listing) -> Option<&str>,
    pub read: fn(&[u8]) -> Result<ModelFacts, String>,
}

/// What an inquiry told, as far as it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelFacts {
    pub abilities: Option<Abilities>,
    /// Tokens that the model was trained to look back on.
    pub trained_tokens: Option<u32>,
    /// The window that the model's own settings ask for.
    pub own_window: Option<u32>,
}

impl ModelFacts {
    /// Adds to a report what its lists left open.
    pub fn complete(&self, report: &mut ModelReport) {
        report.abilities = report.abilities.or(self.abilities);
        report.trained_tokens = report.trained_tokens.or(self.trained_tokens);
        report.own_window = report.own_window.or(self.own_window);
    }
}

impl Poll {
    const fn required(path: &'static str) -> Poll {
        Poll { path, required: true }
    }

    const fn optional(path: &'static str) -> Poll {
        Poll { path, required: false }
    }
}

impl Engine {
    /// What routing must know of it.
    pub fn traits(&self) -> Traits {
        Traits {
            dialects: self.dialects,
            naming: self.naming,
            fixed_models: self.fixed_models,
            lacks: self.lacks,
            unsalted: self.unsalted,
            stores_responses: self.naming == Naming::Exact,
            default_slots: self.default_slots,
            cache: self.cache,
            busy_statuses: self.busy_statuses,
        }
    }
}

/// The engine of that name.
pub fn find(name: &str) -> Option<&'static Engine> {
    ROSTER.iter().copied().find(|engine| engine.name == name)
}

/// The engines in the order in which an unknown server is tried for them; the first to recognise
/// its answer is right.
pub fn detection_order() -> impl Iterator<Item = &'static Engine> {
    detection_order_of(ROSTER)
}

fn detection_order_of(roster: &[&'static Engine]) -> impl Iterator<Item = &'static Engine> {
    let particular = roster.iter().copied().filter(|engine| !engine.generic);
    particular.chain(roster.iter().copied().filter(|engine| engine.generic))
}

/// What one telemetry round gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    pub report: Report,
    /// What it tells of each of its data-parallel ranks, where it tells them apart.
    pub ranks: Vec<Rank>,
    /// The entries as the engine lists them, for the merged catalogue.
    pub listings: Vec<Listing>,
}

/// What is told of one data-parallel rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    pub number: u32,
    pub slots: Option<u32>,
    pub load: Option<Load>,
}

impl Reading {
    /// The same as told by one rank: the server's models, and of load and slots what is known of this
    /// rank alone. What is told of the whole server is not split, since nobody knows how it lies.
    pub fn of_rank(&self, number: u32) -> Report {
        let told = self.ranks.iter().find(|rank| rank.number == number);
        let models = self.report.models.clone();
        Report {
            models,
            slots: told.and_then(|rank| rank.slots),
            // Ranks are alike, and so are their caches.
            cache_tokens: self.report.cache_tokens.map(|all| all / self.ranks.len().max(1) as u64),
            load: told.and_then(|rank| rank.load),
            salts_all_paths: self.report.salts_all_paths,
        }
    }
}

/// One model's entries in the engine's own lists, untouched.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    pub name: String,
    /// Entry of `/api/tags`.
    pub tags: Option<Value>,
    /// Entry of `/api/ps`.
    pub ps: Option<Value>,
    /// Entry of `/v1/models`.
    pub openai: Option<Value>,
}

/// The entries of the list under `key` in a JSON object, and nothing less.
fn entries(body: &[u8], key: &str) -> Result<Vec<Value>, String> {
    let answer: Value = serde_json::from_slice(body).map_err(|e| format!("not JSON: {e}"))?;
    let Value::Object(mut answer) = answer else {
        return Err("not a JSON object".to_string());
    };
    match answer.remove(key) {
        Some(Value::Array(entries)) if entries.len() > MODELS_MAX => Err(format!("more than {MODELS_MAX} models")),
        Some(Value::Array(entries)) => Ok(entries),
        // How Go writes an empty slice.
        Some(Value::Null) => Ok(Vec::new()),
        Some(_) => Err(format!("`{key}` is not a list")),
        None => Err(format!("no `{key}`")),
    }
}

/// Reads each entry of a list. One that does not fit is left out, since the others are no worse for it; a
/// list of which none fits is somebody else's.
fn each_fitting(list: Vec<Value>, mut read: impl FnMut(Value) -> Result<(), String>) -> Result<(), String> {
    let (mut fitting, mut problem) = (0, None);
    for entry in list {
        match if entry.is_object() { read(entry) } else { Err("an entry is not an object".to_string()) } {
            Ok(()) => fitting += 1,
            Err(why) => {
                log::debug!("left out of a list of models: {why}");
                problem = Some(why);
            }
        }
    }
    problem.filter(|_| fitting == 0).map_or(Ok(()), Err)
}

/// For probes whose good answer differs by version and may be empty: a page is somebody else's.
fn is_no_page(body: &[u8]) -> bool {
    !body.trim_ascii_start().starts_with(b"<")
}

/// A round without the bodies it must have.
fn misfit(bodies: &Bodies) -> String {
    let come = bodies.iter().flatten().count();
    format!("{come} of {} bodies are not what one round asks", bodies.len())
}

/// What models and facts of a server make one reading.
fn reading(models: Vec<(ModelReport, Listing)>, slots: Option<u32>, load: Option<Load>) -> Reading {
    let (models, listings) = models.into_iter().unzip();
    let report = Report { models, slots: slots.filter(|count| *count > 0), load, ..Report::default() };
    Reading { report, ranks: Vec::new(), listings }
}

/// Requests at an engine by its metrics: the first of the names that is there counts.
fn load(metrics: &[u8], running: &[&str], waiting: &[&str]) -> Option<Load> {
    let running = requests(metrics, running)?;
    Some(Load { running, waiting: requests(metrics, waiting).unwrap_or(0) })
}

/// The same for each data-parallel rank that they name.
fn rank_loads(metrics: &[u8], running: &[&str], waiting: &[&str]) -> Vec<Rank> {
    let count = |names| parts(metrics, names).map_or_else(BTreeMap::new, |parts| by_rank(&parts));
    let (running, waiting) = (count(running), count(waiting));
    let load = |(number, running): (u32, u32)| {
        let waiting = waiting.get(&number).copied().unwrap_or(0);
        Rank { number, slots: None, load: Some(Load { running, waiting }) }
    };
    running.into_iter().map(load).collect()
}

/// Labels that tell apart requests; others (tensor ranks, priorities) tell of the same ones again.
const PART_LABELS: [&str; 4] = ["model_name", "engine", "dp_rank", "dp"];

/// Counts by the values of `PART_LABELS`.
type Parts<'a> = BTreeMap<[Cow<'a, str>; 4], f64>;

/// Over all models and ranks, since they share the machine.
fn requests(metrics: &[u8], names: &[&str]) -> Option<u32> {
    // The cast saturates.
    parts(metrics, names).map(|parts| parts.values().sum::<f64>() as u32)
}

/// Over all models; of parts that name a rank.
fn by_rank(parts: &Parts) -> BTreeMap<u32, u32> {
    let mut ranks: BTreeMap<u32, f64> = BTreeMap::new();
    for ([_, labels @ ..], count) in parts {
        if let Some(number) = labels.iter().find_map(|label| label.parse().ok()) {
            *ranks.entry(number).or_default() += count;
        }
    }
    ranks.into_iter().map(|(number, count)| (number, count as u32)).collect()
}

/// The counts of the first of the names that is there.
fn parts<'a>(metrics: &'a [u8], names: &[&str]) -> Option<Parts<'a>> {
    names.iter().find_map(|name| {
        let mut parts = Parts::new();
        let counts = samples(metrics).filter(|sample| sample.name == *name);
        for sample in counts.filter(|sample| sample.value.is_finite() && sample.value >= 0.0) {
            let part = PART_LABELS.map(|label| sample.label(label).unwrap_or_default());
            if parts.len() < PARTS_MAX || parts.contains_key(&part) {
                let most = parts.entry(part).or_default();
                *most = most.max(sample.value);
            }
        }
        (!parts.is_empty()).then_some(parts)
    })
}

/// Tokens as the core counts them.
fn tokens(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
