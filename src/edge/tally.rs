//! What is counted of requests: metrics and the history of the last hour, always in the same step, so that
//! the dashboard and Prometheus never say different things.

use std::sync::Arc;
use std::time::Duration;

use super::clock::wall_ms;
use super::history::{Ended, Loss, Prompt, Turn};
use super::ingress::Ingress;
use super::metrics::{ANSWERED, OTHER, Served, Source};
use super::node::Node;
use super::receipt::Receipt;
use super::verdict::Verdict;
use crate::routing::ask::{Dialect, Endpoint};
use crate::routing::fleet::Learnt;
use crate::routing::retry::Cause;
use crate::routing::select::Row;

/// What the first byte of a good answer told.
pub struct FirstByte {
    /// Since the request's head.
    pub seconds: f64,
    /// From when it was expected, either way; `None`: it was not.
    pub error_s: Option<f64>,
    pub learnt: Learnt,
}

/// A request waited here for a node.
pub fn waited(ingress: &Ingress, model: &str, waited: Duration) {
    if !ingress.observes {
        return;
    }
    let label = known(ingress, model);
    ingress.metrics.queue_wait_seconds.with_label_values(&[&label]).observe(waited.as_secs_f64());
}

/// An attempt begins at that node, with the model that it spells so.
pub fn placed(ingress: &Ingress, node: &Node, model: &str, row: &Row, endpoint: Endpoint) -> Option<Arc<Served>> {
    if !ingress.observes {
        return None;
    }
    let served = ingress.metrics.pairs.of(&node.label, model);
    if endpoint.runs_model() && (!row.is_resident || row.reloads()) {
        served.loads();
    }
    Some(served)
}

/// The first byte of a good answer came.
pub fn first_byte(ingress: &Ingress, node: &Node, served: Option<&Arc<Served>>, first: FirstByte) {
    if !ingress.observes {
        return;
    }
    answered(ingress, node);
    if let Some(served) = served {
        served.first_byte(first.seconds);
        first.learnt.load_s.into_iter().for_each(|seconds| served.load_took(seconds));
        first.learnt.prefill_s.into_iter().for_each(|seconds| served.prefill(seconds));
    }
    if let Some(error_s) = first.error_s {
        ingress.metrics.prediction_error_seconds.with_label_values(&[&node.label]).observe(error_s);
    }
    ingress.history.first_byte(&node.label, first.seconds, wall_ms());
}

/// An attempt was answered.
pub fn answered(ingress: &Ingress, node: &Node) {
    if ingress.observes {
        ingress.metrics.attempts.with_label_values(&[node.label.as_str(), ANSWERED]).inc();
    }
}

pub fn attempt_failed(ingress: &Ingress, node: &Node, cause: Cause) {
    if ingress.observes {
        ingress.metrics.attempts.with_label_values(&[&node.label, cause.name()]).inc();
        ingress.history.attempt_failed(&node.label, wall_ms());
    }
}

/// An attempt failed and another could follow; whether the budget allows that.
pub fn retry(ingress: &Ingress, node: &Node, cause: Cause, is_allowed: bool) {
    let metrics = &ingress.metrics;
    match is_allowed {
        true => metrics.failovers.with_label_values(&[node.label.as_str(), cause.name()]).inc(),
        false => metrics.retries_refused.with_label_values(&[cause.name()]).inc(),
    }
}

/// A request is over.
pub fn ended(ingress: &Ingress, dialect: Dialect, verdict: Verdict, receipt: &Receipt, served: Option<Arc<Served>>) {
    if !ingress.observes {
        return;
    }
    let metrics = &ingress.metrics;
    let mut ended = Ended { at_ms: wall_ms(), failed: verdict.is_failure(), ..Ended::default() };
    let Some(served) = served.map(|served| metrics.pairs.again(&served)) else {
        metrics.pairs.of("", &known(ingress, &receipt.model)).request(dialect, verdict);
        ingress.history.ended(ended);
        return;
    };
    served.request(dialect, verdict);
    served.took(receipt.total_ms / 1000.0);
    metrics.affinity.with_label_values(&[receipt.affinity]).inc();
    if let Some((cached, uncached, source)) = tokens(receipt) {
        served.prompt(cached, uncached, source);
    }
    receipt.output_tokens.into_iter().for_each(|tokens| served.output(tokens));
    decode_rate(receipt, verdict).into_iter().for_each(|rate| served.decoded(rate));
    let name = receipt.attempts.last().map_or_else(String::new, |attempt| ingress.node_name(attempt.row.upstream));
    ended.prompt = prompt(receipt);
    ended.turn = turn(receipt, &name);
    ended.loss = loss(ingress, receipt, &name);
    if let Some(prompt) = ended.prompt.filter(|prompt| prompt.saved_s > 0.0) {
        metrics.prefill_saved_seconds.with_label_values(&[&served.node]).inc_by(prompt.saved_s);
    }
    if let Some(loss) = &ended.loss {
        metrics.count_lost(loss.why, loss.tokens, loss.seconds);
    }
    ingress.history.ended(ended);
}

/// What a client's name for a model is labelled.
fn known(ingress: &Ingress, model: &str) -> String {
    if model.is_empty() {
        return String::new();
    }
    ingress.fleet.with(|fleet, _| fleet.known_name(model)).unwrap_or_else(|| OTHER.to_owned())
}

/// The prompt's cached and uncached tokens and who told them; `None`: nothing is known to have been read.
fn tokens(receipt: &Receipt) -> Option<(u32, u32, Source)> {
    let (saved, is_estimate) = receipt.saved_tokens();
    let source = match receipt.prompt_tokens {
        Some(_) if is_estimate => Source::HalfTold,
        Some(_) => Source::Told,
        None => Source::Estimated,
    };
    let began = receipt.first_byte_ms.is_some() && matches!(receipt.status, 200..300 | 499);
    let prompt = receipt.prompt_tokens.or(began.then_some(receipt.prompt_tokens_estimated))?;
    let cached = saved.min(prompt);
    Some((cached, prompt - cached, source))
}

/// Tokens a second of a stream after its first byte; an answer in one piece tells none.
fn decode_rate(receipt: &Receipt, verdict: Verdict) -> Option<f64> {
    let first_byte_ms = receipt.first_byte_ms.filter(|_| receipt.stream && receipt.resumed == 0)?;
    let tokens = receipt.output_tokens.filter(|tokens| *tokens > 1 && verdict == Verdict::Ok)?;
    let seconds = (receipt.total_ms - first_byte_ms) / 1000.0;
    (seconds > 0.0).then(|| f64::from(tokens - 1) / seconds)
}

fn prompt(receipt: &Receipt) -> Option<Prompt> {
    let (saved, is_estimate) = receipt.saved_tokens();
    let began = receipt.first_byte_ms.is_some();
    let saved_s = receipt.prefill_s_per_token().filter(|_| began).unwrap_or(0.0) * f64::from(saved);
    let Some(prompt) = receipt.prompt_tokens else { return Some(Prompt { saved_s, ..Prompt::default() }) };
    let cached = receipt.cached_tokens.unwrap_or(0);
    let believed_cached = if is_estimate { saved } else { 0 };
    Some(Prompt { cached, uncached: prompt.saturating_sub(cached), believed_cached, saved_s })
}
fn turn(receipt: &Receipt, node: &str) -> Option<Turn> {
    let session = receipt.session.clone().filter(|_| receipt.first_byte_ms.is_some())?;
    let (saved_tokens, is_estimate) = receipt.saved_tokens();
    Some(Turn {
        session,
        model: receipt.model.clone(),
        node: node.to_string(),
        prompt_tokens: receipt.prompt_tokens.unwrap_or(receipt.prompt_tokens_estimated),
        saved_tokens,
        is_estimate,
    })
}

fn loss(ingress: &Ingress, receipt: &Receipt, node: &str) -> Option<Loss> {
    let lost = receipt.lost_in_truth()?;
    Some(Loss {
        at_ms: wall_ms(),
        request_id: receipt.request_id.clone(),
        session: receipt.session.clone(),
        model: receipt.model.clone(),
        from: ingress.node_name(lost.from),
        to: node.to_string(),
        why: lost.why.name(),
        tokens: lost.tokens,
        // Of a turn that was never answered, nothing was read again.
        seconds: lost.seconds.filter(|_| receipt.first_byte_ms.is_some()),
    })
}
