//! The toy plan, run as a whole.

use std::path::Path;

use super::*;
use crate::sim::plan;

fn toy() -> Plan {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("perf/plans/toy.yaml");
    plan::load(&path, None).unwrap_or_else(|problems| panic!("{problems}"))
}

fn rows(plan: &Plan) -> Vec<Row> {
    runs(plan).into_iter().map(|at| row(plan, at)).collect()
}

fn row_of<'a>(rows: &'a [Row], policy: &str) -> &'a Row {
    rows.iter().find(|row| row.policy == policy).unwrap_or_else(|| panic!("no row of {policy}"))
}

#[test]
fn every_policy_answers_every_request_of_the_toy() {
    let plan = toy();
    let rows = rows(&plan);
    assert_eq!(rows.len(), 2 * Contestant::all().len());
    for row in &rows {
        let summary = &row.summary;
        assert_eq!((summary.requests, summary.refused), (8 * 4, 0), "{}", row.policy);
        assert!(summary.ttft_mean_s > 0.0 && summary.ttft_p99_s >= summary.ttft_p50_s, "{row:?}");
        assert!((0.0..1.0).contains(&summary.cached_share) && summary.fairness <= 1.0 + 1e-9, "{row:?}");
        assert!(summary.total_mean_s > summary.ttft_mean_s && summary.hottest >= 1.0 - 1e-9, "{row:?}");
    }
}

#[test]
fn l5_the_same_seed_gives_the_same_rows_and_another_one_others() {
    let plan = toy();
    let (first, again) = (rows(&plan), rows(&plan));
    assert_eq!(first, again);
    let of = |seed| first.iter().find(|row| row.policy == "fleet" && row.seed == seed).map(|row| &row.summary);
    assert_ne!(of(1), of(2));
}

#[test]
fn warmth_shows_in_the_toy() {
    let rows = rows(&toy());
    let cached = |policy| row_of(&rows, policy).summary.cached_share;
    assert!(cached("fleet") > cached("round_robin") + 0.05, "{} {}", cached("fleet"), cached("round_robin"));
    // A node that is not asked loads nothing: the rule that goes round wakes the slow one.
    assert_eq!(row_of(&rows, "round_robin").summary.loads, 1);
}

#[test]
fn twice_the_rate_is_never_easier_for_a_rule_that_looks_at_nothing() {
    let mut plan = toy();
    plan.contestants.retain(|contestant| contestant.name() == "round_robin");
    plan.rates = vec![0.25, 4.0];
    let rows = rows(&plan);
    assert!(rows[0].summary.ttft_mean_s < rows[2].summary.ttft_mean_s, "{rows:?}");
    assert_eq!(rows[0].summary.requests, rows[2].summary.requests);
}

#[test]
fn the_committed_plans_are_right() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("perf/plans");
    let entries = std::fs::read_dir(folder).expect("plans").filter_map(Result::ok);
    let mut count = 0;
    for path in entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "yaml")) {
        count += 1;
        if let Err(problems) = plan::load(&path, None) {
            // Traces are kept elsewhere; nothing else may be wrong.
            let told = problems.to_string();
            assert!(problems.list.len() == 1 && told.contains("--traces"), "{told}");
        }
    }
    assert!(count >= 7, "{count} plans");
}
