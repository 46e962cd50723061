//! The last hour, minute by minute, for the dashboard: what was asked, how long first bytes took, what of
//! prompts was cached, and which conversations lost their warmth.
//!
//! It is told by `tally` and nobody else, in the same step as the metrics, so that both say the same.
//! Everything in it is bounded; times come in as arguments.

mod conversations;
mod spread;

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;
use serde_json::{Value, json};

use conversations::Conversations;
pub use conversations::Turn;
use spread::Spread;

/// Minutes that are remembered, the present one included.
pub const MINUTES: usize = 60;

/// Nodes told apart in one minute; their names come from the configuration.
const NODES_MAX: usize = 1024;

/// Losses of warmth remembered one by one; more are in the sums.
const LOSSES_MAX: usize = 256;

const MINUTE_MS: u64 = 60_000;

#[derive(Default)]
pub struct History(Mutex<Hour>);

#[derive(Default)]
struct Hour {
    /// Oldest first, without the minutes in which nothing happened.
    minutes: VecDeque<Minute>,
    losses: VecDeque<Loss>,
    conversations: Conversations,
}

/// What happened in one minute.
#[derive(Clone, Debug, Default)]
struct Minute {
    /// Minutes since 1970.
    at: u64,
    requests: u64,
    failures: u64,
    first_bytes: Spread,
    tokens: Tokens,
    /// About how long reading the cached ones would have taken.
    saved_s: f64,
    moved: u64,
    lost_tokens: u64,
    lost_s: f64,
    nodes: BTreeMap<String, NodeTally>,
}

/// Tokens of prompts, as engines told.
#[derive(Clone, Copy, Debug, Default)]
struct Tokens {
    cached: u64,
    uncached: u64,
    /// Of those counted as uncached, since their engine tells no cached ones, as many as are believed to be cached.
    believed_cached: u64,
}

/// What happened at one node.
#[derive(Clone, Copy, Debug, Default)]
struct NodeTally {
    answered: u64,
    first_bytes_s: f64,
    failures: u64,
}

/// A request that is over.
#[derive(Clone, Debug, Default)]
pub struct Ended {
    pub at_ms: u64,
    pub failed: bool,
    pub prompt: Option<Prompt>,
    pub turn: Option<Turn>,
    pub loss: Option<Loss>,
}

/// A prompt as its engine counted it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prompt {
    pub cached: u32,
    pub uncached: u32,
    pub believed_cached: u32,
    pub saved_s: f64,
}

/// A turn that went elsewhere than the last.
#[derive(Clone, Debug, Default)]
pub struct Loss {
    pub at_ms: u64,
    pub request_id: String,
    pub session: Option<String>,
    pub model: String,
    pub from: String,
    pub to: String,
    pub why: &'static str,
    pub tokens: u32,
    pub seconds: Option<f64>,
}

impl History {
    /// A first byte came from that node, so long after the request's head.
    pub fn first_byte(&self, node: &str, seconds: f64, at_ms: u64) {
        let mut hour = self.0.lock();
        let minute = hour.minute(at_ms);
        minute.first_bytes.add(seconds * 1000.0);
        if let Some(tally) = minute.node(node) {
            tally.answered += 1;
            tally.first_bytes_s += seconds;
        }
    }

    /// An attempt at that node failed.
    pub fn attempt_failed(&self, node: &str, at_ms: u64) {
        if let Some(tally) = self.0.lock().minute(at_ms).node(node) {
            tally.failures += 1;
        }
    }

    pub fn ended(&self, ended: Ended) {
        let mut hour = self.0.lock();
        let minute = hour.minute(ended.at_ms);
        minute.requests += 1;
        minute.failures += u64::from(ended.failed);
        if let Some(prompt) = ended.prompt {
            minute.tokens.cached += u64::from(prompt.cached);
            minute.tokens.uncached += u64::from(prompt.uncached);
            minute.tokens.believed_cached += u64::from(prompt.believed_cached);
            minute.saved_s += prompt.saved_s;
        }
        if let Some(loss) = &ended.loss {
            minute.moved += 1;
            minute.lost_tokens += u64::from(loss.tokens);
            minute.lost_s += loss.seconds.unwrap_or(0.0);
        }
        if let Some(turn) = ended.turn {
            hour.conversations.take(turn, ended.loss.as_ref(), ended.at_ms);
        }
        if let Some(loss) = ended.loss {
            if hour.losses.len() >= LOSSES_MAX {
                hour.losses.pop_front();
            }
            hour.losses.push_back(loss);
        }
    }

    /// The hour up to now: each minute, all of them together, the losses of warmth and the conversations.
    pub fn to_json(&self, now_ms: u64) -> Value {
        let mut hour = self.0.lock();
        hour.forget_before(now_ms);
        let minutes: Vec<Value> = hour.minutes.iter().map(Minute::to_json).collect();
        let since = now_ms.saturating_sub(MINUTES as u64 * MINUTE_MS);
        let losses = hour.losses.iter().rev().filter(|loss| loss.at_ms >= since);
        json!({
            "minutes_kept": MINUTES,
            "minutes": minutes,
            "total": hour.total().to_json(),
            "lost_by": hour.lost_by(since),
            "losses": losses.map(Loss::to_json).collect::<Vec<_>>(),
            "sessions": hour.conversations.to_json(),
            "sessions_in_all": hour.conversations.len(),
        })
    }
}

impl Hour {
    fn minute(&mut self, at_ms: u64) -> &mut Minute {
        self.forget_before(at_ms);
        let at = at_ms / MINUTE_MS;
        // A clock that was set back goes on in the minute that there is.
        if self.minutes.back().is_none_or(|last| last.at < at) {
            self.minutes.push_back(Minute { at, ..Minute::default() });
        }
        let last = self.minutes.len() - 1;
        &mut self.minutes[last]
    }

    fn forget_before(&mut self, now_ms: u64) {
        let at = now_ms / MINUTE_MS;
        while self.minutes.front().is_some_and(|first| first.at + MINUTES as u64 <= at) {
            self.minutes.pop_front();
        }
    }

    fn total(&self) -> Minute {
        self.minutes.iter().fold(Minute::default(), |mut total, minute| {
            total.add(minute);
            total
        })
    }

    fn lost_by(&self, since: u64) -> BTreeMap<&'static str, u64> {
        let mut by = BTreeMap::new();
        self.losses.iter().filter(|loss| loss.at_ms >= since).for_each(|loss| *by.entry(loss.why).or_insert(0) += 1);
        by
    }
}

impl Minute {
    fn node(&mut self, name: &str) -> Option<&mut NodeTally> {
        if !self.nodes.contains_key(name) {
            if self.nodes.len() >= NODES_MAX {
                return None;
            }
            self.nodes.insert(name.to_string(), NodeTally::default());
        }
        self.nodes.get_mut(name)
    }

    fn add(&mut self, other: &Minute) {
        self.requests += other.requests;
        self.failures += other.failures;
        self.first_bytes.merge(&other.first_bytes);
        self.tokens.cached += other.tokens.cached;
        self.tokens.uncached += other.tokens.uncached;
        self.tokens.believed_cached += other.tokens.believed_cached;
        self.saved_s += other.saved_s;
        self.moved += other.moved;
        self.lost_tokens += other.lost_tokens;
        self.lost_s += other.lost_s;
        for (name, tally) in &other.nodes {
            if let Some(sum) = self.node(name) {
                sum.answered += tally.answered;
                sum.first_bytes_s += tally.first_bytes_s;
                sum.failures += tally.failures;
            }
        }
    }

    fn to_json(&self) -> Value {
        let nodes = self.nodes.iter().map(|(name, tally)| (name.clone(), tally.to_json()));
        json!({
            "at_ms": self.at * MINUTE_MS,
            "requests": self.requests,
            "failures": self.failures,
            "first_bytes": self.first_bytes.count(),
            "first_byte_p50_ms": self.first_bytes.quantile(0.5),
            "first_byte_p95_ms": self.first_bytes.quantile(0.95),
            "cached_tokens": self.tokens.cached,
            "uncached_tokens": self.tokens.uncached,
            "believed_cached_tokens": self.tokens.believed_cached,
            "saved_s_estimated": self.saved_s,
            "moved": self.moved,
            "lost_tokens_estimated": self.lost_tokens,
            "lost_s_estimated": self.lost_s,
            "nodes": nodes.collect::<serde_json::Map<_, _>>(),
        })
    }
}

impl NodeTally {
    fn to_json(self) -> Value {
        let mean_ms = (self.answered > 0).then(|| 1000.0 * self.first_bytes_s / self.answered as f64);
        json!({"answered": self.answered, "first_byte_mean_ms": mean_ms, "failures": self.failures})
    }
}

impl Loss {
    fn to_json(&self) -> Value {
        json!({
            "at_ms": self.at_ms,
            "request_id": self.request_id,
            "session": self.session,
            "model": self.model,
            "from": self.from,
            "to": self.to,
            "why": self.why,
            "tokens_estimated": self.tokens,
            "seconds_estimated": self.seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(at_ms: u64) -> Ended {
        Ended { at_ms, ..Ended::default() }
    }

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let history = History::default();
        for minute in 0..200 {
            history.ended(ended(minute * MINUTE_MS + 5));
        }
        let told = history.to_json(199 * MINUTE_MS + 10);
        assert_eq!(told["total"]["requests"], MINUTES);
        assert_eq!(told["minutes"][0]["at_ms"], 140 * MINUTE_MS);
        assert_eq!(history.to_json(300 * MINUTE_MS)["total"]["requests"], 0, "without a request in between, too");
    }

    #[test]
    fn a_clock_that_is_set_back_loses_nothing() {
        let history = History::default();
        [9, 2, 9].iter().for_each(|minute| history.ended(ended(minute * MINUTE_MS)));
        assert_eq!(history.to_json(9 * MINUTE_MS)["total"]["requests"], 3);
    }

    #[test]
    fn first_bytes_and_losses_add_up() {
        let history = History::default();
        for (node, seconds) in [("n1", 0.1), ("n1", 0.3), ("n2", 2.0)] {
            history.first_byte(node, seconds, 0);
        }
        history.attempt_failed("n2", MINUTE_MS);
        for (why, seconds) in [("busy", Some(1.5)), ("down", None)] {
            let loss = Loss { why, seconds, tokens: 100, ..Loss::default() };
            history.ended(Ended { loss: Some(loss), failed: why == "down", ..ended(MINUTE_MS) });
        }
        let total = &history.to_json(MINUTE_MS)["total"];
        assert_eq!((&total["first_bytes"], &total["requests"], &total["failures"]), (&json!(3), &json!(2), &json!(1)));
        assert_eq!((&total["moved"], &total["lost_s_estimated"]), (&json!(2), &json!(1.5)));
        assert_eq!(total["lost_tokens_estimated"], 200);
        assert_eq!(total["nodes"]["n1"], json!({"answered": 2, "first_byte_mean_ms": 200.0, "failures": 0}));
        assert_eq!(total["nodes"]["n2"]["failures"], 1);
        assert_eq!(history.to_json(MINUTE_MS)["lost_by"], json!({"busy": 1, "down": 1}));
    }

    #[test]
    fn losses_are_bounded_and_the_sums_go_on() {
        let history = History::default();
        for _ in 0..LOSSES_MAX + 10 {
            history.ended(Ended { loss: Some(Loss::default()), ..ended(0) });
        }
        let told = history.to_json(0);
        assert_eq!(told["losses"].as_array().map(Vec::len), Some(LOSSES_MAX));
        assert_eq!(told["total"]["moved"], LOSSES_MAX + 10);
    }
}
