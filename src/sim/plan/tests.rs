//! What may be written in a plan, and what is said when it is wrong.

use super::*;

const PLAN: &str = "
workers:
  - {engine: ollama, count: 2, slots: 2, prefill: {tokens_per_s: 1000}, decode: {tokens_per_s: 50}, models: [{name: m}]}
workload:
  conversations: {count: 2, turns: {mean: 2}, every: 1s, think: 1s, question: {mean: 10}, answer: {mean: 10}}
policies: [fleet, round_robin]
";

fn read(text: &str) -> Result<Plan, Problems> {
    let mut problems = Problems { origin: "x.yaml".into(), list: Vec::new() };
    let find = |trace: &Path| trace.to_owned();
    resolve("x", text, &find, &mut problems).filter(|_| problems.list.is_empty()).ok_or(problems)
}

/// The plan with a piece replaced is refused in these words.
#[track_caller]
fn check(piece: &str, by: &str, expected: &str) {
    assert!(PLAN.contains(piece), "{piece}");
    let refused = read(&PLAN.replace(piece, by)).err().map(|problems| problems.to_string()).unwrap_or_default();
    assert!(refused.contains(expected), "{refused}");
}

#[test]
fn a_plan_is_understood() {
    let plan = read(PLAN).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(plan.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["ollama-1", "ollama-2"]);
    assert_eq!(plan.contestants.iter().map(|one| one.name()).collect::<Vec<_>>(), ["fleet", "round_robin"]);
    assert_eq!((plan.seeds, plan.rates), (vec![1], vec![1.0]));
    assert_eq!(plan.nodes[0].told_slots, None, "slots are a secret unless they are configured");
}

#[test]
fn keys_and_values_are_checked() {
    check("count: 2, slots", "cout: 2, slots", "unknown field `cout`");
    check("count: 2, slots", "cout: 2, slots", "did you mean count?");
    check("count: 2, slots", "count: 0, slots", "workers[0].count: 0 nodes; 1 to 4096");
    check("engine: ollama", "engine: lama", "workers[0].engine: `lama` is no engine; one of ollama");
    check("prefill: {tokens_per_s: 1000}, ", "", "workers[0].models[0].prefill: is needed");
    check("prefill: {tokens_per_s: 1000}", "prefill: {}", "workers[0].models[0].prefill: no cost at all");
    check("{tokens_per_s: 50}", "{tokens_per_s: 0}", "decode.tokens_per_s: must be more than zero");
    check("[fleet, round_robin]", "[flet]", "policies[0]: `flet` is no policy; did you mean fleet?");
    check("[fleet, round_robin]", "[]", "policies: nobody is to decide");
    check("every: 1s", "every: 1", "`1` is not a duration");
    check("turns: {mean: 2}", "turns: {mean: 0}", "workload.conversations.turns: a mean above zero");
    check("answer: {mean: 10}", "answer: {mean: 10}, models: {n: 1}", "models.n: no worker has it; there are m");
    check("policies:", "rates: [0]\npolicies:", "rates[0]: 0 is no speed");
    check("policies:", "signals: {session: {mox: 1}}\npolicies:", "unknown field `mox`");
    check(
        "models: [{name: m}]",
        "models: [{name: m, memory: 2GB}], memory: 1GB",
        "workers[0].memory: `m` does not fit",
    );
}

#[test]
fn every_problem_is_told() {
    let refused = read(&PLAN.replace("engine: ollama", "engine: x").replace("round_robin", "y")).err();
    assert_eq!(refused.map(|problems| problems.list.len()), Some(2));
}

#[test]
fn a_trace_that_is_not_there_says_where_to_get_it() {
    let work = PLAN.lines().find(|line| line.contains("conversations:")).unwrap_or_default();
    check(work, "  mooncake: {trace: nowhere.jsonl}", "workload.mooncake.trace: nowhere.jsonl: No such file");
    check(work, "  mooncake: {trace: nowhere.jsonl}", "github.com/kvcache-ai/Mooncake, FAST25-release");
    check(work, "  {}", "workload: exactly one kind");
}
