//! What values may be, alone and together.
//!
//! Every limit is a named constant or a row of a table, with its reason where it is not plain.
//! Defaults keep to them by construction, so only what was written is looked at.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use super::file::{Admission, File, Upstream};
use super::groups::{FALLBACKS_MAX, check_models};
use super::plan::{Auth, Plan};
use super::problem::Report;
use super::rows::check_rows;
use super::tenants;
use super::upstream_url::UpstreamUrl;
use crate::routing::placement;
use crate::units::Span;

/// More machines than any fleet has; keeps a generated file from going unnoticed.
const UPSTREAMS_MAX: usize = 4096;
const LISTENS_MAX: usize = 64;
/// Each one is looked up in every request.
const HEADERS_MAX: usize = 32;
/// Each one is looked at in every request.
const PEERS_MAX: usize = 256;
/// Names go into headers, metrics and narrow screens.
const NAME_CHARS_MAX: usize = 64;
/// Beyond it conversations never leave their node, however long they wait there.
const EXTERNALITY_WEIGHT_MAX: f64 = 64.0;
/// A node that is given this much more than it can run is not being queued for at all.
const ENGINE_QUEUE_MAX: f64 = 1000.0;
/// Every waiting request holds its body, and every change looks over the queue.
const QUEUE_MAX: u32 = 10_000;
/// Far below what would overflow a clock, far above any sensible wait.
const SPAN_MAX: Span = Span::from_secs(365 * 24 * 3600);

/// Another name of the same length and a process's number must fit as well.
const SOCKET_PATH_BYTES_MAX: usize = 96;

/// Names that no upstream can have, in any case, and why.
const TAKEN_NAMES: [(&str, &str); 2] = [
    (placement::ALL, "in X-Fleet-Nodes it stands for every node"),
    (placement::OURSELVES, "in X-Fleet-Node it marks what Warmgate answers itself"),
];

/// Checks each value against its own bounds, and the items of each list against each other.
pub fn check_written(written: &File, report: &mut Report) {
    check_counts(written, report);
    check_spans(written, report);
    check_numbers(written, report);
    let upstreams = written.upstreams.as_deref().unwrap_or_default();
    for (index, upstream) in upstreams.iter().enumerate().take(UPSTREAMS_MAX) {
        if let Some(upstream) = upstream {
            check_upstream(upstream, &format!("upstreams[{index}]"), report);
        }
    }
    let each = || upstreams.iter().take(UPSTREAMS_MAX).map(Option::as_ref);
    let names = each().map(|upstream| upstream?.name.as_ref());
    check_unique(|index| format!("upstreams[{index}].name"), names, "", report);
    let urls = each().map(|upstream| upstream?.url.as_ref());
    check_unique(|index| format!("upstreams[{index}].url"), urls, "", report);
    check_paths(written, report);
    check_loops(written, report);
    check_rows(&upstreams[..upstreams.len().min(UPSTREAMS_MAX)], report);
    check_models(written, report);
    tenants::check_written(written, report);
}

fn check_counts(written: &File, report: &mut Report) {
    let listens = written.listen.as_ref().map(|listen| listen.len());
    let headers = written.affinity.as_ref().and_then(|affinity| affinity.headers.as_ref()).map(|headers| headers.len());
    let upstreams = written.upstreams.as_ref().map(|upstreams| upstreams.len());
    let rows = [
        ("listen", listens, 1..=LISTENS_MAX),
        ("affinity.headers", headers, 0..=HEADERS_MAX),
        ("upstreams", upstreams, 0..=UPSTREAMS_MAX),
        ("trusted_peers", written.trusted_peers.as_ref().map(Vec::len), 0..=PEERS_MAX),
    ];
    for (path, count, range) in rows {
        if let Some(count) = count {
            check_count(path, count, range, report);
        }
    }
}

pub fn check_count(path: &str, count: usize, range: RangeInclusive<usize>, report: &mut Report) {
    if !range.contains(&count) {
        let hint = format!("write {} to {}", range.start(), range.end());
        report.add(path, format!("has {count} items"), hint);
    }
}

fn check_spans(written: &File, report: &mut Report) {
    if let Some(affinity) = &written.affinity {
        check_span("affinity.ttl", affinity.ttl, report);
    }
    if let Some(admission) = &written.admission {
        check_span("admission.queue_timeout", admission.queue_timeout, report);
    }
    if let Some(timeouts) = &written.timeouts {
        check_span("timeouts.connect", timeouts.connect, report);
        check_span("timeouts.first_byte", timeouts.first_byte, report);
        check_span("timeouts.idle", timeouts.idle, report);
        check_span("timeouts.client_write", timeouts.client_write, report);
        check_span("timeouts.heartbeat", timeouts.heartbeat.and_then(|heartbeat| heartbeat.0), report);
    }
    if let Some(resilience) = &written.resilience {
        // No slow start is a choice, so zero passes.
        check_span("resilience.slow_start", resilience.slow_start.filter(|span| !span.0.is_zero()), report);
        if let Some(breaker) = &resilience.breaker {
            check_span("resilience.breaker.window", breaker.window, report);
            check_span("resilience.breaker.cooldown", breaker.cooldown, report);
            check_span("resilience.breaker.max_cooldown", breaker.max_cooldown, report);
        }
    }
    if let Some(health) = &written.health {
        check_span("health.interval", health.interval, report);
        check_span("health.timeout", health.timeout, report);
    }
    if let Some(telemetry) = &written.telemetry {
        check_span("telemetry.interval", telemetry.interval, report);
        check_span("telemetry.stale_after", telemetry.stale_after, report);
    }
    // No grace at all is a choice, so zero passes.
    let grace = written.shutdown.as_ref().and_then(|shutdown| shutdown.grace);
    check_span("limits.header_read", written.limits.as_ref().and_then(|limits| limits.header_read), report);
    check_span("shutdown.grace", grace.filter(|grace| !grace.0.is_zero()), report);
}

fn check_span(path: &str, span: Option<Span>, report: &mut Report) {
    match span {
        Some(span) if span.0.is_zero() => report.add(path, "must be more than zero", ""),
        Some(span) if span > SPAN_MAX => report.add(path, "must be at most a year (8760h)", ""),
        _ => {}
    }
}

fn check_numbers(written: &File, report: &mut Report) {
    let weight = written.routing.as_ref().and_then(|routing| routing.externality_weight);
    if weight.is_some_and(|weight| !(1.0..=EXTERNALITY_WEIGHT_MAX).contains(&weight)) {
        let what = format!("must be from 1 to {EXTERNALITY_WEIGHT_MAX}");
        report.add("routing.externality_weight", what, "1 looks at the request alone, more also at those behind it");
    }
    let sample = written.tracing.as_ref().and_then(|tracing| tracing.sample);
    if sample.is_some_and(|sample| !(0.0..=1.0).contains(&sample)) {
        report.add("tracing.sample", "must be from 0 to 1", "the share of traces that is kept; 1 keeps all");
    }
    if let Some(affinity) = &written.affinity {
        check_number("affinity.max_sessions", affinity.max_sessions, 1..=10_000_000, report);
    }
    if let Some(admission) = &written.admission {
        check_admission(admission, report);
    }
    if let Some(resilience) = &written.resilience {
        check_number("resilience.attempts", resilience.attempts, 1..=16, report);
        check_number("resilience.max_fallbacks", resilience.max_fallbacks, 0..=FALLBACKS_MAX, report);
        let failures = resilience.breaker.as_ref().and_then(|breaker| breaker.failures);
        check_number("resilience.breaker.failures", failures, 1..=1000, report);
    }
    if let Some(health) = &written.health {
        check_number("health.unhealthy_after", health.unhealthy_after, 1..=100, report);
        check_number("health.healthy_after", health.healthy_after, 1..=100, report);
    }
    if let Some(server) = &written.server {
        check_number("server.threads", server.threads, 0..=1024, report);
    }
    if let Some(limits) = &written.limits
        && limits.body.is_some_and(|body| body.0 == 0)
    {
        report.add("limits.body", "must be more than zero", "");
    }
}

/// Files that are written. An empty path would be the folder itself.
fn check_paths(written: &File, report: &mut Report) {
    let server = written.server.as_ref();
    let rows = [
        ("server.upgrade_sock", server.and_then(|server| server.upgrade_sock.as_ref())),
        ("server.pid_file", server.and_then(|server| server.pid_file.as_ref())),
        ("state_file", written.state_file.as_ref()),
    ];
    for (path, _) in rows.iter().filter(|(_, file)| file.is_some_and(String::is_empty)) {
        report.add(*path, "must not be empty", "leave it out, or write null, for none");
    }
    // The system's own limit for the name of a socket is 107.
    if rows[0].1.is_some_and(|file| file.len() > SOCKET_PATH_BYTES_MAX) {
        let what = format!("must not be longer than {SOCKET_PATH_BYTES_MAX} characters");
        report.add("server.upgrade_sock", what, "sockets cannot have longer names");
    }
}

fn check_admission(admission: &Admission, report: &mut Report) {
    if admission.engine_queue.is_some_and(|slots| !(0.0..=ENGINE_QUEUE_MAX).contains(&slots)) {
        let what = format!("must be from 0 to {ENGINE_QUEUE_MAX}");
        report.add("admission.engine_queue", what, "it is in units of a node's slots: 1 doubles what a node is given");
    }
    if admission.reserve_for_interactive.is_some_and(|share| !(0.0..1.0).contains(&share)) {
        let hint = "it is a share of each node's slots: 0.5 keeps every second one free of batch work";
        report.add("admission.reserve_for_interactive", "must be from 0 to below 1", hint);
    }
    check_number("admission.max_queue", admission.max_queue, 0..=QUEUE_MAX, report);
    if let Some(priorities) = &admission.priorities {
        check_number("admission.priorities.interactive", priorities.interactive, 1..=1000, report);
        check_number("admission.priorities.batch", priorities.batch, 1..=1000, report);
    }
}

pub fn check_number(path: &str, number: Option<u32>, range: RangeInclusive<u32>, report: &mut Report) {
    if number.is_some_and(|number| !range.contains(&number)) {
        report.add(path, format!("must be from {} to {}", range.start(), range.end()), "");
    }
}

fn check_upstream(upstream: &Upstream, path: &str, report: &mut Report) {
    let fits = |name: &String| (1..=NAME_CHARS_MAX).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic());
    if !upstream.name.as_ref().is_none_or(fits) {
        let what = format!("must be 1 to {NAME_CHARS_MAX} visible ASCII characters without spaces");
        report.add(format!("{path}.name"), what, "it goes into headers as it is");
    }
    let name = upstream.name.as_deref().unwrap_or_default();
    if let Some((_, hint)) = TAKEN_NAMES.iter().find(|(taken, _)| name.eq_ignore_ascii_case(taken)) {
        report.add(format!("{path}.name"), "this name has a meaning of its own", *hint);
    }
    if name.contains(',') {
        report.add(format!("{path}.name"), "must not have a comma", "X-Fleet-Nodes has commas between names");
    }
    if upstream.weight.is_some_and(|weight| weight < 0.0) {
        report.add(format!("{path}.weight"), "must not be negative", "0 takes it out of the shuffle");
    }
    if upstream.memory.is_some_and(|memory| memory.0 == 0) {
        report.add(format!("{path}.memory"), "must be more than zero", "leave it out if it is not known");
    }
    if upstream.memory_bandwidth.is_some_and(|bandwidth| bandwidth.0 <= 0.0) {
        report.add(format!("{path}.memory_bandwidth"), "must be more than zero", "leave it out if it is not known");
    }
    check_number(&format!("{path}.slots"), upstream.slots, 1..=65_536, report);
    check_number(&format!("{path}.tier"), upstream.tier, 0..=1000, report);
}

/// Upstreams that are Warmgate itself. A name that leads here is not known before it is resolved; requests by
/// it are ended by the count of hops.
fn check_loops(written: &File, report: &mut Report) {
    let defaults = Plan::default();
    let listens: Vec<SocketAddr> = match &written.listen {
        Some(listens) => listens.iter().take(LISTENS_MAX).flatten().filter_map(|listen| listen.address).collect(),
        None => defaults.listen.iter().map(|listen| listen.address).collect(),
    };
    let admin = written.admin.as_ref().and_then(|admin| admin.address).unwrap_or(defaults.admin.address);
    for (index, upstream) in written.upstreams.iter().flatten().enumerate().take(UPSTREAMS_MAX) {
        let Some(url) = upstream.as_ref().and_then(|upstream| upstream.url.as_ref()) else { continue };
        let path = format!("upstreams[{index}].url");
        if let Some(listen) = listens.iter().find(|listen| leads_to(url, **listen)) {
            let hint = "a request would come back here without end; write the engine's own port, like 11434 for Ollama";
            report.add(path, format!("is where Warmgate listens itself ({listen})"), hint);
        } else if leads_to(url, admin) {
            let hint = "no engine can be there; write the engine's own port, like 11434 for Ollama";
            report.add(path, format!("is Warmgate's own admin.address ({admin})"), hint);
        }
    }
}

/// Whether a connection to the URL's place would come to one who listens at `address` on this machine.
fn leads_to(url: &UpstreamUrl, address: SocketAddr) -> bool {
    let here = address.ip().to_canonical();
    let there = url.ip().map(|ip| ip.to_canonical());
    let is_local = url.host == "localhost" || there.is_some_and(|ip| ip.is_loopback() || ip.is_unspecified());
    let any_loopback = url.host == "localhost" || there.is_some_and(|ip| ip.is_unspecified());
    let meets = there == Some(here) || here.is_unspecified() && is_local || here.is_loopback() && any_loopback;
    url.port == address.port() && meets
}

/// Values that must differ between the items of a list; names the place of the first. `path` gives
/// the place of an item's value.
pub fn check_unique<T: Eq + Hash>(
    path: impl Fn(usize) -> String,
    values: impl Iterator<Item = Option<T>>,
    hint: &str,
    report: &mut Report,
) {
    let mut seen = HashMap::new();
    for (index, value) in values.enumerate() {
        let Some(value) = value else { continue };
        let first = *seen.entry(value).or_insert(index);
        if first != index {
            report.add(path(index), format!("the same as {}", path(first)), hint);
        }
    }
}

/// Checks values against each other.
pub fn check_together(plan: &Plan, report: &mut Report) {
    check_addresses(plan, report);
    check_forwarding(plan, report);
    tenants::check_together(plan, report);
    if plan.telemetry.stale_after < plan.telemetry.interval {
        let hint = "a reading would be too old before the next one comes";
        report.add("telemetry.stale_after", "must not be below telemetry.interval", hint);
    }
    if plan.resilience.breaker.max_cooldown < plan.resilience.breaker.cooldown {
        let hint = "the first cooldown would be longer than the longest";
        report.add("resilience.breaker.max_cooldown", "must not be below resilience.breaker.cooldown", hint);
    }
    if plan.limits.body > plan.limits.memory_for_bodies {
        let hint = "the largest body could never be held";
        report.add("limits.memory_for_bodies", "must not be below limits.body", hint);
    }
}

/// A tenant's key is for this door and no other.
fn check_forwarding(plan: &Plan, report: &mut Report) {
    if plan.tenants.is_empty() {
        return;
    }
    for (index, _) in plan.upstreams.iter().enumerate().filter(|(_, upstream)| upstream.auth == Auth::Forward) {
        let hint = "the keys of clients are those of `tenants`, which nobody else may see; take one of the two out";
        report.add(format!("upstreams[{index}].auth"), "must not be `forward` beside `tenants`", hint);
    }
}

fn check_addresses(plan: &Plan, report: &mut Report) {
    let admin = plan.admin.address;
    if plan.listen.iter().any(|listen| collide(listen.address, admin)) {
        report.add("admin.address", "is taken by listen", "clients and administration need a port each");
    }
    if !admin.ip().is_loopback() && plan.admin.token.is_none() && !report.has("admin.token") {
        let hint = "whoever reaches it elsewhere could drain nodes; write 127.0.0.1:9435, or a token like \
                    {env: WARMGATE_ADMIN_TOKEN}";
        report.add("admin.address", "needs admin.token where it is not on the loopback interface", hint);
    }
    // More than these are a problem already.
    for (index, listen) in plan.listen.iter().enumerate().take(LISTENS_MAX) {
        if plan.listen[..index].iter().any(|other| collide(other.address, listen.address)) {
            report.add("listen", format!("has {} more than once", listen.address), "");
        }
    }
}

/// Whether the second address could not be opened after the first. Port 0 asks for any free one.
fn collide(a: SocketAddr, b: SocketAddr) -> bool {
    let same_ip = a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() != 0 && a.port() == b.port() && same_ip
}
