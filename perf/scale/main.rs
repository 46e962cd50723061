//! What it costs that replicas hear of each other late: the product's core in virtual time, many times over.
//!
//! One replica knows everything at once; that is what the others are measured by. Then as many as the whole has, what
//! each tells being so long under way as the table says, and at last such as hear nothing. A part of the fleet stands
//! for the whole: every so many-th node with its requests, before all of the replicas, so that each of these knows as
//! little of a node by itself as it would there. That parts of two sizes tell the same shows that the size does not
//! matter. What Redis has to do is counted, and what it would be for the whole.
//!
//! ```text
//! cargo run --release --example scale                       # a tenth and a twentieth of the whole: some minutes
//! cargo run --release --example scale -- --parts 10,20      # a hundredth and half of that: a minute
//! ```

#[path = "../provenance.rs"]
mod provenance;
#[path = "../results.rs"]
#[allow(dead_code)]
mod results;

mod part;
mod row;
mod watched;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::json;
use warmgate::routing::policy::Policy;
use warmgate::sim::plan::{self, Contestant, Plan};
use warmgate::sim::run::replicas::Terms;

use row::Row;

/// Replicas that hear of each other late: what does it cost?
#[derive(Parser, Clone, Debug)]
pub struct Arguments {
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/perf/plans/scale.yaml"))]
    plan: PathBuf,
    #[arg(long, default_value_t = 50)]
    replicas: usize,
    /// The plan is one of so many parts of the whole.
    #[arg(long, default_value_t = 10)]
    plan_is_one_of: usize,
    /// Runs one of so many parts of the plan, for each of these.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2])]
    parts: Vec<usize>,
    /// From telling to hearing, milliseconds.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 2, 20, 200, 2000])]
    delays_ms: Vec<u64>,
    /// Runs at a time.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// What else is to be known of this run.
    #[arg(long, default_value = "")]
    note: String,
    /// Writes no result files.
    #[arg(long)]
    dry: bool,
}

/// One run that is to be made.
#[derive(Clone, Copy)]
pub struct Task {
    part: usize,
    policy: Policy,
    terms: Terms,
    seed: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let plan = match plan::load(&arguments.plan, None) {
        Ok(plan) => plan,
        Err(problems) => {
            eprintln!("{problems}");
            return ExitCode::from(2);
        }
    };
    let (commit, began) = (provenance::commit(), Instant::now());
    let tasks = tasks(&plan, &arguments);
    let rows = run_all(&plan, &tasks, &arguments);
    row::print(&rows, arguments.plan_is_one_of);
    let took_s = began.elapsed().as_secs();
    println!("{} runs in {took_s} s", rows.len());
    if !arguments.dry {
        let result = json!({
            "run": "scale",
            "date": provenance::date(),
            "machine": provenance::machine(),
            "commit": commit,
            "again_if": "routing/elsewhere, routing/session or the policies change",
            "note": arguments.note,
            "plan": arguments.plan.file_name().map(|name| name.to_string_lossy()),
            "plan_is_one_of": arguments.plan_is_one_of,
            "took_s": took_s,
            "rows": rows.iter().map(|row| row.to_json(arguments.plan_is_one_of)).collect::<Vec<_>>(),
        });
        results::keep("scale", &result, Some(&row::csv(&rows, arguments.plan_is_one_of)));
    }
    ExitCode::SUCCESS
}

fn tasks(plan: &Plan, arguments: &Arguments) -> Vec<Task> {
    let many = |delay| Terms { replicas: arguments.replicas, delay };
    let alone = Terms { replicas: 1, delay: None };
    let told = arguments.delays_ms.iter().map(|ms| many(Some(Duration::from_millis(*ms))));
    let terms: Vec<Terms> = [alone].into_iter().chain(told).chain([many(None)]).collect();
    let mut tasks = Vec::new();
    for part in &arguments.parts {
        for contestant in &plan.contestants {
            let Contestant::Ours(policy) = contestant else { continue };
            for terms in &terms {
                tasks.extend(plan.seeds.iter().map(|seed| Task {
                    part: *part,
                    policy: *policy,
                    terms: *terms,
                    seed: *seed,
                }));
            }
        }
    }
    tasks
}

/// As many at a time as there are threads; the rows in order of their tasks.
fn run_all(plan: &Plan, tasks: &[Task], arguments: &Arguments) -> Vec<Row> {
    let (next, done_of_all, began) = (AtomicUsize::new(0), Mutex::new(0.0), Instant::now());
    // What a run takes grows with its fleet; one replica alone has little to do.
    let weight = |task: &Task| if task.terms.delay.is_some() { 1.0 / task.part as f64 } else { 0.3 / task.part as f64 };
    let all: f64 = tasks.iter().map(weight).sum();
    let work = || {
        let mut done = Vec::new();
        while let Some((at, task)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, tasks.get(at)?)))
        {
            let row = Row::of(plan, *task);
            let share = {
                let mut done = done_of_all.lock().unwrap_or_else(PoisonError::into_inner);
                *done += weight(task);
                *done / all
            };
            let left_s = began.elapsed().as_secs_f64() * (1.0 - share) / share;
            eprintln!("{:>3} of {}: {} {left_s:>5.0} s left", at + 1, tasks.len(), row.line(arguments.plan_is_one_of));
            done.push((at, row));
        }
        done
    };
    let mut rows: Vec<(usize, Row)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..arguments.threads.max(1)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a run")).collect()
    });
    rows.sort_by_key(|(at, _)| *at);
    rows.into_iter().map(|(_, row)| row).collect()
}
