//! What it costs that replicas hear of each other late: the product's core in virtual time, several times over.
//!
//! One replica knows everything at once; that is what the others are measured by. Then several, whose knowledge of
//! each other is as old as the table says, and at last such as hear nothing. The plan is a slice of a large fleet: how
//! much of it is in the plan's own words. What Redis has to do is counted, per second of virtual time.
//!
//! ```text
//! cargo run --release --example scale                  # perf/plans/scale.yaml, about as long as its table says
//! ```

#[path = "../provenance.rs"]
mod provenance;
#[path = "../results.rs"]
#[allow(dead_code)]
mod results;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::{Value, json};
use warmgate::routing::fleet::Rules;
use warmgate::routing::moment::Moment;
use warmgate::routing::policy::Policy;
use warmgate::sim::engine::Usage;
use warmgate::sim::plan::{self, Contestant, Plan};
use warmgate::sim::run::nodes::Nodes;
use warmgate::sim::run::product::Setting;
use warmgate::sim::run::replicas::{Counts, Replicas, Terms};
use warmgate::sim::run::{Number, Order, Router, run};
use warmgate::sim::workload::Request;

/// Replicas that hear of each other late: what does it cost?
#[derive(Parser, Clone, Debug)]
struct Arguments {
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/perf/plans/scale.yaml"))]
    plan: PathBuf,
    #[arg(long, default_value_t = 5)]
    replicas: usize,
    /// What else is to be known of this run.
    #[arg(long, default_value = "")]
    note: String,
    /// Writes no result files.
    #[arg(long)]
    dry: bool,
}

/// How old what is heard may be, milliseconds.
const STALENESS_MS: [u64; 5] = [0, 20, 100, 500, 2000];

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let plan = match plan::load(&arguments.plan, None) {
        Ok(plan) => plan,
        Err(problems) => {
            eprintln!("{problems}");
            return ExitCode::from(2);
        }
    };
    let commit = provenance::commit();
    let many = |staleness| Terms { replicas: arguments.replicas, staleness };
    let told = STALENESS_MS.map(|ms| many(Some(Duration::from_millis(ms))));
    let all: Vec<Terms> =
        [Terms { replicas: 1, staleness: None }].into_iter().chain(told).chain([many(None)]).collect();
    println!(
        "{:<14}{:>9}{:>12}{:>9}{:>8}{:>9}{:>9}{:>11}{:>12}{:>11}{:>10}",
        "policy",
        "replicas",
        "staleness",
        "cached",
        "refused",
        "TTFT",
        "p99 s",
        "messages/s",
        "turns/s",
        "lookups/s",
        "decide us"
    );
    let mut rows = Vec::new();
    for contestant in &plan.contestants {
        let Contestant::Ours(policy) = contestant else { continue };
        for terms in &all {
            for seed in &plan.seeds {
                rows.push(one(&plan, *policy, *terms, *seed));
            }
        }
    }
    if !arguments.dry {
        let result = json!({
            "run": "scale",
            "date": provenance::date(),
            "machine": provenance::machine(),
            "commit": commit,
            "again_if": "routing/elsewhere, routing/session or the policies change",
            "note": arguments.note,
            "plan": arguments.plan.file_name().map(|name| name.to_string_lossy()),
            "rows": rows,
        });
        results::keep("scale", &result, None);
    }
    ExitCode::SUCCESS
}

fn one(plan: &Plan, policy: Policy, terms: Terms, seed: u64) -> Value {
    let rules = Rules { policy, ..plan.setting.rules.clone() };
    let setting = Setting { rules, ..plan.setting.clone() };
    let mut timed =
        Timed { replicas: Replicas::new(&setting, &plan.nodes, terms, seed), decided: Duration::ZERO, count: 0 };
    let began = Instant::now();
    let record = run(plan.source.open(seed, plan.rates[0]), Nodes::new(&plan.nodes), &mut timed);
    let (summary, took) = (record.summary(), began.elapsed());
    let Counts { messages, turns, lookups, found, loads } = timed.replicas.counts;
    let a_second = |count: u64| count as f64 / summary.took_s.max(1e-9);
    let decide_us = timed.decided.as_secs_f64() * 1e6 / timed.count.max(1) as f64;
    let staleness = match terms.staleness {
        Some(staleness) => format!("{} ms", staleness.as_millis()),
        None if terms.replicas == 1 => "alone".into(),
        None => "hear nothing".into(),
    };
    println!(
        "{:<14}{:>9}{:>12}{:>9.3}{:>8}{:>9.3}{:>9.3}{:>11.0}{:>12.0}{:>11.0}{:>10.1}",
        policy.name(),
        terms.replicas,
        staleness,
        summary.cached_share,
        summary.refused,
        summary.ttft_mean_s,
        summary.ttft_p99_s,
        a_second(messages),
        a_second(turns),
        a_second(lookups),
        decide_us
    );
    json!({
        "policy": policy.name(),
        "replicas": terms.replicas,
        "staleness": staleness,
        "seed": seed,
        "summary": summary,
        "messages_a_second": a_second(messages),
        "turns_a_second": a_second(turns),
        "loads_a_second": a_second(loads),
        "lookups_a_second": a_second(lookups),
        "lookups_found": found,
        "decision_mean_us": decide_us,
        "run_took_s": took.as_secs_f64(),
    })
}

/// The replicas, and how long their decisions take.
struct Timed {
    replicas: Replicas,
    decided: Duration,
    count: u32,
}

impl Router for Timed {
    fn arrives(&mut self, number: Number, request: &Arc<Request>, now: Moment, orders: &mut Vec<Order>) {
        let began = Instant::now();
        self.replicas.arrives(number, request, now, orders);
        self.decided += began.elapsed();
        self.count += 1;
    }

    fn first_token(&mut self, number: Number, now: Moment) {
        self.replicas.first_token(number, now);
    }

    fn ends(&mut self, number: Number, usage: Usage, now: Moment, orders: &mut Vec<Order>) {
        self.replicas.ends(number, usage, now, orders);
    }

    fn next_look(&self) -> Option<Moment> {
        self.replicas.next_look()
    }

    fn look(&mut self, nodes: &Nodes, now: Moment, orders: &mut Vec<Order>) {
        self.replicas.look(nodes, now, orders);
    }
}
