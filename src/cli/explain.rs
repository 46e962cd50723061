//! `warmgate explain`: how would this request be routed?
//!
//! Asks a running Warmgate by its admin address. Nothing is sent to any node.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;

use super::top::span;
use super::{EXIT_WRONG, ExplainArgs};
use crate::edge::fetch::Fetched;
use crate::routing::policy::Policy;

/// For the running Warmgate to answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// The least that one decimal of a point shows; who is nearer than that is level, in seconds too.
const SHOWN_MIN: f64 = 0.05;

/// Columns of a table that is read on a terminal.
const NAME_CHARS_MAX: usize = 28;

pub fn explain(args: &ExplainArgs) -> ExitCode {
    match ask(args) {
        Ok(told) => {
            let text = if args.json { format!("{told:#}\n") } else { table(&told) };
            // A reader that went away has seen what it wanted.
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

struct Failure {
    code: u8,
    message: String,
}

fn wrong(message: impl ToString) -> Failure {
    Failure { code: EXIT_WRONG, message: message.to_string() }
}

fn failed(message: impl ToString) -> Failure {
    Failure { code: 1, message: format!("warmgate: {}", message.to_string()) }
}

fn ask(args: &ExplainArgs) -> Result<Value, Failure> {
    let body = std::fs::read(&args.request)
        .map_err(|error| wrong(format!("{}: cannot be read: {error}", args.request.display())))?;
    let admin = args.target.admin().map_err(wrong)?;
    let path = percent_encoding::utf8_percent_encode(&args.path, percent_encoding::NON_ALPHANUMERIC);
    let path = format!("/fleet/explain?path={path}");
    let answer = admin.post_alone(&path, &body, ANSWER_MAX).map_err(failed)?;
    if let Some(why) = admin.turned_away(&answer) {
        return Err(failed(why));
    }
    let Fetched { status, body } = answer;
    let told: Value = serde_json::from_slice(&body).map_err(|_| failed(format!("{admin} is no Warmgate")))?;
    match told["error"].as_str() {
        Some(error) => Err(failed(error)),
        None if status.is_success() => Ok(told),
        None => Err(failed(format!("{admin} answered {status}"))),
    }
}

/// What scores and signals are told in.
#[derive(Clone, Copy, PartialEq)]
enum Unit {
    Points,
    /// By `expected_ttft`, whose scores are seconds, mostly far below one.
    Milliseconds,
}

impl Unit {
    fn of(told: &Value) -> Unit {
        if word(&told["policy"]) == Policy::ExpectedTtft.name() { Unit::Milliseconds } else { Unit::Points }
    }

    fn number(self, value: f64) -> String {
        // No minus before a zero.
        match self {
            Unit::Points => format!("{:.1}", if value.abs() < SHOWN_MIN { 0.0 } else { value }),
            Unit::Milliseconds => format!("{}", (value * 1000.0).round() as i64),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Unit::Points => "",
            Unit::Milliseconds => " ms",
        }
    }
}

/// The answer for people.
fn table(told: &Value) -> String {
    let decision = &told["decision"];
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{} at {}, about {} prompt tokens, policy {}{}",
        word(&told["model"]),
        word(&told["path"]),
        told["prompt_tokens_estimated"],
        word(&told["policy"]),
        if Unit::of(told) == Unit::Milliseconds { ": scores are milliseconds" } else { "" },
    );
    let _ = writeln!(text, "{}", warmth(told));
    let _ = writeln!(text, "{}\n", outcome(told));
    let candidates = list(&decision["candidates"]);
    if !candidates.is_empty() {
        text += &rows(told, candidates);
    }
    let shown = candidates.len() as u64;
    if let Some(all) = decision["candidates_in_all"].as_u64().filter(|all| *all > shown) {
        let _ = writeln!(text, "and {} more candidates", all - shown);
    }
    for excluded in list(&decision["excluded"]) {
        let _ = writeln!(text, "excluded  {}  {}", clipped(word(&excluded["node"])), word(&excluded["reason"]));
    }
    text
}

fn warmth(told: &Value) -> String {
    let pin = told["decision"]["pin"].as_str();
    let lost = &told["lost"];
    match (told["affinity"].as_str(), pin) {
        (Some("session"), Some(pin)) => format!("its conversation was served by {pin} before and stays there"),
        (Some("moved"), _) => format!(
            "its conversation was served by {} before and would move: {}, about {} tokens to read again",
            word(&lost["from"]),
            word(&lost["why"]),
            lost["tokens_estimated"],
        ),
        (Some("home"), _) => "it goes where other replicas look for its conversation".into(),
        (Some("prefix"), _) => "a new conversation that begins as another did".into(),
        (Some("none"), _) => "not a conversation: no warmth to keep".into(),
        _ => "a new conversation".into(),
    }
}

fn outcome(told: &Value) -> String {
    let outcome = &told["outcome"];
    let node = word(&outcome["node"]);
    let soon = outcome["expected_first_token_s"].as_f64();
    let soon =
        soon.map_or_else(String::new, |seconds| format!(", first token expected after {}", span(seconds * 1000.0)));
    let unit = Unit::of(told);
    let second = &told["decision"]["runner_up"];
    let second = match second["node"].as_str() {
        Some(name) => match second["behind"].as_f64().unwrap_or(0.0) {
            level if level.abs() < SHOWN_MIN => format!("; {name} is level with it"),
            behind if behind > 0.0 => format!("; next best {name}, {}{} behind", unit.number(behind), unit.name()),
            ahead => format!("; {name} is {}{} ahead, and full", unit.number(-ahead), unit.name()),
        },
        None => String::new(),
    };
    match word(&outcome["action"]) {
        "send" => format!("it would go to {node} now{soon}{second}"),
        "wait" => format!(
            "it would wait here for {}{}, {} ahead of it",
            word(&outcome["waits_for"]),
            if node.is_empty() { String::new() } else { format!(" at {node}") },
            outcome["ahead_in_queue"],
        ),
        _ => match outcome["message"].as_str() {
            Some(message) => format!("it would be refused with {}: {message}", outcome["status"]),
            None => "it would be refused with 503: as many wait as may".into(),
        },
    }
}

/// A line for each candidate: its score, and the signals which add up to that.
fn rows(told: &Value, candidates: &[Value]) -> String {
    let signals: Vec<&str> = list(&told["signals"]).iter().map(word).collect();
    let head = ["", "node", "score"].into_iter().chain(signals.iter().copied()).chain(["depth", "cached", "room"]);
    let mut lines = vec![head.map(str::to_string).collect::<Vec<_>>()];
    let taken = told["decision"]["chosen"]["node"].as_str();
    let unit = Unit::of(told);
    let number = |unit: Unit, value: &Value| unit.number(value.as_f64().unwrap_or(f64::NAN));
    for candidate in candidates {
        let node = word(&candidate["node"]);
        let mark = if Some(node) == taken { ">" } else { "" };
        let mut line = vec![mark.to_string(), clipped(node), number(unit, &candidate["score"])];
        line.extend(signals.iter().map(|signal| number(unit, &candidate["signals"][*signal])));
        let room = if candidate["has_room"] == true { "yes" } else { "no" };
        line.extend([
            number(Unit::Points, &candidate["depth"]),
            candidate["covered_tokens"].to_string(),
            room.to_string(),
        ]);
        lines.push(line);
    }
    let widths: Vec<usize> = (0..lines[0].len())
        .map(|column| {
            lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let line = |cells: &Vec<String>| {
        let cells = cells.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 | 1 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string() + "\n"
    };
    lines.iter().map(line).collect::<String>() + "\n"
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Names come from elsewhere: no more of one than fits, and nothing that moves a terminal's cursor.
fn clipped(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).take(NAME_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_table_names_the_chosen_the_signals_and_the_excluded() {
        let candidate = |node: &str, score: f64| {
            json!({"node": node, "score": score, "depth": 0.5, "covered_tokens": 7, "has_room": true,
                   "signals": {"model_loaded": 50.0, "latency": score - 50.0}})
        };
        let told = json!({
            "model": "m:1", "path": "/api/chat", "prompt_tokens_estimated": 12, "policy": "fleet",
            "signals": ["model_loaded", "latency"], "affinity": "session",
            "outcome": {"action": "send", "node": "n1", "expected_first_token_s": 1.25},
            "decision": {
                "candidates": [candidate("n1", 47.5), candidate("n2\u{1b}[2J", -3.0)], "candidates_in_all": 2,
                "excluded": [{"node": "n3", "reason": "draining"}], "pin": "n1",
                "chosen": {"node": "n1"}, "runner_up": {"node": "n2", "behind": 50.5},
            },
        });
        let text = table(&told);
        for expected in [
            "m:1 at /api/chat, about 12 prompt tokens, policy fleet",
            "its conversation was served by n1 before and stays there",
            "it would go to n1 now, first token expected after 1.2 s; next best n2, 50.5 behind",
            "   node    score  model_loaded  latency  depth  cached  room",
            ">  n1       47.5          50.0     -2.5    0.5       7   yes",
            "   n2?[2J   -3.0          50.0    -53.0    0.5       7   yes",
            "excluded  n3  draining",
        ] {
            assert!(text.contains(expected), "no {expected:?} in\n{text}");
        }
    }

    #[test]
    fn seconds_are_told_as_milliseconds() {
        let candidate = |node: &str, score: f64| {
            json!({"node": node, "score": score, "depth": 0.5, "covered_tokens": 0, "has_room": true,
                   "signals": {"latency": score, "session": -0.0}})
        };
        let told = json!({
            "model": "m", "path": "/api/chat", "prompt_tokens_estimated": 12, "policy": "expected_ttft",
            "signals": ["latency", "session"], "affinity": "new",
            "outcome": {"action": "send", "node": "fast", "expected_first_token_s": 0.0257},
            "decision": {
                "candidates": [candidate("fast", -0.0257), candidate("slow", -0.1687)], "excluded": [],
                "chosen": {"node": "fast"}, "runner_up": {"node": "slow", "behind": 0.143},
            },
        });
        let text = table(&told);
        for expected in [
            "policy expected_ttft: scores are milliseconds",
            "it would go to fast now, first token expected after 26 ms; next best slow, 143 ms behind",
            ">  fast    -26      -26        0    0.5       0   yes",
            "   slow   -169     -169        0    0.5       0   yes",
        ] {
            assert!(text.contains(expected), "no {expected:?} in\n{text}");
        }
    }

    #[track_caller]
    fn check(outcome: Value, expected: &str) {
        assert_eq!(super::outcome(&json!({"outcome": outcome, "decision": {}})), expected);
    }

    #[test]
    fn what_would_become_of_it() {
        let waits = json!({"action": "wait", "waits_for": "a free place", "node": "n1", "ahead_in_queue": 3});
        check(waits, "it would wait here for a free place at n1, 3 ahead of it");
        let refused = json!({"action": "refuse", "status": 404, "message": "model 'x' not found"});
        check(refused, "it would be refused with 404: model 'x' not found");
    }
}
