//! What is counted of one model on one node.
//!
//! The series of a pair are looked up once for each attempt and made when they are first needed. A model goes
//! by the name its node lists it under; of a request that no node was asked, the node is empty. There is room
//! for a bounded number of models, beyond which all others count as one. Series of nodes and models that are
//! there no more are told for a while, so that whoever collects them sees their last counts, and then go.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};

use super::family::{Register, SECONDS, TOKENS_A_SECOND, model, node, one_of};
use crate::edge::verdict::Verdict;
use crate::routing::ask::Dialect;
use crate::routing::moment::Moment;

/// Models with a label of their own: nodes, and clients that may create models, must not make series at will.
pub const MODELS_MAX: usize = 256;

/// Stands for all models beyond these, and for names that no node knows.
pub const OTHER: &str = "other";

/// Of a model's name; a longer one counts as `other`.
const NAME_BYTES_MAX: usize = 128;

/// Series of what has left are told for so long, since collectors come every minute at the latest.
const KEPT_AFTER_LEAVING: Duration = Duration::from_secs(300);

/// Who told what a prompt's tokens were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The engine told the prompt and what of it was cached.
    Told,
    /// It told the prompt; what of it was cached is an estimate.
    HalfTold,
    /// It told neither.
    Estimated,
}

impl Source {
    pub const ALL: [Source; 3] = [Source::Told, Source::HalfTold, Source::Estimated];

    pub fn name(self) -> &'static str {
        match self {
            Source::Told => "told",
            Source::HalfTold => "half_told",
            Source::Estimated => "estimated",
        }
    }
}

const KINDS: [&str; 2] = ["cached", "uncached"];

/// The families that have a series for each pair.
#[derive(Clone)]
struct Families {
    requests: IntCounterVec,
    request_seconds: HistogramVec,
    first_byte_seconds: HistogramVec,
    prefill_seconds: HistogramVec,
    load_seconds: HistogramVec,
    decode_rate: HistogramVec,
    loads: IntCounterVec,
    prompt_tokens: IntCounterVec,
    output_tokens: IntCounterVec,
}

pub struct Pairs {
    families: Families,
    /// By node, then by model.
    known: ArcSwap<HashMap<String, HashMap<String, Arc<Served>>>>,
    changing: Mutex<HashMap<(String, String), Moment>>,
}

/// The series of one model on one node.
pub struct Served {
    pub node: String,
    pub model: String,
    families: Families,
    requests: [OnceLock<Vec<IntCounter>>; Dialect::ALL.len()],
    request_seconds: OnceLock<Histogram>,
    first_byte_seconds: OnceLock<Histogram>,
    prefill_seconds: OnceLock<Histogram>,
    load_seconds: OnceLock<Histogram>,
    decode_rate: OnceLock<Histogram>,
    loads: OnceLock<IntCounter>,
    prompt_tokens: [OnceLock<[IntCounter; 2]>; Source::ALL.len()],
    output_tokens: OnceLock<IntCounter>,
    has_gone: AtomicBool,
}

impl Pairs {
    pub fn new(register: &mut Register) -> prometheus::Result<Pairs> {
        let pair = [model(), node()];
        let mut seconds = |name, help| register.histograms(name, help, &SECONDS, &pair);
        let request_seconds = seconds(
            "warmgate_request_seconds",
            "From the request's head to its end, of requests that a node was asked",
        )?;
        let first_byte_seconds =
            seconds("warmgate_first_byte_seconds", "From the request's head to the first byte of a good answer")?;
        let prefill_seconds =
            seconds("warmgate_prefill_seconds", "Reading a prompt, where waiting and loading could be told from it")?;
        let load_seconds =
            seconds("warmgate_model_load_seconds", "Loading a model, for the requests that it was loaded for")?;
        let decode_rate = register.histograms(
            "warmgate_decode_tokens_per_second",
            "Tokens a second of streamed answers after their first byte, as engines told",
            &TOKENS_A_SECOND,
            &pair,
        )?;
        let dialect = one_of("dialect", Dialect::ALL.map(Dialect::name));
        let outcome = one_of("outcome", Verdict::ALL.map(Verdict::name));
        let requests = register.counters(
            "warmgate_requests_total",
            "Requests by outcome; without a node where none was asked",
            &[model(), node(), dialect, outcome],
        )?;
        let prompt_tokens = register.counters(
            "warmgate_prompt_tokens_total",
            "Prompt tokens of answered requests, by whether the node had them cached and by who told so",
            &[model(), node(), one_of("kind", KINDS), one_of("source", Source::ALL.map(Source::name))],
        )?;
        let output_tokens =
            register.counters("warmgate_output_tokens_total", "Tokens of answers as engines told", &pair)?;
        let loads = register.counters(
            "warmgate_model_loads_total",
            "Attempts for which a node had to load a model, or to load it anew with other options",
            &pair,
        )?;
        let families = Families {
            requests,
            request_seconds,
            first_byte_seconds,
            prefill_seconds,
            load_seconds,
            decode_rate,
            loads,
            prompt_tokens,
            output_tokens,
        };
        let pairs = Pairs { families, known: ArcSwap::default(), changing: Mutex::default() };
        let nobody = pairs.of("", "");
        for dialect in Dialect::ALL {
            let _ = nobody.requests_in(dialect);
        }
        Ok(pairs)
    }

    /// The series of a model on a node, under `other` where there is no room for another name.
    pub fn of(&self, node: &str, model: &str) -> Arc<Served> {
        let find = |model: &str| Some(self.known.load().get(node)?.get(model)?.clone());
        find(model).unwrap_or_else(|| self.add(node, model))
    }

    /// The same series, made anew if they have gone since.
    pub fn again(&self, served: &Arc<Served>) -> Arc<Served> {
        match served.has_gone.load(Ordering::Relaxed) {
            true => self.of(&served.node, &served.model),
            false => served.clone(),
        }
    }

    /// The models that have a label of their own.
    pub fn labels(&self) -> Labels {
        Labels::of(&self.known.load())
    }

    fn add(&self, node: &str, model: &str) -> Arc<Served> {
        let _alone = self.changing.lock();
        let before = self.known.load_full();
        let model = Labels::of(&before).label(model);
        if let Some(there) = before.get(node).and_then(|models| models.get(model)) {
            return there.clone();
        }
        let served = Arc::new(Served::new(node, model, &self.families));
        let mut known = HashMap::clone(&before);
        known.entry(node.to_owned()).or_default().insert(model.to_owned(), served.clone());
        self.known.store(Arc::new(known));
        served
    }

    /// Lets series go of nodes and models that have not been there for long enough. The nodes and the models of
    /// which nothing is left.
    pub fn forget(&self, is_here: impl Fn(&str, &str) -> bool, now: Moment) -> (HashSet<String>, HashSet<String>) {
        let mut left = self.changing.lock();
        let before = self.known.load_full();
        let pairs = || before.iter().flat_map(|(node, models)| models.keys().map(move |model| (node, model)));
        left.retain(|(node, model), _| !is_here(node, model));
        for (node, model) in pairs().filter(|(node, model)| !is_here(node, model)) {
            left.entry((node.clone(), model.clone())).or_insert(now);
        }
        let due = |at: &Moment| now.since(*at) >= KEPT_AFTER_LEAVING;
        let gone: Vec<(String, String)> = left.extract_if(|_, at| due(at)).map(|(pair, _)| pair).collect();
        if gone.is_empty() {
            return Default::default();
        }
        let mut known = HashMap::clone(&before);
        for (node, model) in &gone {
            if let Some(served) = known.get_mut(node).and_then(|models| models.remove(model)) {
                served.go();
            }
        }
        known.retain(|_, models| !models.is_empty());
        let known = Arc::new(known);
        self.known.store(known.clone());
        let models_left = models(&known);
        let nodes = gone.iter().map(|(node, _)| node).filter(|node| !known.contains_key(*node));
        let models = gone.iter().map(|(_, model)| model).filter(|model| !models_left.contains(model.as_str()));
        (nodes.cloned().collect(), models.cloned().collect())
    }
}

/// Labels for models, as long as there is room.
pub struct Labels(pub HashSet<String>);

impl Labels {
    fn of(known: &HashMap<String, HashMap<String, Arc<Served>>>) -> Labels {
        Labels(models(known).into_iter().map(str::to_owned).collect())
    }

    /// A label that there is, or one more.
    pub fn label<'a>(&mut self, model: &'a str) -> &'a str {
        let fits = model.len() <= NAME_BYTES_MAX && self.0.len() < MODELS_MAX;
        if self.0.contains(model) {
            return model;
        }
        if !fits {
            return OTHER;
        }
        self.0.insert(model.to_owned());
        model
    }
}

fn models(known: &HashMap<String, HashMap<String, Arc<Served>>>) -> HashSet<&str> {
    known.values().flat_map(|models| models.keys().map(String::as_str)).collect()
}

impl Served {
    fn new(node: &str, model: &str, families: &Families) -> Served {
        Served {
            node: node.to_owned(),
            model: model.to_owned(),
            families: families.clone(),
            requests: Default::default(),
            request_seconds: OnceLock::new(),
            first_byte_seconds: OnceLock::new(),
            prefill_seconds: OnceLock::new(),
            load_seconds: OnceLock::new(),
            decode_rate: OnceLock::new(),
            loads: OnceLock::new(),
            prompt_tokens: Default::default(),
            output_tokens: OnceLock::new(),
            has_gone: AtomicBool::new(false),
        }
    }

    pub fn request(&self, dialect: Dialect, verdict: Verdict) {
        if let Some(counter) = self.requests_in(dialect).get(verdict as usize) {
            counter.inc();
        }
    }

    pub fn took(&self, seconds: f64) {
        self.request_seconds.get_or_init(|| self.histogram(&self.families.request_seconds)).observe(seconds);
    }

    pub fn first_byte(&self, seconds: f64) {
        self.first_byte_seconds.get_or_init(|| self.histogram(&self.families.first_byte_seconds)).observe(seconds);
    }

    pub fn prefill(&self, seconds: f64) {
        self.prefill_seconds.get_or_init(|| self.histogram(&self.families.prefill_seconds)).observe(seconds);
    }

    pub fn load_took(&self, seconds: f64) {
        self.load_seconds.get_or_init(|| self.histogram(&self.families.load_seconds)).observe(seconds);
    }

    pub fn decoded(&self, tokens_per_s: f64) {
        self.decode_rate.get_or_init(|| self.histogram(&self.families.decode_rate)).observe(tokens_per_s);
    }

    pub fn loads(&self) {
        self.loads.get_or_init(|| self.families.loads.with_label_values(&self.labels())).inc();
    }

    pub fn prompt(&self, cached: u32, uncached: u32, source: Source) {
        let [model, node] = self.labels();
        let series = |kind| self.families.prompt_tokens.with_label_values(&[model, node, kind, source.name()]);
        if let Some(cell) = self.prompt_tokens.get(source as usize) {
            let [of_cached, of_uncached] = cell.get_or_init(|| KINDS.map(series));
            of_cached.inc_by(cached.into());
            of_uncached.inc_by(uncached.into());
        }
    }

    pub fn output(&self, tokens: u32) {
        let make = || self.families.output_tokens.with_label_values(&self.labels());
        self.output_tokens.get_or_init(make).inc_by(tokens.into());
    }

    /// By verdict, all of them there from the first request: a first failure is seen as a rise.
    fn requests_in(&self, dialect: Dialect) -> &[IntCounter] {
        let [model, node] = self.labels();
        let series =
            |verdict: Verdict| self.families.requests.with_label_values(&[model, node, dialect.name(), verdict.name()]);
        let cell = self.requests.get(dialect as usize);
        cell.map_or(&[], |cell| cell.get_or_init(|| Verdict::ALL.map(series).into()))
    }

    fn histogram(&self, family: &HistogramVec) -> Histogram {
        family.with_label_values(&self.labels())
    }

    fn labels(&self) -> [&str; 2] {
        [&self.model, &self.node]
    }

    fn go(&self) {
        self.has_gone.store(true, Ordering::Relaxed);
        let [model, node] = self.labels();
        let families = &self.families;
        for dialect in Dialect::ALL {
            for verdict in Verdict::ALL {
                let _ = families.requests.remove_label_values(&[model, node, dialect.name(), verdict.name()]);
            }
        }
        let histograms = [
            &families.request_seconds,
            &families.first_byte_seconds,
            &families.prefill_seconds,
            &families.load_seconds,
            &families.decode_rate,
        ];
        histograms.into_iter().for_each(|family| drop(family.remove_label_values(&self.labels())));
        [&families.loads, &families.output_tokens]
            .into_iter()
            .for_each(|family| drop(family.remove_label_values(&self.labels())));
        for source in Source::ALL {
            for kind in KINDS {
                let _ = families.prompt_tokens.remove_label_values(&[model, node, kind, source.name()]);
            }
        }
    }
}

#[cfg(test)]
mod tests;
