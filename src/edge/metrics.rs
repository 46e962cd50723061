//! What is counted, for Prometheus.
//!
//! Label values come from the configuration, from fixed sets and, bounded, from what nodes list; never
//! from clients. A registry of our own, not the global one: two gateways in one process do not share counts.

pub mod family;
mod served;
mod standing;

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use prometheus::{Counter, CounterVec, Encoder, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
use prometheus::{Registry, TextEncoder};

use super::catalogue;
use super::clock::wall_ms;
use super::cluster::ClusterCounts;
use super::ingress::Ingress;
use super::reload::{Outcome, Record};
use super::resume;
use super::tenants::TenantCounts;
use super::trace::export;
use crate::routing::moment::Moment;
use crate::routing::retry::Cause;
use crate::routing::runner::Action;
use crate::routing::warmth::{Warmth, Why};
use family::{Family, Register, SECONDS, model, node, one_of};
use served::Pairs;
pub use served::{OTHER, Served, Source};
use standing::{Here, Standing};

pub struct Metrics {
    registry: Registry,
    /// All that there is to be counted.
    pub families: Vec<Family>,
    pub pairs: Pairs,
    pub attempts: IntCounterVec,
    pub failovers: IntCounterVec,
    pub affinity: IntCounterVec,
    pub option_reloads: IntCounterVec,
    /// How far the first byte was from when it was expected.
    pub prediction_error_seconds: HistogramVec,
    pub queue_wait_seconds: HistogramVec,
    pub model_drift: IntGaugeVec,
    pub prefill_saved_seconds: CounterVec,
    lost_warmth: IntCounterVec,
    lost_warmth_tokens: IntCounter,
    lost_warmth_seconds: Counter,
    /// Retries that the budget did not allow.
    pub retries_refused: IntCounterVec,
    /// Chat streams that were cut and could have gone on elsewhere, by what became of them.
    pub resumed_streams: IntCounterVec,
    /// Connections that found no descriptor left for them.
    pub connections_refused: IntCounter,
    pub connections_displaced: IntCounter,
    pub access_lines_dropped: IntCounter,
    pub tenants: TenantCounts,
    pub cluster: ClusterCounts,
    /// Clients that did not come to terms over TLS, or not in time.
    pub handshakes_failed: IntCounter,
    /// Spans by what became of them.
    pub spans: IntCounterVec,
    /// Reloads by outcome.
    pub reloads: IntCounterVec,
    reload_success: IntGauge,
    reload_success_at: IntGauge,
    standing: Standing,
    /// One looks at a time, since gauges are set anew for each.
    telling: Mutex<()>,
}

/// What an attempt came to when it did not fail.
pub const ANSWERED: &str = "answered";

impl Metrics {
    pub fn new() -> prometheus::Result<Metrics> {
        let mut register = Register::default();
        let to = &mut register;
        let cause = || one_of("cause", Cause::NAMES);
        let pairs = Pairs::new(to)?;
        let queue_wait_seconds = to.histograms(
            "warmgate_queue_wait_seconds",
            "Waited here for a node, by requests that had to wait",
            &SECONDS,
            &[model()],
        )?;
        let prediction_error_seconds = to.histograms(
            "warmgate_first_byte_prediction_error_seconds",
            "Between the expected and the real first byte of an attempt, either way",
            &SECONDS,
            &[node()],
        )?;
        let result = one_of("result", [ANSWERED].into_iter().chain(Cause::NAMES));
        let attempts = to.counters("warmgate_attempts_total", "Attempts at nodes by result", &[node(), result])?;
        let failovers = to.counters(
            "warmgate_failovers_total",
            "Requests that went on to another node since this one failed, by cause",
            &[node(), cause()],
        )?;
        let retries_refused =
            to.counters("warmgate_retries_refused_total", "Retries beyond the budget, by cause", &[cause()])?;
        let resumed_streams = to.counters(
            "warmgate_resumed_streams_total",
            "Cut chat streams, where these go on at other nodes, by what became of them",
            &[one_of("result", resume::RESULTS)],
        )?;
        let affinity = to.counters_from_zero(
            "warmgate_affinity_total",
            "Requests by what became of their warmth",
            one_of("affinity", Warmth::NAMES),
        )?;
        let lost_warmth = to.counters_from_zero(
            "warmgate_lost_warmth_total",
            "Turns that went elsewhere than their conversation was served before, by why",
            one_of("why", Why::ALL.map(Why::name)),
        )?;
        let lost_warmth_tokens = to.counter(
            "warmgate_lost_warmth_tokens_total",
            "About how many tokens of prompts had to be read again for it, as estimated",
        )?;
        let lost_warmth_seconds = to.sum(
            "warmgate_lost_warmth_seconds_total",
            "About how long prompts took that had to be read again for it, as estimated",
        )?;
        let prefill_saved_seconds = to.sums(
            "warmgate_prefill_saved_seconds_total",
            "About how long reading the cached part of prompts would have taken, as estimated",
            &[node()],
        )?;
        let option_reloads = to.counters(
            "warmgate_option_reloads_total",
            "Attempts whose options are not those the model was loaded with, by what was done",
            &[node(), one_of("action", [Action::Warned, Action::Pinned].map(Action::name))],
        )?;
        let model_drift = to.gauges(
            "warmgate_model_drift",
            "Models that differ between nodes under one name, by what differs",
            &[model(), one_of("kind", catalogue::Kind::ALL.map(catalogue::Kind::name))],
        )?;
        let standing = Standing::new(to)?;
        let tenants = TenantCounts::new(to)?;
        let cluster = ClusterCounts::new(to)?;
        let connections_refused = to.counter(
            "warmgate_connections_refused_total",
            "Connections turned away since the system allows no more files",
        )?;
        let connections_displaced = to.counter(
            "warmgate_connections_displaced_total",
            "Connections of clients closed without a request under way, to make room for others",
        )?;
        let access_lines_dropped = to.counter(
            "warmgate_access_lines_dropped_total",
            "Access lines that were not written since whoever reads standard error is too slow",
        )?;
        let handshakes_failed = to.counter(
            "warmgate_tls_handshakes_failed_total",
            "TLS handshakes with clients that failed or took too long",
        )?;
        let reloads = to.counters_from_zero(
            "warmgate_reloads_total",
            "Reloads of the configuration by outcome",
            one_of("outcome", Outcome::NAMES),
        )?;
        let reload_success =
            to.gauge("warmgate_config_last_reload_success", "1: the file is in force, 0: the last reload was refused")?;
        let reload_success_at = to.gauge(
            "warmgate_config_last_reload_success_timestamp_seconds",
            "When what is in force was read, since 1970",
        )?;
        reload_success.set(1);
        reload_success_at.set((wall_ms() / 1000) as i64);
        let spans = to.counters_from_zero(
            "warmgate_spans_total",
            "Spans for the collector, by what became of them",
            one_of("outcome", export::OUTCOMES),
        )?;
        let Register { registry, families } = register;
        Ok(Metrics {
            registry,
            families,
            pairs,
            attempts,
            failovers,
            affinity,
            option_reloads,
            prediction_error_seconds,
            queue_wait_seconds,
            model_drift,
            prefill_saved_seconds,
            lost_warmth,
            lost_warmth_tokens,
            lost_warmth_seconds,
            retries_refused,
            resumed_streams,
            connections_refused,
            tenants,
            cluster,
            handshakes_failed,
            spans,
            reloads,
            reload_success,
            reload_success_at,
            connections_displaced,
            access_lines_dropped,
            standing,
            telling: Mutex::default(),
        })
    }

    pub fn count_reload(&self, record: &Record) {
        self.reloads.with_label_values(&[record.outcome.name()]).inc();
        match record.outcome {
            Outcome::Applied(_) => {
                self.reload_success.set(1);
                self.reload_success_at.set((record.wall_ms / 1000) as i64);
            }
            Outcome::Refused(_) => self.reload_success.set(0),
            Outcome::NoFile => {}
        }
    }

    /// A turn lost its warmth, which cost about so many tokens and seconds.
    pub fn count_lost(&self, why: &str, tokens: u32, seconds: Option<f64>) {
        self.lost_warmth.with_label_values(&[why]).inc();
        self.lost_warmth_tokens.inc_by(u64::from(tokens));
        self.lost_warmth_seconds.inc_by(seconds.filter(|seconds| *seconds >= 0.0).unwrap_or(0.0));
    }

    /// All of it in Prometheus' text form, and how things stand at this moment.
    pub fn tell(&self, ingress: &Ingress) -> Vec<u8> {
        let _alone = self.telling.lock();
        let now = ingress.fleet.now();
        self.tenants.tell_running(&ingress.tenants(), now);
        let here = Here::of(ingress, self.pairs.labels().0.into_iter());
        self.forget(|node, model| here.has(node, model), now);
        self.cluster.tell(ingress);
        self.standing.tell(ingress, self.pairs.labels());
        self.text()
    }

    pub fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            log::error!("metrics: {error}");
        }
        text
    }

    /// Forgets what was counted of nodes and models that have left, after a while.
    fn forget(&self, is_here: impl Fn(&str, &str) -> bool, now: Moment) {
        let (nodes, models) = self.pairs.forget(is_here, now);
        if !nodes.is_empty() {
            for counted in [&self.attempts, &self.failovers, &self.option_reloads] {
                remove(counted, "node", &nodes);
            }
            remove(&self.prefill_saved_seconds, "node", &nodes);
            remove(&self.prediction_error_seconds, "node", &nodes);
        }
        if !models.is_empty() {
            remove(&self.queue_wait_seconds, "model", &models);
        }
    }
}

/// Drops the series whose label has one of these values.
fn remove<B: MetricVecBuilder>(counted: &MetricVec<B>, label: &str, values: &HashSet<String>) {
    for family in counted.collect() {
        for metric in family.get_metric() {
            let pairs: HashMap<&str, &str> =
                metric.get_label().iter().map(|pair| (pair.name(), pair.value())).collect();
            if pairs.get(label).is_some_and(|value| values.contains(*value)) {
                let _ = counted.remove(&pairs);
            }
        }
    }
}
