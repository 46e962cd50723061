//! The progress of a long call at several nodes, as one.
//!
//! Each node tells it line by line, and the last line says `success` or what went wrong. Joined, every
//! line carries its node; a node's own end is told as a mere status, since clients stop at the first
//! `success` or `error`, and the one end is written when every node has come to its own.

use serde_json::{Map, Value, json};

use super::lines::{Line, Lines};

/// One node's progress, line by line.
#[derive(Debug, Default)]
pub struct Progress {
    lines: Lines,
    end: Option<Result<(), String>>,
}

impl Progress {
    /// Reads on, and gives each line of a joined stream. Lines that are no object are left out.
    pub fn feed(&mut self, chunk: &[u8], node: &str, mut each: impl FnMut(Vec<u8>)) {
        let end = &mut self.end;
        self.lines.feed(chunk, |line| each_of(line, node, end, &mut each));
    }

    /// What nothing ended is a line too.
    pub fn finish(&mut self, node: &str, mut each: impl FnMut(Vec<u8>)) {
        let end = &mut self.end;
        self.lines.finish(|line| each_of(line, node, end, &mut each));
    }

    /// What the last line said; `None`: neither success nor an error.
    pub fn end(&self) -> Option<&Result<(), String>> {
        self.end.as_ref()
    }

    pub fn in_line(&self) -> bool {
        self.lines.in_line()
    }
}

fn each_of(line: Line<'_>, node: &str, end: &mut Option<Result<(), String>>, each: &mut impl FnMut(Vec<u8>)) {
    let Line::Text(text) = line else { return };
    let Ok(mut told) = serde_json::from_slice::<Map<String, Value>>(text) else { return };
    if let Some(error) = told.remove("error") {
        let error = shown(error.as_str().unwrap_or("it failed"));
        told.insert("status".into(), format!("failed: {error}").into());
        *end = Some(Err(error));
    } else if told.get("status").is_some_and(|status| status == "success") {
        told.insert("status".into(), "done".into());
        *end = Some(Ok(()));
    }
    told.insert("node".into(), node.into());
    let mut line = Value::Object(told).to_string().into_bytes();
    line.push(b'\n');
    each(line);
}

/// What came of a call at one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    pub node: String,
    pub result: Result<(), Failure>,
}

/// Why a node did not do what it was asked to.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Of its answer, if there was one.
    pub status: Option<u16>,
    pub reason: String,
}

impl Failure {
    /// From an answer that is an error.
    pub fn of_answer(status: u16, body: &[u8]) -> Failure {
        let told = serde_json::from_slice::<Value>(body).ok();
        let error = told.as_ref().and_then(|told| told["error"].as_str());
        let reason = error.map_or_else(|| format!("it answered with status {status}"), shown);
        Failure { status: Some(status), reason }
    }

    /// Without an answer.
    pub fn silent(reason: impl ToString) -> Failure {
        Failure { status: None, reason: reason.to_string() }
    }
}

/// What several nodes' results come to.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Done,
    Failed { status: u16, message: String },
}

/// Done if every node did it. Else the message names each node that did not, and why, and those that did;
/// the status is the nodes' own if all answered with the same, else 502.
pub fn sum_up(did: &str, told: &[Told]) -> Verdict {
    let failed: Vec<(&str, &Failure)> =
        told.iter().filter_map(|told| Some((told.node.as_str(), told.result.as_ref().err()?))).collect();
    let Some((_, first)) = failed.first() else { return Verdict::Done };
    let same = failed.len() == told.len() && failed.iter().all(|(_, failure)| failure.status == first.status);
    let status = first.status.filter(|status| same && *status >= 400).unwrap_or(502);
    let reasons: Vec<String> = failed.iter().map(|(node, why)| format!("{node}: {}", why.reason)).collect();
    let done: Vec<&str> = told.iter().filter(|told| told.result.is_ok()).map(|told| told.node.as_str()).collect();
    let done = if done.is_empty() { String::new() } else { format!("; {did} on {}", done.join(", ")) };
    Verdict::Failed { status, message: format!("not {did} on {}{done}", reasons.join("; ")) }
}

/// What was to go and is not there is gone: a node without the model has not failed to delete it, if some
/// node had it.
pub fn forgive_absence(told: &mut [Told]) {
    if told.iter().any(|told| told.result.is_ok()) {
        for told in told {
            if told.result.as_ref().is_err_and(|failure| failure.status == Some(404)) {
                told.result = Ok(());
            }
        }
    }
}

/// The one end of a joined stream.
pub fn last_line(verdict: &Verdict) -> Vec<u8> {
    let line = match verdict {
        Verdict::Done => json!({"status": "success"}),
        Verdict::Failed { message, .. } => json!({"error": message}),
    };
    let mut line = line.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// Of a node's own words.
const MAX_SHOWN_CHARS: usize = 300;

fn shown(words: &str) -> String {
    words.chars().take(MAX_SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(chunks: &[&str], expected: &str, end: Option<Result<(), &str>>) {
        let mut progress = Progress::default();
        let mut out = Vec::new();
        chunks.iter().for_each(|chunk| progress.feed(chunk.as_bytes(), "n1", |line| out.extend(line)));
        progress.finish("n1", |line| out.extend(line));
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        assert_eq!(progress.end().cloned(), end.map(|end| end.map_err(String::from)));
    }

    #[test]
    fn cat_09_every_line_carries_its_node() {
        check(
            &["{\"status\":\"pulling\",\"to", "tal\":9}\n"],
            "{\"node\":\"n1\",\"status\":\"pulling\",\"total\":9}\n",
            None,
        );
        check(&["{\"status\":\"success\"}"], "{\"node\":\"n1\",\"status\":\"done\"}\n", Some(Ok(())));
        check(
            &["{\"error\":\"no such manifest\"}\n"],
            "{\"node\":\"n1\",\"status\":\"failed: no such manifest\"}\n",
            Some(Err("no such manifest")),
        );
        check(&["<html>\n[1]\n\n", "{\"status\":1}\n"], "{\"node\":\"n1\",\"status\":1}\n", None);
        check(&["{\"error\":{}}\n"], "{\"node\":\"n1\",\"status\":\"failed: it failed\"}\n", Some(Err("it failed")));
    }

    fn told(node: &str, result: Result<(), (Option<u16>, &str)>) -> Told {
        let failure = |(status, reason): (_, &str)| Failure { status, reason: reason.into() };
        Told { node: node.into(), result: result.map_err(failure) }
    }

    #[track_caller]
    fn check_sum(told: &[Told], expected: Option<(u16, &str)>) {
        let expected =
            expected.map_or(Verdict::Done, |(status, message)| Verdict::Failed { status, message: message.into() });
        assert_eq!(sum_up("deleted", told), expected);
    }

    #[test]
    fn cat_09_one_node_that_fails_is_named() {
        let (good, bad) = (told("n1", Ok(())), told("n2", Err((None, "connection refused"))));
        check_sum(std::slice::from_ref(&good), None);
        check_sum(&[good.clone(), bad.clone()], Some((502, "not deleted on n2: connection refused; deleted on n1")));
        check_sum(std::slice::from_ref(&bad), Some((502, "not deleted on n2: connection refused")));
        let absent = told("n3", Err((Some(404), "not found")));
        check_sum(std::slice::from_ref(&absent), Some((404, "not deleted on n3: not found")));
        check_sum(&[absent.clone(), bad.clone()], Some((502, "not deleted on n3: not found; n2: connection refused")));
        let mut forgiven = [good, absent.clone()];
        forgive_absence(&mut forgiven);
        check_sum(&forgiven, None);
        let mut all_absent = [absent];
        forgive_absence(&mut all_absent);
        check_sum(&all_absent, Some((404, "not deleted on n3: not found")));
    }

    #[test]
    fn reasons_are_the_node_s_own_words() {
        let reason = |body: &str| Failure::of_answer(507, body.as_bytes()).reason;
        assert_eq!(reason("{\"error\":\"disk full\"}"), "disk full");
        assert_eq!(reason("<html>"), "it answered with status 507");
        assert_eq!(reason(&json!({"error": "x".repeat(1000)}).to_string()).len(), MAX_SHOWN_CHARS);
    }
}
