//! From what was written to what was meant: the written values laid over the defaults.
//!
//! Fetches the secrets. Always gives a plan, so that the checks which follow can look at all of it; a
//! plan is worth using only if the report stayed empty.

use std::path::Path;

use super::cluster::Cluster;
use super::file::{self, File};
use super::jwt::Jwt;
use super::listen_tls::ListenTls;
use super::peers::TrustedPeers;
use super::plan::{Admin, Admission, Group, GroupTarget, Listen, Plan, Resilience, Upstream};
use super::problem::Report;
use super::secret::{Secret, Source};
use super::tenants;
use super::tls::Tls;

pub fn plan(written: File, folder: &Path, report: &mut Report) -> Plan {
    let mut plan = Plan::default();
    if let Some(listen) = written.listen {
        plan.listen = listens(listen, folder, report);
    }
    lay_admin(&mut plan.admin, written.admin.unwrap_or_default(), folder, report);
    plan.upstreams = upstreams(written.upstreams.unwrap_or_default(), folder, report);
    plan.models = groups(written.models.unwrap_or_default(), report);
    lay_routing(&mut plan, written.routing.unwrap_or_default());
    lay_affinity(&mut plan, written.affinity.unwrap_or_default());
    lay_admission(&mut plan.admission, written.admission.unwrap_or_default());
    lay_resilience(&mut plan.resilience, written.resilience.unwrap_or_default());
    lay_times(&mut plan, written.timeouts.unwrap_or_default());
    lay_watching(&mut plan, written.health.unwrap_or_default(), written.telemetry.unwrap_or_default());
    lay_limits(&mut plan, written.limits.unwrap_or_default());
    if let Some(origins) = written.cors.and_then(|cors| cors.origins) {
        plan.cors.origins = origins.0;
    }
    lay(&mut plan.usage_probe, written.usage_probe);
    lay(&mut plan.management, written.management);
    lay(&mut plan.routing_headers, written.routing_headers);
    if let Some(peers) = written.trusted_peers {
        plan.trusted_peers = TrustedPeers(peers.into_iter().flatten().collect());
    }
    plan.tenants = tenants::resolve(written.tenants.unwrap_or_default(), folder, report);
    plan.jwt = written.jwt.and_then(|jwt| Jwt::of(jwt, folder, report));
    lay(&mut plan.cache_salt, written.cache_salt);
    plan.cache_salt_key = written.cache_salt_key.and_then(|source| fetch(&source, "cache_salt_key", folder, report));
    plan.cluster = written.cluster.and_then(|cluster| Cluster::of(cluster, folder, report));
    let server = written.server.unwrap_or_default();
    lay(&mut plan.server.threads, server.threads);
    plan.server.upgrade_sock = server.upgrade_sock.map(|path| folder.join(path));
    plan.server.pid_file = server.pid_file.map(|path| folder.join(path));
    if let Some(tracing) = written.tracing {
        plan.tracing.otlp = tracing.otlp;
        lay(&mut plan.tracing.sample, tracing.sample);
    }
    plan.state_file = written.state_file.map(|path| folder.join(path));
    lay(&mut plan.shutdown.grace, written.shutdown.and_then(|shutdown| shutdown.grace));
    lay(&mut plan.log.access, written.log.and_then(|log| log.access));
    plan
}

fn lay<T>(value: &mut T, written: Option<T>) {
    if let Some(written) = written {
        *value = written;
    }
}

fn listens(written: Vec<Option<file::Listen>>, folder: &Path, report: &mut Report) -> Vec<Listen> {
    let mut listens = Vec::new();
    for (index, listen) in written.into_iter().enumerate() {
        let Some(file::Listen { address, tls }) = listen else { continue };
        let path = format!("listen[{index}]");
        let tls = tls.and_then(|tls| ListenTls::of(tls, &format!("{path}.tls"), folder, report));
        match address {
            Some(address) => listens.push(Listen { address, tls }),
            None => report.add_missing(&format!("{path}.address"), "write it like 127.0.0.1:11435"),
        }
    }
    listens
}

fn lay_admin(admin: &mut Admin, written: file::Admin, folder: &Path, report: &mut Report) {
    lay(&mut admin.address, written.address);
    admin.token = written.token.and_then(|source| fetch(&source, "admin.token", folder, report));
    admin.tls = written.tls.and_then(|tls| ListenTls::of(tls, "admin.tls", folder, report));
}

fn upstreams(written: Vec<Option<file::Upstream>>, folder: &Path, report: &mut Report) -> Vec<Upstream> {
    let mut upstreams = Vec::new();
    for (index, upstream) in written.into_iter().enumerate() {
        let path = format!("upstreams[{index}]");
        upstreams.extend(upstream.and_then(|upstream| resolve_upstream(upstream, &path, folder, report)));
    }
    upstreams
}

/// `None` without a name or a URL, which is reported.
fn resolve_upstream(written: file::Upstream, path: &str, folder: &Path, report: &mut Report) -> Option<Upstream> {
    if written.name.is_none() {
        report.add_missing(&format!("{path}.name"), "a short name for headers and screens, like studio");
    }
    if written.url.is_none() {
        report.add_missing(&format!("{path}.url"), "write it like http://10.0.0.5:11434");
    }
    let api_key = written.api_key.and_then(|source| fetch(&source, &format!("{path}.api_key"), folder, report));
    let tls = written.tls.map(|tls| Tls::of(tls, &format!("{path}.tls"), folder, report));
    let mut upstream = Upstream::new(written.name?, written.url?);
    upstream.engine = written.engine.map(|engine| engine.0);
    upstream.slots = written.slots;
    upstream.memory = written.memory;
    upstream.memory_bandwidth = written.memory_bandwidth;
    upstream.api_key = api_key;
    upstream.data_parallel = written.data_parallel;
    upstream.discover = written.discover;
    upstream.tls = tls;
    lay(&mut upstream.auth, written.auth);
    lay(&mut upstream.weight, written.weight);
    lay(&mut upstream.tier, written.tier);
    lay(&mut upstream.drain, written.drain);
    Some(upstream)
}

/// `None`: it is not there, which is reported.
fn fetch(source: &Source, path: &str, folder: &Path, report: &mut Report) -> Option<Secret> {
    Secret::fetch(source, folder, &mut report.files).map_err(|why| report.add(path, why, "")).ok()
}

fn groups(written: Vec<Option<file::Group>>, report: &mut Report) -> Vec<Group> {
    let mut groups = Vec::new();
    for (index, group) in written.into_iter().enumerate() {
        let path = format!("models[{index}]");
        groups.extend(group.and_then(|group| resolve_group(group, &path, report)));
    }
    groups
}

/// `None` without a name or targets, which is reported.
fn resolve_group(written: file::Group, path: &str, report: &mut Report) -> Option<Group> {
    if written.name.is_none() {
        report.add_missing(&format!("{path}.name"), "what clients will ask for, like chat-large");
    }
    if written.targets.is_none() {
        report.add_missing(&format!("{path}.targets"), "at least one, with the keys upstream and model");
    }
    let mut targets = Vec::new();
    for (index, target) in written.targets?.into_iter().enumerate() {
        let path = format!("{path}.targets[{index}]");
        targets.extend(target.and_then(|target| resolve_target(target, &path, report)));
    }
    let fallbacks = written.fallbacks.unwrap_or_default().into_iter().flatten().collect();
    Some(Group { name: written.name?, targets, fallbacks, policy: written.policy })
}

/// `None` without an upstream or a model, which is reported.
fn resolve_target(written: file::GroupTarget, path: &str, report: &mut Report) -> Option<GroupTarget> {
    if written.upstream.is_none() {
        report.add_missing(&format!("{path}.upstream"), "the name of an upstream");
    }
    if written.model.is_none() {
        report.add_missing(&format!("{path}.model"), "what the upstream calls it");
    }
    let mut target = GroupTarget::new(written.upstream?, written.model?);
    lay(&mut target.weight, written.weight);
    target.rpm = written.rpm;
    target.tpm = written.tpm;
    target.cost = written.cost;
    Some(target)
}

fn lay_routing(plan: &mut Plan, written: file::Routing) {
    lay(&mut plan.routing.policy, written.policy);
    lay(&mut plan.routing.externality_weight, written.externality_weight);
    lay(&mut plan.routing.option_guard, written.option_guard);
    lay(&mut plan.routing.signals, written.signals);
}

fn lay_affinity(plan: &mut Plan, written: file::Affinity) {
    lay(&mut plan.affinity.headers, written.headers.map(|headers| headers.into_iter().flatten().collect()));
    lay(&mut plan.affinity.ttl, written.ttl);
    lay(&mut plan.affinity.max_sessions, written.max_sessions);
}

fn lay_admission(admission: &mut Admission, written: file::Admission) {
    lay(&mut admission.engine_queue, written.engine_queue);
    lay(&mut admission.max_queue, written.max_queue);
    lay(&mut admission.queue_timeout, written.queue_timeout);
    lay(&mut admission.reserve_for_interactive, written.reserve_for_interactive);
    let priorities = written.priorities.unwrap_or_default();
    lay(&mut admission.priorities.interactive, priorities.interactive);
    lay(&mut admission.priorities.batch, priorities.batch);
}

fn lay_resilience(resilience: &mut Resilience, written: file::Resilience) {
    lay(&mut resilience.attempts, written.attempts);
    lay(&mut resilience.max_fallbacks, written.max_fallbacks);
    lay(&mut resilience.slow_start, written.slow_start);
    lay(&mut resilience.resume_streams, written.resume_streams);
    let breaker = written.breaker.unwrap_or_default();
    lay(&mut resilience.breaker.failures, breaker.failures);
    lay(&mut resilience.breaker.window, breaker.window);
    lay(&mut resilience.breaker.cooldown, breaker.cooldown);
    lay(&mut resilience.breaker.max_cooldown, breaker.max_cooldown);
}

fn lay_times(plan: &mut Plan, written: file::Timeouts) {
    lay(&mut plan.timeouts.connect, written.connect);
    lay(&mut plan.timeouts.first_byte, written.first_byte);
    lay(&mut plan.timeouts.idle, written.idle);
    lay(&mut plan.timeouts.client_write, written.client_write);
    lay(&mut plan.timeouts.heartbeat, written.heartbeat);
}

fn lay_watching(plan: &mut Plan, health: file::Health, telemetry: file::Telemetry) {
    lay(&mut plan.health.interval, health.interval);
    lay(&mut plan.health.timeout, health.timeout);
    lay(&mut plan.health.unhealthy_after, health.unhealthy_after);
    lay(&mut plan.health.healthy_after, health.healthy_after);
    lay(&mut plan.telemetry.interval, telemetry.interval);
    lay(&mut plan.telemetry.stale_after, telemetry.stale_after);
}

fn lay_limits(plan: &mut Plan, written: file::Limits) {
    lay(&mut plan.limits.body, written.body);
    lay(&mut plan.limits.memory_for_bodies, written.memory_for_bodies);
    lay(&mut plan.limits.header_read, written.header_read);
}
