//! What was written: every key that may stand in a configuration, and nothing resolved.
//!
//! A key is one line here. `None` means that it is absent (or unreadable, in which case the report
//! says so); no default lives at this level.

use std::net::SocketAddr;

use http::HeaderName;
use ipnet::IpNet;

use super::cluster::RedisSource;
use super::cors::Origins;
use super::discover::Discover;
use super::engine::EngineName;
use super::node::Node;
use super::plan::{AccessLog, Auth, Heartbeat, UsageProbe};
use super::policy::Policy;
use super::problem::Report;
use super::read::{Read, Spot, one_of, section};
use super::secret::Source;
use super::tenants::KeySource;
use super::upstream_url::UpstreamUrl;
use crate::routing::ask::Priority;
use crate::routing::runner::OptionGuard;
use crate::routing::signal::Signals;
use crate::units::{Bandwidth, ByteSize, Span};

section! {
    /// The whole file.
    File {
        listen: Vec<Option<Listen>>,
        admin: Admin,
        upstreams: Vec<Option<Upstream>>,
        models: Vec<Option<Group>>,
        routing: Routing,
        affinity: Affinity,
        admission: Admission,
        resilience: Resilience,
        timeouts: Timeouts,
        health: Health,
        telemetry: Telemetry,
        limits: Limits,
        cors: Cors,
        usage_probe: UsageProbe,
        management: bool,
        routing_headers: bool,
        trusted_peers: Vec<Option<IpNet>>,
        tenants: Vec<Option<Tenant>>,
        jwt: Jwt,
        cache_salt: bool,
        cache_salt_key: Source,
        cluster: Cluster,
        server: Server,
        shutdown: Shutdown,
        log: Log,
        tracing: Tracing,
        state_file: String,
    }
}

impl File {
    /// The file whose tree is `root`; what cannot be read is absent and reported.
    pub fn of(root: &Node, report: &mut Report) -> File {
        File::read(Spot { path: "", node: root }, report).unwrap_or_default()
    }

    /// The path of every key, `[]` standing for any item of a list.
    pub fn keys() -> Vec<String> {
        let mut paths = Vec::new();
        File::schema("", &mut paths);
        paths
    }
}

section! { Listen { address: SocketAddr, tls: ListenTls, } }

section! { Admin { address: SocketAddr, token: Source, tls: ListenTls, } }

section! { ListenTls { cert: String, key: String, client_ca: String, } }

section! {
    Upstream {
        name: String,
        url: UpstreamUrl,
        engine: EngineName,
        slots: u32,
        memory: ByteSize,
        memory_bandwidth: Bandwidth,
        weight: f64,
        tier: u32,
        auth: Auth,
        api_key: Source,
        drain: bool,
        data_parallel: u32,
        discover: Discover,
        tls: Tls,
    }
}

section! { Tls { ca: String, cert: String, key: String, sni: String, insecure: bool, } }

section! {
    Group {
        name: String,
        targets: Vec<Option<GroupTarget>>,
        fallbacks: Vec<Option<String>>,
        policy: Policy,
    }
}

section! {
    GroupTarget {
        upstream: String,
        model: String,
        weight: f64,
        rpm: u32,
        tpm: u32,
        cost: f64,
    }
}

section! { Routing { policy: Policy, externality_weight: f64, option_guard: OptionGuard, signals: Signals, } }

section! { Affinity { headers: Vec<Option<HeaderName>>, ttl: Span, max_sessions: u32, } }

section! {
    Admission {
        engine_queue: f64,
        max_queue: u32,
        queue_timeout: Span,
        priorities: Priorities,
        reserve_for_interactive: f64,
    }
}

section! { Priorities { interactive: u32, batch: u32, } }

section! {
    Resilience {
        attempts: u32,
        max_fallbacks: u32,
        breaker: Breaker,
        slow_start: Span,
        resume_streams: bool,
    }
}

section! { Breaker { failures: u32, window: Span, cooldown: Span, max_cooldown: Span, } }

section! {
    Timeouts { connect: Span, first_byte: Span, idle: Span, client_write: Span, heartbeat: Heartbeat, }
}

section! { Health { interval: Span, timeout: Span, unhealthy_after: u32, healthy_after: u32, } }

section! { Telemetry { interval: Span, stale_after: Span, } }

section! { Limits { body: ByteSize, memory_for_bodies: ByteSize, header_read: Span, } }

section! { Cors { origins: Origins, } }

section! {
    Tenant {
        name: String,
        keys: Vec<Option<KeySource>>,
        keys_dir: String,
        models: Vec<Option<String>>,
        limits: TenantLimits,
        priority: Priority,
        management: bool,
        cache_salt: bool,
    }
}

section! { Jwt { jwks: String, ca: String, issuer: String, audience: String, claim: String, } }

section! { Cluster { redis: RedisSource, prefix: String, ca: String, } }

section! { TenantLimits { rpm: u32, tpm: u32, concurrent: u32, } }

section! { Server { threads: u32, upgrade_sock: String, pid_file: String, } }

section! { Shutdown { grace: Span, } }

section! { Log { access: AccessLog, } }

section! { Tracing { otlp: UpstreamUrl, sample: f64, } }

impl Read for AccessLog {
    fn read(at: Spot, report: &mut Report) -> Option<AccessLog> {
        one_of(at, &AccessLog::NAMES, report)
    }
}

impl Read for Auth {
    fn read(at: Spot, report: &mut Report) -> Option<Auth> {
        one_of(at, &Auth::NAMES, report)
    }
}

impl Read for UsageProbe {
    fn read(at: Spot, report: &mut Report) -> Option<UsageProbe> {
        one_of(at, &UsageProbe::NAMES, report)
    }
}

impl Read for Heartbeat {
    fn read(at: Spot, report: &mut Report) -> Option<Heartbeat> {
        match at.node.scalar().as_deref() {
            Some("off") => Some(Heartbeat(None)),
            _ => Span::read(at, report).map(|every| Heartbeat(Some(every))),
        }
    }
}

impl Read for OptionGuard {
    fn read(at: Spot, report: &mut Report) -> Option<OptionGuard> {
        one_of(at, &OptionGuard::NAMES, report)
    }
}
