//! What came of each phase, the targets, and the file that keeps it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use crate::clients::{Clients, Kind, Row};
use crate::numbers::percentile;
use crate::results::{self, Target};
use crate::{Arguments, provenance};

#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    name: &'static str,
    turns: usize,
    failed: usize,
    /// Of the turns after the first, those that went to the node of the turn before.
    warm_share: f64,
    turn_p50_ms: f64,
    turn_p99_ms: f64,
    probe_p50_ms: f64,
    probe_p99_ms: f64,
}

pub struct Summary {
    pub phases: Vec<Phase>,
    pub flood: usize,
    pub operations: BTreeMap<String, u64>,
}

/// As far apart as warm shares may be.
const WARM_WITHIN: f64 = 0.02;
const LIMIT_WITHIN: f64 = 0.01;
const LATENCY_WITHIN_MS: f64 = 1.0;

impl Phase {
    /// What begins within so long from now on.
    pub async fn during(name: &'static str, clients: &Clients, length: Duration) -> Phase {
        let from = clients.now();
        tokio::time::sleep(length).await;
        let rows = clients.rows(from, clients.now());
        let turns: Vec<&Row> = rows.iter().filter(|row| row.kind != Kind::Probe).collect();
        let count = |kind: Kind| turns.iter().filter(|row| row.kind == kind && !row.failed).count();
        let (warm, moved) = (count(Kind::Warm), count(Kind::Moved));
        let waited = |is_probe: bool| -> Vec<f64> {
            let some = rows.iter().filter(|row| (row.kind == Kind::Probe) == is_probe && !row.failed);
            some.map(|row| row.waited_ms).collect()
        };
        let (turn, probe) = (waited(false), waited(true));
        Phase {
            name,
            turns: turns.len(),
            failed: rows.iter().filter(|row| row.failed).count(),
            warm_share: warm as f64 / (warm + moved).max(1) as f64,
            turn_p50_ms: percentile(&turn, 0.5),
            turn_p99_ms: percentile(&turn, 0.99),
            probe_p50_ms: percentile(&probe, 0.5),
            probe_p99_ms: percentile(&probe, 0.99),
        }
    }
}

impl Summary {
    pub fn targets(&self, arguments: &Arguments) -> Vec<Target> {
        let [one, before, during, back, after] = self.phases.as_slice() else { return Vec::new() };
        let warm = |phase: &Phase| {
            let what =
                format!("{}: warm share {:.3}, one replica's is {:.3}", phase.name, phase.warm_share, one.warm_share);
            Target::new(phase.warm_share >= one.warm_share - WARM_WITHIN, what)
        };
        let quick = |phase: &Phase| {
            let more = phase.probe_p99_ms - before.probe_p99_ms;
            Target::new(
                more <= LATENCY_WITHIN_MS,
                format!("{}: p99 of probes {more:+.2} ms against before", phase.name),
            )
        };
        let failed: usize = self.phases.iter().map(|phase| phase.failed).sum();
        let off = (self.flood as f64 - arguments.rpm as f64).abs() / arguments.rpm as f64;
        vec![
            warm(before),
            warm(after),
            quick(during),
            quick(back),
            quick(after),
            Target::new(failed == 0, format!("{failed} failed requests")),
            Target::new(
                off <= LIMIT_WITHIN,
                format!("{} of {} requests a minute were let in", self.flood, arguments.rpm),
            ),
        ]
    }

    pub fn print(&self) {
        println!(
            "{:<22}{:>7}{:>8}{:>8}{:>22}{:>22}",
            "", "turns", "failed", "warm", "turn p50, p99 ms", "probe p50, p99 ms"
        );
        for phase in &self.phases {
            let (turn, probe) = ((phase.turn_p50_ms, phase.turn_p99_ms), (phase.probe_p50_ms, phase.probe_p99_ms));
            println!(
                "{:<22}{:>7}{:>8}{:>8.3}{:>11.1}{:>11.1}{:>11.2}{:>11.2}",
                phase.name, phase.turns, phase.failed, phase.warm_share, turn.0, turn.1, probe.0, probe.1
            );
        }
    }

    pub fn keep(&self, arguments: &Arguments, [commit, load_before]: [&str; 2], targets: &[Target]) {
        let result = json!({
            "run": "replicas",
            "date": provenance::date(),
            "machine": provenance::machine(),
            "commit": commit,
            "load_before": load_before,
            "again_if": "edge/cluster, routing/elsewhere or routing/session change",
            "note": arguments.note,
            "workload": format!("{arguments:?}"),
            "phases": self.phases,
            "let_in_of_limit": [self.flood, arguments.rpm],
            "redis_operations": self.operations,
            "targets": targets,
        });
        results::keep("replicas", &result, None);
    }
}
