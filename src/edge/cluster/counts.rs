//! What the cluster does, for Prometheus.

use std::time::Duration;

use prometheus::{Histogram, IntCounterVec, IntGauge, IntGaugeVec};

use super::Cluster;
use super::fault::Fault;
use crate::edge::ingress::Ingress;
use crate::edge::metrics::family::{Register, one_of};

pub struct ClusterCounts {
    up: IntGauge,
    quick: IntGauge,
    replicas: IntGauge,
    late: IntGauge,
    other_fleets: IntGauge,
    fault: IntGaugeVec,
    operations: IntCounterVec,
    dropped: IntCounterVec,
    turns: IntCounterVec,
    lookup_seconds: Histogram,
}

/// What is done with Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Connect,
    Publish,
    Store,
    Lookup,
    Take,
    Settle,
}

impl Operation {
    const ALL: [Operation; 6] = [
        Operation::Connect,
        Operation::Publish,
        Operation::Store,
        Operation::Lookup,
        Operation::Take,
        Operation::Settle,
    ];

    fn name(self) -> &'static str {
        match self {
            Operation::Connect => "connect",
            Operation::Publish => "publish",
            Operation::Store => "store",
            Operation::Lookup => "lookup",
            Operation::Take => "take",
            Operation::Settle => "settle",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Result {
    Ok,
    Error,
    /// A request did not wait for it, or not any longer.
    Slow,
}

impl Result {
    const ALL: [Result; 3] = [Result::Ok, Result::Error, Result::Slow];

    fn name(self) -> &'static str {
        match self {
            Result::Ok => "ok",
            Result::Error => "error",
            Result::Slow => "slow",
        }
    }
}

/// What was to be told and is forgotten, since it could not be told for too long.
const DROPPED: [&str; 2] = ["turns", "charges"];

const DIRECTIONS: [&str; 2] = ["told", "heard"];

/// From a call on the same machine to the longest that is waited.
const LOOKUP_BUCKETS: [f64; 8] = [0.0001, 0.0002, 0.0005, 0.001, 0.0015, 0.002, 0.003, 0.005];

impl ClusterCounts {
    pub fn new(to: &mut Register) -> prometheus::Result<ClusterCounts> {
        let operation = one_of("operation", Operation::ALL.map(Operation::name));
        let result = one_of("result", Result::ALL.map(Result::name));
        let lookups = to.histograms(
            "warmgate_cluster_lookup_seconds",
            "Waited for pins that other replicas may know",
            &LOOKUP_BUCKETS,
            &[],
        )?;
        let counts = ClusterCounts {
            up: to.gauge(
                "warmgate_cluster_up",
                "1: connected to Redis, 0: configured and not connected, -1: no cluster",
            )?,
            quick: to
                .gauge("warmgate_cluster_quick", "1: requests may wait for Redis, 0: they go by what is known here")?,
            replicas: to.gauge("warmgate_cluster_replicas", "Other replicas that were heard of lately")?,
            late: to.gauge(
                "warmgate_cluster_late_replicas",
                "Other replicas whose messages are so old by the clocks of both that their loads do not count: clocks that differ, or a slow Redis",
            )?,
            other_fleets: to.gauge(
                "warmgate_cluster_other_fleets",
                "Other sets of upstreams whose replicas use the same prefix: more than 0 for long is a mistake",
            )?,
            fault: to.gauges(
                "warmgate_cluster_fault",
                "1: what is wrong with Redis now; /fleet/status says it in words",
                &[one_of("fault", Fault::NAMES)],
            )?,
            operations: to.counters("warmgate_cluster_operations_total", "Calls to Redis", &[operation, result])?,
            dropped: to.counters_from_zero(
                "warmgate_cluster_dropped_total",
                "Forgotten before others could be told",
                one_of("what", DROPPED),
            )?,
            turns: to.counters_from_zero(
                "warmgate_cluster_turns_total",
                "Turns that replicas told each other of",
                one_of("direction", DIRECTIONS),
            )?,
            lookup_seconds: lookups.with_label_values::<&str>(&[]),
        };
        for operation in Operation::ALL {
            for result in Result::ALL {
                counts.operations.with_label_values(&[operation.name(), result.name()]);
            }
        }
        counts.up.set(-1);
        Ok(counts)
    }

    pub fn count(&self, operation: Operation, result: Result) {
        self.operations.with_label_values(&[operation.name(), result.name()]).inc();
    }

    pub fn looked_up(&self, result: Result, took: Duration) {
        self.count(Operation::Lookup, result);
        self.lookup_seconds.observe(took.as_secs_f64());
    }

    pub fn told(&self, turns: usize) {
        self.turns.with_label_values(&[DIRECTIONS[0]]).inc_by(turns as u64);
    }

    pub fn heard(&self, turns: usize) {
        self.turns.with_label_values(&[DIRECTIONS[1]]).inc_by(turns as u64);
    }

    pub fn dropped_turns(&self, count: u64) {
        self.dropped.with_label_values(&[DROPPED[0]]).inc_by(count);
    }

    pub fn dropped_charges(&self, count: u64) {
        self.dropped.with_label_values(&[DROPPED[1]]).inc_by(count);
    }

    /// How things stand at this moment.
    pub fn tell(&self, ingress: &Ingress) {
        let cluster: &Cluster = &ingress.cluster;
        let is_configured = ingress.plan().cluster.is_some();
        let up = if is_configured { i64::from(cluster.link.load().is_some()) } else { -1 };
        self.up.set(up);
        self.quick.set(i64::from(up == 1 && cluster.pace.is_quick()));
        let fault = cluster.fault().filter(|_| is_configured);
        for name in Fault::NAMES {
            self.fault.with_label_values(&[name]).set(i64::from(fault.as_ref().is_some_and(|is| is.name() == name)));
        }
        self.late.set(cluster.voices.lock().late() as i64);
        self.other_fleets.set(cluster.strangers.lock().count() as i64);
        self.replicas.set(ingress.fleet.with(|fleet, _| fleet.elsewhere.replicas()) as i64);
    }
}
