//! What is counted, for Prometheus.
//!
//! Label values come from the configuration, from fixed sets and, bounded, from what nodes list; never
//! from clients. A registry of our own, not the global one: two gateways in one process do not share counts.

use std::collections::{BTreeMap, HashMap, HashSet};

use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use prometheus::{
    Counter, Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

use super::clock::wall_ms;
use super::ingress::Ingress;
use super::reload::{Outcome, Record};
use super::roster::Nodes;
use super::state;
use super::tenants::TenantCounts;
use super::verdict::Verdict;
use crate::routing::ask::Dialect;
use crate::routing::warmth::Why;

pub struct Metrics {
    registry: Registry,
    pub requests: IntCounterVec,
    pub attempts: IntCounterVec,
    pub affinity: IntCounterVec,
    pub option_reloads: IntCounterVec,
    pub first_byte_seconds: HistogramVec,
    /// How far the first byte was from when it was expected.
    pub prediction_error_seconds: HistogramVec,
    pub prompt_tokens: IntCounterVec,
    queue_waiting: IntGauge,
    pub queue_wait_seconds: Histogram,
    pub model_drift: IntGaugeVec,
    lost_warmth: IntCounterVec,
    lost_warmth_seconds: Counter,
    /// Retries that the budget did not allow.
    pub retries_refused: IntCounterVec,
    /// Chat streams that were cut and could have gone on elsewhere, by what became of them.
    pub resumed_streams: IntCounterVec,
    /// Connections that found no descriptor left for them.
    pub connections_refused: IntCounter,
    pub tenants: TenantCounts,
    /// Clients that did not come to terms over TLS, or not in time.
    pub handshakes_failed: IntCounter,
    breaker_state: IntGaugeVec,
    /// Reloads by outcome.
    pub reloads: IntCounterVec,
    reload_success: IntGauge,
    reload_success_at: IntGauge,
}

/// From a warm cache hit to a cold load of a large model.
const FIRST_BYTE_BUCKETS: [f64; 14] =
    [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0];

impl Metrics {
    pub fn new() -> prometheus::Result<Metrics> {
        let registry = Registry::new();
        let counter = |name: &str, help: &str, labels: &[&str]| -> prometheus::Result<IntCounterVec> {
            let counter = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(counter.clone()))?;
            Ok(counter)
        };
        let first_byte = HistogramOpts::new("warmgate_first_byte_seconds", "From the request's head to the first byte")
            .buckets(FIRST_BYTE_BUCKETS.to_vec());
        let first_byte_seconds = HistogramVec::new(first_byte, &["node"])?;
        registry.register(Box::new(first_byte_seconds.clone()))?;
        let error = HistogramOpts::new(
            "warmgate_first_byte_prediction_error_seconds",
            "Between the expected and the real first byte of an attempt, either way",
        );
        let prediction_error_seconds = HistogramVec::new(error.buckets(FIRST_BYTE_BUCKETS.to_vec()), &["node"])?;
        registry.register(Box::new(prediction_error_seconds.clone()))?;
        let queue_waiting = IntGauge::new("warmgate_queue_waiting", "Requests that wait here for a node")?;
        registry.register(Box::new(queue_waiting.clone()))?;
        let queue_wait =
            HistogramOpts::new("warmgate_queue_wait_seconds", "Waited here for a node, by requests that had to wait")
                .buckets(FIRST_BYTE_BUCKETS.to_vec());
        let queue_wait_seconds = Histogram::with_opts(queue_wait)?;
        registry.register(Box::new(queue_wait_seconds.clone()))?;
        let requests = counter("warmgate_requests_total", "Requests by outcome", &["dialect", "outcome"])?;
        // From the start, so that a first failure is seen as a rise.
        for dialect in Dialect::ALL {
            for verdict in Verdict::ALL {
                requests.with_label_values(&[dialect.name(), verdict.name()]);
            }
        }
        let refused = Opts::new(
            "warmgate_connections_refused_total",
            "Connections turned away since the system allows no more files",
        );
        let connections_refused = IntCounter::with_opts(refused)?;
        registry.register(Box::new(connections_refused.clone()))?;
        let failed = Opts::new(
            "warmgate_tls_handshakes_failed_total",
            "TLS handshakes with clients that failed or took too long",
        );
        let handshakes_failed = IntCounter::with_opts(failed)?;
        registry.register(Box::new(handshakes_failed.clone()))?;
        let lost_warmth = counter(
            "warmgate_lost_warmth_total",
            "Turns that went elsewhere than their conversation was served before, by why",
            &["why"],
        )?;
        for why in Why::ALL {
            lost_warmth.with_label_values(&[why.name()]);
        }
        let lost_warmth_seconds = Counter::new(
            "warmgate_lost_warmth_seconds_total",
            "About how long prompts took that had to be read again for it, as estimated",
        )?;
        registry.register(Box::new(lost_warmth_seconds.clone()))?;
        let model_drift = IntGaugeVec::new(
            Opts::new("warmgate_model_drift", "Models that differ between nodes under one name, by what differs"),
            &["model", "kind"],
        )?;
        registry.register(Box::new(model_drift.clone()))?;
        let breaker =
            Opts::new("warmgate_breaker_state", "0 closed, 1 half-open, 2 open; the worst of node and models");
        let breaker_state = IntGaugeVec::new(breaker, &["node"])?;
        registry.register(Box::new(breaker_state.clone()))?;
        let gauge = |name: &str, help: &str| -> prometheus::Result<IntGauge> {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        let reloads = counter("warmgate_reloads_total", "Reloads of the configuration by outcome", &["outcome"])?;
        for outcome in Outcome::NAMES {
            reloads.with_label_values(&[outcome]);
        }
        let reload_success =
            gauge("warmgate_config_last_reload_success", "1: the file is in force, 0: the last reload was refused")?;
        let reload_success_at = gauge(
            "warmgate_config_last_reload_success_timestamp_seconds",
            "When what is in force was read, since 1970",
        )?;
        reload_success.set(1);
        reload_success_at.set((wall_ms() / 1000) as i64);
        Ok(Metrics {
            reloads,
            reload_success,
            reload_success_at,
            requests,
            attempts: counter("warmgate_attempts_total", "Attempts at nodes by result", &["node", "result"])?,
            affinity: counter("warmgate_affinity_total", "Requests by what became of their warmth", &["affinity"])?,
            prompt_tokens: counter("warmgate_prompt_tokens_total", "Prompt tokens as engines told", &["node", "kind"])?,
            option_reloads: counter(
                "warmgate_option_reloads_total",
                "Attempts whose options are not those the model was loaded with, by what was done",
                &["node", "action"],
            )?,
            retries_refused: counter(
                "warmgate_retries_refused_total",
                "Retries beyond the budget, by cause",
                &["cause"],
            )?,
            resumed_streams: counter(
                "warmgate_resumed_streams_total",
                "Cut chat streams, where these go on at other nodes, by what became of them",
                &["result"],
            )?,
            connections_refused,
            tenants: TenantCounts::new(&registry)?,
            handshakes_failed,
            breaker_state,
            first_byte_seconds,
            prediction_error_seconds,
            queue_waiting,
            queue_wait_seconds,
            model_drift,
            lost_warmth,
            lost_warmth_seconds,
            registry,
        })
    }

    /// A prompt as the engine counted it.
    pub fn count_prompt(&self, node: &str, prompt: u32, cached: u32) {
        for (kind, tokens) in [("cached", cached), ("uncached", prompt.saturating_sub(cached))] {
            self.prompt_tokens.with_label_values(&[node, kind]).inc_by(u64::from(tokens));
        }
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

    /// Forgets the state of nodes that have left, and what was counted of those that left long ago.
    pub fn forget_nodes(&self, nodes: &Nodes) {
        forget(&self.breaker_state, &nodes.iter().map(|node| node.label.as_str()).collect());
        let known = nodes.iter().chain(nodes.left()).map(|node| node.label.as_str()).collect();
        forget(&self.attempts, &known);
        forget(&self.prompt_tokens, &known);
        forget(&self.option_reloads, &known);
        forget(&self.first_byte_seconds, &known);
    }

    /// A turn lost its warmth, which cost about so many seconds.
    pub fn count_lost(&self, why: &str, seconds: Option<f64>) {
        self.lost_warmth.with_label_values(&[why]).inc();
        self.lost_warmth_seconds.inc_by(seconds.filter(|seconds| *seconds >= 0.0).unwrap_or(0.0));
    }

    /// How things stand at this moment.
    pub fn tell_state(&self, ingress: &Ingress) {
        let nodes = ingress.roster.nodes();
        let (waiting, levels) = ingress.fleet.with(|fleet, now| {
            let mut levels: BTreeMap<&str, i64> = BTreeMap::new();
            for node in nodes.iter() {
                let here = fleet.upstream(node.id);
                let level = here.map_or(0, |upstream| state::breaker_level(fleet, upstream, node, now));
                let worst = levels.entry(&node.label).or_default();
                *worst = level.max(*worst);
            }
            (fleet.queue.len(), levels)
        });
        self.queue_waiting.set(waiting as i64);
        for (label, level) in levels {
            self.breaker_state.with_label_values(&[label]).set(level);
        }
    }

    /// All of it in Prometheus' text form.
    pub fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            log::error!("metrics: {error}");
        }
        text
    }
}

/// Drops the series of all nodes but these.
fn forget<B: MetricVecBuilder>(counted: &MetricVec<B>, labels: &HashSet<&str>) {
    for family in counted.collect() {
        for metric in family.get_metric() {
            let pairs: HashMap<&str, &str> =
                metric.get_label().iter().map(|pair| (pair.name(), pair.value())).collect();
            if pairs.get("node").is_some_and(|node| !labels.contains(node)) {
                let _ = counted.remove(&pairs);
            }
        }
    }
}
