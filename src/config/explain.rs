//! What was understood, for people: the answer of `warmgate check`.
//!
//! Says what is in force and where it comes from; never a secret.

use std::fmt::Write;

use super::cluster::Cluster;
use super::engine::default_slots;
use super::listen_tls::ListenTls;
use super::plan::{Admin, Auth, Group, GroupTarget, Plan, TenantLimits, Upstream, UsageProbe};
use super::policy::Policy;
use super::rows::{ADDRESS_MARK, RANK_MARK};
use super::signals::constants;
use super::tls::Tls;
use crate::routing::signal::Signals;

/// What `management: true` means.
const MANAGED: &str = "ON: every client may pull, push, create, copy and DELETE models on the nodes that run Ollama";

impl Plan {
    /// Several lines, the last one ended.
    pub fn explain(&self) -> String {
        let mut lines = Lines(String::new());
        for listen in &self.listen {
            let reach = match (listen.address.ip().is_loopback(), self.tenants.is_empty()) {
                (true, _) => "this machine",
                (false, true) => "everyone who reaches it",
                (false, false) => "everyone who reaches it with a key",
            };
            lines.row("listen", &format!("{}, for {reach}", listen.address));
            explain_tls(listen.tls.as_ref(), &mut lines);
        }
        lines.row("admin", &self.admin.reach());
        explain_tls(self.admin.tls.as_ref(), &mut lines);
        self.explain_upstreams(&mut lines);
        self.explain_models(&mut lines);
        self.explain_tenants(&mut lines);
        self.explain_routing(&mut lines);
        self.explain_times_and_limits(&mut lines);
        lines.0
    }

    fn explain_upstreams(&self, lines: &mut Lines) {
        if self.upstreams.is_empty() {
            lines.row("upstreams", "none; `warmgate run` looks for engines on this machine");
        }
        for upstream in &self.upstreams {
            lines.row("upstream", &format!("{} at {}", upstream.name, upstream.url));
            lines.row("  engine", upstream.engine.unwrap_or("detected at start"));
            lines.row("  slots", &upstream.slots_and_source());
            lines.row("  memory", &upstream.strength());
            lines.row("  key", upstream.whose_key());
            lines.row("  used", &upstream.usage());
            if upstream.data_parallel.is_some() || upstream.discover.is_some() {
                lines.row("  rows", &upstream.rows());
            }
            if let Some(tls) = &upstream.tls {
                lines.row("  tls", &tls.summary());
            }
        }
    }

    fn explain_models(&self, lines: &mut Lines) {
        for group in &self.models {
            lines.row("model", &group.name);
            for target in &group.targets {
                lines.row("  target", &target.summary());
            }
            lines.row("  fallbacks", &group.fallbacks_in_order());
            let policy = group.policy.map_or("as for all models", |policy| policy.name());
            lines.row("  policy", policy);
        }
    }

    fn explain_tenants(&self, lines: &mut Lines) {
        if self.tenants.is_empty() {
            lines.row("tenants", "none; everyone who reaches it may use every model");
        }
        for tenant in &self.tenants {
            lines.row("tenant", &format!("{}, keys: {}", tenant.name, tenant.keys.len()));
            lines.row("  models", &tenant.models.as_ref().map_or("all".to_owned(), |models| models.join(", ")));
            lines.row("  limits", &tenant.limits.summary());
            lines.row("  priority", tenant.priority.name());
            if tenant.management {
                lines.row("  manages", "may pull, push, create, copy and DELETE the models it may use");
            }
            if tenant.cache_salt || self.cache_salt {
                lines.row("  caches", "kept apart from those of others, at vLLM and SGLang");
            }
        }
        if let Some(jwt) = &self.jwt {
            lines.row("tokens", &jwt.summary());
        }
        let peers: Vec<String> = self.trusted_peers.0.iter().map(ToString::to_string).collect();
        lines.row("believed", &if peers.is_empty() { "nobody".to_owned() } else { peers.join(", ") });
    }

    fn names_policy(&self, policy: Policy) -> bool {
        self.routing.policy == policy || self.models.iter().any(|group| group.policy == Some(policy))
    }

    fn explain_routing(&self, lines: &mut Lines) {
        lines.row("policy", self.routing.policy.name());
        if self.names_policy(Policy::ExpectedTtft) {
            lines.row("", &format!("work for others to wait for counts {} times", self.routing.externality_weight));
        }
        lines.row("option guard", self.routing.option_guard.name());
        let defaults = constants(&Signals::default());
        let differing =
            constants(&self.routing.signals).into_iter().zip(defaults).filter(|(now, before)| now != before);
        let differing: Vec<String> =
            differing.map(|((name, now), (_, before))| format!("{name} {now} (default {before})")).collect();
        lines.row("signals", if differing.is_empty() { "the defaults" } else { "the defaults but for" });
        for constant in differing {
            lines.row("", &constant);
        }
        self.explain_admission(lines);
        let replicas = self.cluster.as_ref().map_or("no others are known of".to_owned(), Cluster::summary);
        lines.row("replicas", &replicas);
        let affinity = &self.affinity;
        lines.row("sessions", &format!("kept {}, at most {}", affinity.ttl, affinity.max_sessions));
        lines.row("attempts", &format!("up to {} upstreams a request", self.resilience.attempts));
        lines.row("fallbacks", &format!("up to {} other models a request", self.resilience.max_fallbacks));
        let breaker = &self.resilience.breaker;
        lines.row(
            "breaker",
            &format!(
                "{} failures in {}; out for {}, at most {}; slow start over {}",
                breaker.failures, breaker.window, breaker.cooldown, breaker.max_cooldown, self.resilience.slow_start
            ),
        );
    }

    fn explain_admission(&self, lines: &mut Lines) {
        let (admission, turns) = (&self.admission, &self.admission.priorities);
        let queue = match admission.max_queue {
            0 => "nothing waits here".to_owned(),
            most => format!("up to {most} requests wait here, each at most {}", admission.queue_timeout),
        };
        let at_engines = format!("at engines up to {} of their slots more", admission.engine_queue);
        lines.row("admission", &format!("{queue}; {at_engines}"));
        let mut classes = format!("{} turns of interactive to {} of batch", turns.interactive, turns.batch);
        if admission.reserve_for_interactive > 0.0 {
            classes += &format!("; {} of each node's slots are closed to batch", admission.reserve_for_interactive);
        }
        lines.row("", &classes);
    }

    fn explain_times_and_limits(&self, lines: &mut Lines) {
        let (times, health, limits) = (&self.timeouts, &self.health, &self.limits);
        lines.row(
            "timeouts",
            &format!(
                "connect {}, first byte {}, idle {}, client write {}",
                times.connect, times.first_byte, times.idle, times.client_write
            ),
        );
        let heartbeat = times.heartbeat.0.map_or("off".to_owned(), |every| format!("every {every} of silence"));
        lines.row("heartbeat", &heartbeat);
        lines.row(
            "health",
            &format!(
                "every {} within {}; out after {} failures, back after {} successes",
                health.interval, health.timeout, health.unhealthy_after, health.healthy_after
            ),
        );
        let telemetry = &self.telemetry;
        lines.row("telemetry", &format!("every {}, stale after {}", telemetry.interval, telemetry.stale_after));
        lines.row(
            "limits",
            &format!(
                "body {}, all bodies {}, head within {}",
                limits.body, limits.memory_for_bodies, limits.header_read
            ),
        );
        lines.row("management", if self.management { MANAGED } else { "off" });
        let probe = match self.usage_probe {
            UsageProbe::Off => "off",
            UsageProbe::On => "on: streams are made to tell their counts where the client did not ask",
        };
        lines.row("usage probe", probe);
        let threads = self.server.threads;
        lines.row("threads", &if threads == 0 { "one a core".to_owned() } else { threads.to_string() });
        lines.row("shutdown", &format!("running streams get {}", self.shutdown.grace));
        let successor = self.server.upgrade_sock.as_ref().map(|path| path.display().to_string());
        lines.row("upgrade", &successor.unwrap_or_else(|| "asked for in the user's runtime directory".to_owned()));
        let kept = self.state_file.as_ref().map(|path| format!("pins and speeds in {}", path.display()));
        lines.row("state", &kept.unwrap_or_else(|| "forgotten at a restart, kept through an upgrade".to_owned()));
        let headers = if self.routing_headers { "X-Fleet headers in answers" } else { "no X-Fleet headers in answers" };
        lines.row("answers", headers);
        lines.row("access log", self.log.access.name());
        let sent = |url| format!("{} of the traces that begin here, to {url}", self.tracing.sample);
        lines.row("spans", &self.tracing.otlp.as_ref().map_or_else(|| "none are made".to_owned(), sent));
    }
}

fn explain_tls(tls: Option<&ListenTls>, lines: &mut Lines) {
    let Some(tls) = tls else { return };
    let clients = match &tls.client_ca {
        Some(ca) => format!("; clients must show a certificate signed by {}", ca.display()),
        None => String::new(),
    };
    lines.row("  tls", &format!("certificate {}, read again when it changes{clients}", tls.cert.display()));
}

impl Admin {
    fn reach(&self) -> String {
        let with = if self.token.is_some() { "with its token" } else { "without a token" };
        match (self.address.ip().is_loopback(), &self.tls) {
            (true, _) => format!("{}, for this machine, {with}", self.address),
            (false, Some(_)) => format!("{}, for everyone who reaches it, {with}", self.address),
            (false, None) => {
                format!("{}, for everyone who reaches it, {with}, which is READABLE on the way", self.address)
            }
        }
    }
}

impl Upstream {
    /// How many requests of a model run here at once, and who says so.
    pub fn slots_and_source(&self) -> String {
        match (self.slots, self.engine) {
            (Some(slots), _) => format!("configured {slots}"),
            (None, Some(engine)) => format!("engine default {}, until seen otherwise", default_slots(engine)),
            (None, None) => "engine default, once the engine is detected".to_owned(),
        }
    }

    fn strength(&self) -> String {
        let memory = self.memory.map_or("unknown".to_owned(), |memory| memory.to_string());
        let bandwidth = self.memory_bandwidth.map_or("unknown".to_owned(), |bandwidth| bandwidth.to_string());
        format!("{memory}, bandwidth {bandwidth}")
    }

    fn usage(&self) -> String {
        let drain = if self.drain { "not at all: drained" } else { "for new work" };
        format!("{drain}; tier {}, weight {}", self.tier, self.weight)
    }

    fn whose_key(&self) -> &'static str {
        match (self.auth, &self.api_key) {
            (Auth::Forward, _) => "the client's",
            (Auth::Replace, Some(_)) => "its own, hidden",
            (Auth::Replace, None) => "none is sent",
        }
    }
}

impl Upstream {
    fn rows(&self) -> String {
        let ranks = self.data_parallel.map(|ranks| format!("{ranks} ranks, named {}{RANK_MARK}0 and on", self.name));
        let addresses = self.discover.as_ref().map(|discover| {
            format!("{}, named {}{ADDRESS_MARK} and a label", discover.summary(&self.url.host), self.name)
        });
        [addresses, ranks].into_iter().flatten().collect::<Vec<_>>().join("; each of ")
    }
}

impl Tls {
    fn summary(&self) -> String {
        let checked = match (self.insecure, &self.ca) {
            (true, _) => "its certificate is NOT CHECKED: whoever is in between can read and change everything",
            (false, Some(_)) => "its certificate is checked against an authority of its own",
            (false, None) => "its certificate is checked as this machine checks all",
        };
        let name = self.sni.as_ref().map_or_else(String::new, |name| format!(", for the name {name}"));
        let own = if self.cert.is_some() { "; ours is shown" } else { "" };
        format!("{checked}{name}{own}")
    }
}

impl Group {
    fn fallbacks_in_order(&self) -> String {
        if self.fallbacks.is_empty() { "none".to_owned() } else { self.fallbacks.join(", then ") }
    }
}

impl TenantLimits {
    fn summary(&self) -> String {
        let rows = [("requests a minute", self.rpm), ("tokens a minute", self.tpm), ("at once", self.concurrent)];
        let limits = rows.iter().filter_map(|(what, limit)| Some(format!("{} {what}", (*limit)?)));
        Some(limits.collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty()).unwrap_or("none".into())
    }
}

impl GroupTarget {
    fn summary(&self) -> String {
        let mut text = format!("{} on {}; weight {}", self.model, self.upstream, self.weight);
        let limits = [("rpm", self.rpm.map(f64::from)), ("tpm", self.tpm.map(f64::from)), ("cost", self.cost)];
        for (key, value) in limits {
            if let Some(value) = value {
                text += &format!(", {key} {value}");
            }
        }
        text
    }
}

struct Lines(String);

impl Lines {
    fn row(&mut self, label: &str, text: &str) {
        // Writing into a String cannot fail.
        let _ = writeln!(self.0, "{label:<11} {text}");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::parse;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let explained = parse(text, Path::new("x.yaml")).unwrap().explain();
        for line in expected {
            assert!(explained.lines().any(|explained| explained == *line), "no `{line}` in\n{explained}");
        }
    }

    #[test]
    fn defaults() {
        check(
            "",
            &[
                "listen      127.0.0.1:11435, for this machine",
                "upstreams   none; `warmgate run` looks for engines on this machine",
                "policy      fleet",
                "fallbacks   up to 5 other models a request",
                "breaker     3 failures in 1m; out for 10s, at most 5m; slow start over 30s",
                "signals     the defaults",
                "sessions    kept 15m, at most 100000",
                "limits      body 128MiB, all bodies 1GiB, head within 30s",
                "admission   up to 512 requests wait here, each at most 10m; at engines up to 1 of their slots more",
                "            3 turns of interactive to 1 of batch",
                "heartbeat   off",
                "management  off",
                "usage probe off",
            ],
        );
    }

    #[test]
    fn what_is_switched_on_is_seen() {
        check(
            "management: true",
            &["management  ON: every client may pull, push, create, copy and DELETE models on the nodes that run \
               Ollama"],
        );
        check(
            "usage_probe: on\ntimeouts: {heartbeat: 10s}",
            &[
                "usage probe on: streams are made to tell their counts where the client did not ask",
                "heartbeat   every 10s of silence",
            ],
        );
        check(
            "admission: {max_queue: 0, engine_queue: 0.5, reserve_for_interactive: 0.25, priorities: {batch: 2}}",
            &[
                "admission   nothing waits here; at engines up to 0.5 of their slots more",
                "            3 turns of interactive to 2 of batch; 0.25 of each node's slots are closed to batch",
            ],
        );
        check(
            "routing: {option_guard: pin}\nresilience: {breaker: {failures: 7}}",
            &["option guard pin", "breaker     7 failures in 1m; out for 10s, at most 5m; slow start over 30s"],
        );
    }

    #[test]
    fn slots_have_a_source() {
        check("upstreams: [{name: a, url: 'http://a', slots: 1}]", &["  slots     configured 1"]);
        check(
            "upstreams: [{name: a, url: 'http://a', engine: ollama}]",
            &["  engine    ollama", "  slots     engine default 1, until seen otherwise"],
        );
        check("upstreams: [{name: a, url: 'http://a'}]", &["  engine    detected at start"]);
    }

    #[test]
    fn models() {
        let text = "\
upstreams: [{name: a, url: 'http://a'}]
models:
  - {name: small, targets: [{upstream: a, model: 's:4b'}]}
  - name: large
    targets:
      - {upstream: a, model: 'l:32b', weight: 2, rpm: 60, tpm: 100000, cost: 0.2}
    fallbacks: [small, 's:1b']
    policy: usage-based-routing-v2
";
        check(
            text,
            &[
                "model       small",
                "  target    s:4b on a; weight 1",
                "  fallbacks none",
                "  policy    as for all models",
                "model       large",
                "  target    l:32b on a; weight 2, rpm 60, tpm 100000, cost 0.2",
                "  fallbacks small, then s:1b",
                "  policy    usage",
            ],
        );
    }

    #[test]
    fn tenants() {
        let key = crate::config::KeyHash::of("key").written();
        let limits = "limits: {rpm: 60, concurrent: 2}, priority: batch, management: true, cache_salt: true";
        let text = format!(
            "tenants: [{{name: a, keys: ['{key}'], models: ['q*', x], {limits}}}]\ntrusted_peers: [10.0.0.0/8]\nlisten: [{{address: '0.0.0.0:1'}}]"
        );
        check(
            &text,
            &[
                "listen      0.0.0.0:1, for everyone who reaches it with a key",
                "tenant      a, keys: 1",
                "  models    q*, x",
                "  limits    60 requests a minute, 2 at once",
                "  priority  batch",
                "  manages   may pull, push, create, copy and DELETE the models it may use",
                "  caches    kept apart from those of others, at vLLM and SGLang",
                "believed    10.0.0.0/8",
            ],
        );
        check("", &["tenants     none; everyone who reaches it may use every model", "believed    127.0.0.1/32"]);
    }

    #[test]
    fn constants_that_differ() {
        let text = "routing: {signals: {session: {max: 30}, role: {large: 30GB}}}";
        check(text, &["            session.max 30 (default 20)", "            role.large 30GB (default 20GB)"]);
    }
}
