//! What is wrong with an answer to a probe or a poll, in words for an operator.
//!
//! One place for both, so that a node that answers both alike has one problem and not two.

use super::fetch::Fetched;
use super::problem::{Ailment, Finding};
use crate::engines::Engine;

/// The node will serve soon: no failure.
pub const LOADING: &str = "loading";

/// What the status says; `None` if it is good. The engine, if known, tells what it means by a 503.
pub fn about(answer: &Fetched, path: &str, engine: Option<&Engine>) -> Option<Finding> {
    let status = answer.status.as_u16();
    let loads = |engine: &Engine| status == 503 && (engine.probe.says_loading)(&answer.body);
    match status {
        200..300 => None,
        _ if engine.is_some_and(loads) => Some(Finding::new(Ailment::Loading, LOADING)),
        401 | 403 => Some(Finding::new(Ailment::Auth, format!("it refuses our key ({status}): see `api_key`"))),
        _ => Some(format!("it answers {status} to GET {path}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines;

    #[track_caller]
    fn check(engine: Option<&str>, status: u16, body: &'static str, expected: Option<&str>) {
        let answer = Fetched { status: status.try_into().unwrap(), body: body.into() };
        let engine = engine.and_then(engines::find);
        let found = about(&answer, "/x", engine).map(|finding| finding.words);
        assert_eq!(found.as_deref(), expected, "{body}");
    }

    #[test]
    fn statuses_in_words() {
        let loads = r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#;
        check(Some("vllm"), 200, "", None);
        check(Some("llama_cpp"), 503, loads, Some("loading"));
        check(Some("vllm"), 503, loads, Some("it answers 503 to GET /x"));
        check(None, 503, loads, Some("it answers 503 to GET /x"));
        check(Some("sglang"), 503, "", Some("loading"));
        check(Some("llama_cpp"), 500, loads, Some("it answers 500 to GET /x"));
        check(None, 401, "", Some("it refuses our key (401): see `api_key`"));
    }
}
