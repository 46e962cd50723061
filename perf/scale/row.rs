//! One run of the table, and what it says of the whole.

use std::time::Instant;

use serde_json::{Value, json};
use warmgate::routing::fleet::Rules;
use warmgate::sim::plan::Plan;
use warmgate::sim::run::nodes::Nodes;
use warmgate::sim::run::product::Setting;
use warmgate::sim::run::record::Summary;
use warmgate::sim::run::replicas::{Counts, Replicas, Terms};
use warmgate::sim::run::run;

use crate::watched::Watched;
use crate::{Task, part};

pub struct Row {
    task: Task,
    nodes: usize,
    summary: Summary,
    counts: Counts,
    warm_share: f64,
    decided_us: [f64; 2],
    took_s: f64,
    /// Processor time of the run.
    cpu_s: f64,
}

const COLUMNS: &str = "part of whole,nodes,policy,replicas,delay,warm,cached,refused,TTFT mean ms,TTFT p99 ms,\
                       turns heard after ms,bytes a turn,lookups a turn,decide p50 us,cpu s";

impl Row {
    pub fn of(plan: &Plan, task: Task) -> Row {
        let rules = Rules { policy: task.policy, ..plan.setting.rules.clone() };
        let setting = Setting { rules, ..plan.setting.clone() };
        let nodes = part::nodes(plan, task.part);
        let mut watched = Watched::new(Replicas::new(&setting, &nodes, task.terms, task.seed));
        let (began, cpu_before) = (Instant::now(), cpu_s());
        let source = part::source(plan, task.part).open(task.seed, plan.rates[0]);
        let record = run(source, Nodes::new(&nodes), &mut watched);
        let took_s = began.elapsed().as_secs_f64();
        watched.decided_us.sort_by(f64::total_cmp);
        let decided = |share: f64| {
            let at = (watched.decided_us.len() as f64 * share) as usize;
            watched.decided_us.get(at).copied().unwrap_or_default()
        };
        Row {
            task,
            nodes: nodes.len(),
            summary: record.summary(),
            counts: watched.replicas.counts,
            warm_share: watched.warm_share(),
            decided_us: [decided(0.5), decided(0.99)],
            took_s,
            cpu_s: cpu_s() - cpu_before,
        }
    }

    fn cells(&self, plan_is_one_of: usize) -> Vec<String> {
        let (counts, whole) = (&self.counts, plan_is_one_of * self.task.part);
        let a_turn = |count: u64| count as f64 / counts.turns.max(1) as f64;
        vec![
            format!("1/{whole}"),
            self.nodes.to_string(),
            self.task.policy.name().to_owned(),
            self.task.terms.replicas.to_string(),
            delay_of(&self.task.terms),
            format!("{:.3}", self.warm_share),
            format!("{:.3}", self.summary.cached_share),
            self.summary.refused.to_string(),
            format!("{:.1}", self.summary.ttft_mean_s * 1e3),
            format!("{:.1}", self.summary.ttft_p99_s * 1e3),
            format!("{:.1}", counts.turns_age_us as f64 / counts.turns_heard.max(1) as f64 / 1e3),
            format!("{:.0}", a_turn(counts.bytes)),
            format!("{:.3}", a_turn(counts.lookups)),
            format!("{:.1}", self.decided_us[0]),
            format!("{:.0}", self.cpu_s),
        ]
    }

    pub fn line(&self, plan_is_one_of: usize) -> String {
        aligned(&self.cells(plan_is_one_of))
    }

    pub fn to_json(&self, plan_is_one_of: usize) -> Value {
        let Counts { messages, bytes, turns, turns_age_us, turns_heard, loads, lookups, found } = self.counts;
        json!({
            "part_of_whole": plan_is_one_of * self.task.part,
            "nodes": self.nodes,
            "policy": self.task.policy.name(),
            "replicas": self.task.terms.replicas,
            "delay": delay_of(&self.task.terms),
            "seed": self.task.seed,
            "warm_share": self.warm_share,
            "summary": self.summary,
            "messages": messages,
            "bytes": bytes,
            "turns": turns,
            "turns_heard_after_ms": turns_age_us as f64 / turns_heard.max(1) as f64 / 1e3,
            "node_loads": loads,
            "lookups": lookups,
            "lookups_found": found,
            "decide_p50_us": self.decided_us[0],
            "decide_p99_us": self.decided_us[1],
            "run_took_s": self.took_s,
            "run_cpu_s": self.cpu_s,
        })
    }
}

/// What this thread has used of a processor, as Linux tells it.
fn cpu_s() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    told.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or_default() / 1e9
}

fn delay_of(terms: &Terms) -> String {
    match terms.delay {
        Some(delay) => format!("{} ms", delay.as_millis()),
        None if terms.replicas == 1 => "knows all".into(),
        None => "never".into(),
    }
}

pub fn print(rows: &[Row], plan_is_one_of: usize) {
    println!("{}", aligned(&COLUMNS.split(',').map(str::to_owned).collect::<Vec<_>>()));
    rows.iter().for_each(|row| println!("{}", row.line(plan_is_one_of)));
    println!("bytes are those of all messages, once each; each is heard by all replicas");
}

pub fn csv(rows: &[Row], plan_is_one_of: usize) -> String {
    let lines = rows.iter().map(|row| row.cells(plan_is_one_of).join(","));
    [COLUMNS.to_owned()].into_iter().chain(lines).map(|line| line + "\n").collect()
}

fn aligned(cells: &[String]) -> String {
    let widths = COLUMNS.split(',').map(|name| name.len().clamp(6, 14));
    cells.iter().zip(widths).map(|(cell, width)| format!("{cell:>width$} ")).collect()
}
