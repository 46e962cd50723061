//! What is counted of requests: metrics and the history of the last hour, always in the same step, so that
//! the dashboard and Prometheus never say different things.

use super::clock::wall_ms;
use super::history::{Ended, Loss, Prompt, Turn};
use super::ingress::Ingress;
use super::node::Node;
use super::receipt::Receipt;
use super::verdict::Verdict;
use crate::routing::ask::Dialect;
use crate::routing::retry::Cause;

/// The first byte of a good answer came, so many seconds after the request's head.
pub fn first_byte(ingress: &Ingress, node: &Node, seconds: f64) {
    answered(ingress, node);
    ingress.metrics.first_byte_seconds.with_label_values(&[&node.label]).observe(seconds);
    ingress.history.first_byte(&node.label, seconds, wall_ms());
}

/// An attempt was answered.
pub fn answered(ingress: &Ingress, node: &Node) {
    ingress.metrics.attempts.with_label_values(&[&node.label, "answered"]).inc();
}

pub fn attempt_failed(ingress: &Ingress, node: &Node, cause: Cause) {
    ingress.metrics.attempts.with_label_values(&[&node.label, cause.name()]).inc();
    ingress.history.attempt_failed(&node.label, wall_ms());
}

/// A request is over.
pub fn ended(ingress: &Ingress, dialect: Dialect, verdict: Verdict, receipt: &Receipt) {
    let metrics = &ingress.metrics;
    metrics.requests.with_label_values(&[dialect.name(), verdict.name()]).inc();
    let mut ended = Ended { at_ms: wall_ms(), failed: verdict.is_failure(), ..Ended::default() };
    if let Some(attempt) = receipt.attempts.last() {
        let node = ingress.node(attempt.row.upstream);
        let (name, label) = node.map_or_else(Default::default, |node| (node.name.clone(), node.label.clone()));
        metrics.affinity.with_label_values(&[receipt.affinity]).inc();
        if let Some(prompt) = receipt.prompt_tokens {
            metrics.count_prompt(&label, prompt, receipt.cached_tokens.unwrap_or(0));
        }
        ended.prompt = prompt(receipt);
        ended.turn = turn(receipt, &name);
        ended.loss = loss(ingress, receipt, &name);
    }
    if let Some(loss) = &ended.loss {
        metrics.count_lost(loss.why, loss.seconds);
    }
    ingress.history.ended(ended);
}

fn prompt(receipt: &Receipt) -> Option<Prompt> {
    let prompt = receipt.prompt_tokens?;
    let cached = receipt.cached_tokens.unwrap_or(0);
    let (saved, is_estimate) = receipt.saved_tokens();
    let believed_cached = if is_estimate { saved } else { 0 };
    let saved_s = receipt.prefill_s_per_token().unwrap_or(0.0) * f64::from(saved);
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
