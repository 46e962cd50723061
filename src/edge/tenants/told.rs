//! What is left of a tenant's limits, as the headers of an answer.
//!
//! Every dialect gets OpenAI's names, which most clients and gateways read. Clients of Anthropic look for its own,
//! which say at what time all is back and not in how long.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName};

use crate::date::{rfc3339_seconds, unix_seconds};
use crate::edge::headers;
use crate::routing::ask::Dialect;
use crate::routing::limits::Left;

/// What is left of each limit that there is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LimitsTold {
    pub requests: Option<Left>,
    pub tokens: Option<Left>,
}

/// What is allowed, what is left of it, and when all is back.
type Names = [&'static str; 3];

const REQUESTS: Names = ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"];
const TOKENS: Names = ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"];

const ANTHROPIC_REQUESTS: Names = [
    "anthropic-ratelimit-requests-limit",
    "anthropic-ratelimit-requests-remaining",
    "anthropic-ratelimit-requests-reset",
];
const ANTHROPIC_TOKENS: Names =
    ["anthropic-ratelimit-tokens-limit", "anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"];

/// Of the node's own limits.
const OF_NODES: [&str; 2] = ["x-ratelimit-", "anthropic-ratelimit-"];

/// Says what is left, in place of what the node says of its own limits.
pub fn tell_limits(headers: &mut HeaderMap, told: &LimitsTold, dialect: Dialect) {
    if *told == LimitsTold::default() {
        return;
    }
    let is_of_node = |name: &&HeaderName| OF_NODES.iter().any(|start| name.as_str().starts_with(start));
    for name in headers.keys().filter(is_of_node).cloned().collect::<Vec<_>>() {
        headers.remove(name);
    }
    for (names, left) in [(REQUESTS, &told.requests), (TOKENS, &told.tokens)] {
        tell(headers, names, left, |seconds| format!("{seconds}s"));
    }
    if dialect == Dialect::Anthropic {
        let now_s = unix_seconds(SystemTime::now());
        let at = |seconds: u64| rfc3339_seconds(SystemTime::UNIX_EPOCH + Duration::from_secs(now_s + seconds));
        for (names, left) in [(ANTHROPIC_REQUESTS, &told.requests), (ANTHROPIC_TOKENS, &told.tokens)] {
            tell(headers, names, left, at);
        }
    }
}

fn tell(headers: &mut HeaderMap, names: Names, left: &Option<Left>, reset: impl Fn(u64) -> String) {
    let Some(left) = left else { return };
    let reset = reset(left.reset_in.as_secs_f64().ceil() as u64);
    for (name, value) in names.into_iter().zip([left.limit.to_string(), left.remaining.to_string(), reset]) {
        headers::tell(headers, HeaderName::from_static(name), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(dialect: Dialect, expected: &[(&str, &str)]) {
        let left = |limit, remaining| Some(Left { limit, remaining, reset_in: Duration::from_millis(1500) });
        let mut headers = HeaderMap::new();
        headers::tell(&mut headers, HeaderName::from_static("anthropic-ratelimit-input-tokens-limit"), "9");
        headers::tell(&mut headers, HeaderName::from_static("x-ratelimit-limit-tokens"), "9");
        tell_limits(&mut headers, &LimitsTold { requests: left(60, 59), tokens: None }, dialect);
        let said: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        let (said, times): (Vec<_>, Vec<_>) = said.into_iter().partition(|(_, value)| !value.contains('T'));
        assert_eq!(said, expected);
        let soon = [1, 2, 3].map(|s| rfc3339_seconds(SystemTime::now() + Duration::from_secs(s)));
        assert!(times.iter().all(|(_, time)| soon.iter().any(|soon| soon == time)), "{times:?}");
        assert_eq!(times.len(), usize::from(dialect == Dialect::Anthropic));
    }

    #[test]
    fn anthropic_s_names_stand_beside_openai_s() {
        let openai = [
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", "2s"),
        ];
        check(Dialect::OpenAi, &openai);
        check(Dialect::Ollama, &openai);
        let anthropic =
            [("anthropic-ratelimit-requests-limit", "60"), ("anthropic-ratelimit-requests-remaining", "59")];
        check(Dialect::Anthropic, &[&openai[..], &anthropic].concat());
    }
}
