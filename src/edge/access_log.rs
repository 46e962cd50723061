//! One line for each request that went to the fleet. It never holds a prompt, a key or an address.

use serde_json::json;

use super::receipt::Receipt;
use crate::config::AccessLog;
use crate::routing::fleet::UpstreamId;

/// The log target of access lines, for whoever formats or filters them.
pub const TARGET: &str = "warmgate::access";

pub fn write(form: AccessLog, receipt: &Receipt, name: &dyn Fn(UpstreamId) -> String) {
    if form == AccessLog::Off {
        return;
    }
    let last = receipt.attempts.last();
    let node = last.map(|attempt| name(attempt.row.upstream)).or(receipt.managed_nodes()).unwrap_or_default();
    let score = last.map(|attempt| (attempt.row.score * 10.0).round() / 10.0);
    match form {
        AccessLog::Off => {}
        AccessLog::Json => {
            let line = json!({
                "time_ms": receipt.wall_ms,
                "request_id": receipt.request_id,
                "trace_id": receipt.trace_id,
                "path": receipt.path,
                "tenant": receipt.tenant,
                "model": receipt.model,
                "session": receipt.session,
                "node": node,
                "score": score,
                "affinity": receipt.affinity,
                "attempts": receipt.attempts.len(),
                "status": receipt.status,
                "outcome": receipt.outcome,
                "queue_ms": receipt.queue_ms.round(),
                "first_byte_ms": receipt.first_byte_ms.map(f64::round),
                "total_ms": receipt.total_ms.round(),
                "prompt_tokens": receipt.prompt_tokens,
                "cached_tokens": receipt.cached_tokens,
                "output_tokens": receipt.output_tokens,
            });
            log::info!(target: TARGET, "{line}");
        }
        AccessLog::Text => {
            let dash = |text: Option<&str>| text.unwrap_or("-").to_owned();
            let tokens = |tokens: Option<u32>| tokens.map_or_else(|| "-".into(), |tokens| tokens.to_string());
            let first_byte_ms = receipt.first_byte_ms.map_or_else(|| "-".into(), |ms| format!("{ms:.0}"));
            log::info!(
                target: TARGET,
                "{} {} {} {} {:?} -> {} {} {} session={} score={} attempts={} queue_ms={:.0} first_byte_ms={} \
                 total_ms={:.0} prompt_tokens={} cached_tokens={} output_tokens={} trace_id={}",
                receipt.request_id, receipt.status, dash(receipt.tenant.as_deref()), receipt.path,
                receipt.model, node, receipt.affinity, receipt.outcome, dash(receipt.session.as_deref()),
                score.map_or_else(|| "-".into(), |score| format!("{score:.1}")), receipt.attempts.len(),
                receipt.queue_ms, first_byte_ms, receipt.total_ms, tokens(receipt.prompt_tokens),
                tokens(receipt.cached_tokens), tokens(receipt.output_tokens), dash(receipt.trace_id.as_deref()),
            );
        }
    }
}
