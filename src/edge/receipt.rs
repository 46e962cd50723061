//! Why a request went where it went, kept for those who ask.
//!
//! A receipt holds names, numbers and reasons, never a prompt or a key. `ring` keeps the latest, `form`
//! is how they are told.

mod form;
mod ring;

use crate::routing::fleet::{HoldingId, UpstreamId};
use crate::routing::select::{Decision, Exclusion, Row};
use crate::routing::warmth::Lost;

pub use form::{decision_json, lost_json, row_json};
pub use ring::{RECEIPTS_BYTES_MAX, Receipts, Wanted};

/// Candidates kept of one decision, best first.
const MAX_CANDIDATES: usize = 16;

/// One request's course.
#[derive(Clone, Debug, Default)]
pub struct Receipt {
    pub request_id: String,
    /// The trace that it is part of, in hexadecimal.
    pub trace_id: Option<String>,
    pub wall_ms: u64,
    pub path: String,
    /// Whose request it was, by name; `None` while there are no tenants.
    pub tenant: Option<String>,
    pub model: String,
    pub stream: bool,
    pub prompt_tokens_estimated: u32,
    /// The conversation's key, in hexadecimal.
    pub session: Option<String>,
    pub attempts: Vec<Attempt>,
    /// How often its stream was cut and went on at another node.
    pub resumed: u32,
    /// The nodes that a managing call was for.
    pub nodes: Vec<String>,
    pub affinity: &'static str,
    /// What it lost, if its conversation was served elsewhere before.
    pub lost: Option<Lost>,
    pub status: u16,
    pub outcome: &'static str,
    pub intake_ms: f64,
    /// Waited here for nodes, over all attempts.
    pub queue_ms: f64,
    /// From when to when it did, each time; as many at most as there are attempts, and one more.
    pub waits_ms: Vec<(f64, f64)>,
    /// How many turns there were until its own when it first lined up; `None`: it never had to.
    pub queue_position: Option<usize>,
    pub first_byte_ms: Option<f64>,
    pub total_ms: f64,
    pub prompt_tokens: Option<u32>,
    pub cached_tokens: Option<u32>,
    pub output_tokens: Option<u32>,
    /// What its tenant was charged.
    pub charged_tokens: Option<u64>,
    /// Nobody told all of it.
    pub charge_is_estimated: bool,
    /// Of an answer that the client did not get whole, the bytes that it got.
    pub given_bytes: Option<u64>,
    /// Messages with output in them that had come when the client left; `None`: it stayed.
    pub partial_events: Option<u32>,
}

/// One attempt at an upstream.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub row: Row,
    /// The best that was not taken.
    pub runner_up: Option<Row>,
    /// The best candidates and the first of the excluded.
    pub decision: Decision,
    pub candidates_in_all: usize,
    pub excluded_in_all: usize,
    /// How many were excluded for which reason; as many at most as there are reasons.
    pub excluded_by: Vec<(Exclusion, usize)>,
    /// When the node was chosen, from the request's start.
    pub placed_ms: f64,
    /// What it took to get a connection to it; `None`: there was none.
    pub connect_ms: Option<f64>,
    /// Why it failed; `None`: it did not, or is still running.
    pub failure: Option<&'static str>,
    /// When it failed, from the request's start.
    pub ended_ms: Option<f64>,
}

impl Attempt {
    pub fn new(row: Row, mut decision: Decision, placed_ms: f64) -> Attempt {
        let (candidates_in_all, excluded_in_all) = (decision.rows.len(), decision.excluded.len());
        let runner_up = runner_up(&decision, row.holding).cloned();
        let excluded_by = excluded_by(&decision.excluded);
        decision.rows.truncate(MAX_CANDIDATES);
        decision.rows.shrink_to_fit();
        decision.excluded.truncate(MAX_CANDIDATES);
        decision.excluded.shrink_to_fit();
        Attempt {
            row,
            runner_up,
            decision,
            candidates_in_all,
            excluded_in_all,
            excluded_by,
            placed_ms,
            connect_ms: None,
            failure: None,
            ended_ms: None,
        }
    }
}

impl Receipt {
    /// The nodes of a managing call, in one.
    pub fn managed_nodes(&self) -> Option<String> {
        (!self.nodes.is_empty()).then(|| self.nodes.join(","))
    }

    /// Tokens of the prompt that the node which answered had cached: as it told, else (marked true) as is believed.
    pub fn saved_tokens(&self) -> (u32, bool) {
        let believed = self.attempts.last().map_or(0, |attempt| attempt.row.covered_tokens);
        match (self.cached_tokens, self.prompt_tokens) {
            (Some(cached), _) => (cached, false),
            (None, Some(prompt)) => (believed.min(prompt), true),
            (None, None) => (believed, true),
        }
    }

    /// What reading a token takes at the node that answered, as was believed; `None`: nothing was known.
    pub fn prefill_s_per_token(&self) -> Option<f64> {
        let row = &self.attempts.last()?.row;
        let to_read = self.prompt_tokens_estimated.saturating_sub(row.covered_tokens);
        row.first_token.filter(|_| to_read > 0).map(|parts| parts.prefill_s / f64::from(to_read))
    }

    /// What it lost, as far as the engine's own counts bear that out.
    pub fn lost_in_truth(&self) -> Option<Lost> {
        let lost = self.lost?;
        let read = self.prompt_tokens.map(|prompt| prompt.saturating_sub(self.cached_tokens.unwrap_or(0)));
        let tokens = lost.tokens.min(read.unwrap_or(lost.tokens));
        let share = f64::from(tokens) / f64::from(lost.tokens.max(1));
        Some(Lost { tokens, seconds: lost.seconds.map(|seconds| seconds * share), ..lost })
    }

    /// Whether some attempt was at that node.
    fn was_at(&self, node: &str, name: &dyn Fn(UpstreamId) -> String) -> bool {
        self.attempts.iter().any(|attempt| name(attempt.row.upstream) == node) || self.nodes.iter().any(|n| n == node)
    }
}

/// The best of those that were not taken.
pub fn runner_up(decision: &Decision, taken: HoldingId) -> Option<&Row> {
    decision.rows.iter().find(|row| row.holding != taken)
}

/// How many for each reason.
pub fn excluded_by(excluded: &[(UpstreamId, Exclusion)]) -> Vec<(Exclusion, usize)> {
    let mut by = std::collections::BTreeMap::new();
    excluded.iter().for_each(|(_, reason)| *by.entry(*reason).or_insert(0) += 1);
    by.into_iter().collect()
}
