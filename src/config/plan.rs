//! What was meant: the configuration as the program uses it, and its defaults.
//!
//! Every value is typed and resolved; a `Plan` that came out of `parse` has passed every check. An
//! `Option` here never means "the default", only that something is not known, and its comment says
//! what follows. Written out with serde, a plan has the keys of the file and hides its secrets.

mod defaults;

use std::net::SocketAddr;
use std::path::PathBuf;

use http::HeaderName;
use serde::{Serialize, Serializer};

use super::cluster::Cluster;
use super::cors::Cors;
use super::discover::Discover;
use super::jwt::Jwt;
use super::key::KeyHash;
use super::listen_tls::ListenTls;
use super::peers::TrustedPeers;
use super::policy::Policy;
use super::secret::Secret;
use super::tls::Tls;
use super::upstream_url::UpstreamUrl;
use crate::routing::ask::Priority;
use crate::routing::breaker::BreakerRules;
use crate::routing::limits::Limits as MinuteLimits;
use crate::routing::runner::OptionGuard;
use crate::routing::signal::Signals;
use crate::units::{Bandwidth, ByteSize, Span};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Client addresses, at least one.
    pub listen: Vec<Listen>,
    pub admin: Admin,
    /// Names and URLs are unique. Empty: `run` looks for engines on this machine.
    pub upstreams: Vec<Upstream>,
    /// Nobody configured an upstream: these are ports at which an engine might be found. Never written.
    #[serde(skip)]
    pub is_guess: bool,
    /// Names are unique under `routing::name::fold`.
    pub models: Vec<Group>,
    pub routing: Routing,
    pub affinity: Affinity,
    pub admission: Admission,
    pub resilience: Resilience,
    pub timeouts: Timeouts,
    pub health: Health,
    pub telemetry: Telemetry,
    pub limits: Limits,
    pub cors: Cors,
    pub usage_probe: UsageProbe,
    /// Whether clients may pull, push, create, copy and delete models.
    pub management: bool,
    /// Whether answers carry the `X-Fleet-*` headers.
    pub routing_headers: bool,
    /// Whose word is taken for whom they ask.
    pub trusted_peers: TrustedPeers,
    /// Names are unique, and no key is that of two. Empty: whoever reaches this may use everything.
    pub tenants: Vec<Tenant>,
    /// Tokens that name one of `tenants`; `None`: only keys do.
    pub jwt: Option<Jwt>,
    /// Whether engines keep what they cached apart for each tenant, of whom it is not said.
    pub cache_salt: bool,
    /// What salts are made with; `None`: others after each start.
    pub cache_salt_key: Option<Secret>,
    /// Over what it agrees with other replicas; `None`: it is alone, or they agree by the hash of names only.
    pub cluster: Option<Cluster>,
    pub server: Server,
    pub shutdown: Shutdown,
    pub log: Log,
    pub tracing: Tracing,
    /// Where pins and learned speeds are kept for the next process; `None`: nowhere.
    pub state_file: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listen {
    pub address: SocketAddr,
    /// `None`: plain HTTP.
    pub tls: Option<ListenTls>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Admin {
    /// On the loopback interface, unless there is a token.
    pub address: SocketAddr,
    /// What requests must show; `None`: nothing.
    pub token: Option<Secret>,
    /// `None`: plain HTTP.
    pub tls: Option<ListenTls>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Upstream {
    /// Visible ASCII, 1 to 64 characters: it goes into headers.
    pub name: String,
    pub url: UpstreamUrl,
    /// One of `engine_names`; `None`: to be detected.
    pub engine: Option<&'static str>,
    /// Parallel requests a model; `None`: unknown until the engine tells or is seen.
    pub slots: Option<u32>,
    /// What models may use; `None`: unknown, and memory fit is neutral.
    pub memory: Option<ByteSize>,
    /// `None`: unknown, and the role goes by memory.
    pub memory_bandwidth: Option<Bandwidth>,
    /// Share under `policy: shuffle`; finite, not negative.
    pub weight: f64,
    /// Used only when no upstream of a lower tier can serve.
    pub tier: u32,
    /// Whose key it gets.
    pub auth: Auth,
    /// Sent to this upstream; `None`: it gets none of ours. Only with `Auth::Replace`.
    pub api_key: Option<Secret>,
    /// Takes no new work from the start.
    pub drain: bool,
    /// Ranks behind the URL, each a row of its own; `None`: one row, and the engine chooses among its own.
    pub data_parallel: Option<u32>,
    /// `None`: one row, at one address of its name at a time.
    pub discover: Option<Discover>,
    /// Only with `https`; `None`: its certificate is checked as this machine checks all.
    pub tls: Option<Tls>,
}

/// A name that clients may ask for, and what serves it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// 1 to 256 bytes without control characters. A `*`, only at the end, stands for any rest.
    pub name: String,
    /// At least one, no two with the same upstream and model.
    pub targets: Vec<GroupTarget>,
    /// Other groups or models of the nodes, tried in order when no target can serve; at most
    /// `max_fallbacks`, none of them twice or the group itself, none with a `*`.
    pub fallbacks: Vec<String>,
    /// `None`: that of `routing`.
    pub policy: Option<Policy>,
}

/// A model of one upstream.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupTarget {
    /// The name of a configured upstream.
    pub upstream: String,
    /// What the upstream calls it. At most one `*`, for what the one in the group's name stood for.
    pub model: String,
    /// Share under `policy: shuffle`; finite, not negative.
    pub weight: f64,
    /// Requests a minute, at least one; `None`: no limit.
    pub rpm: Option<u32>,
    /// Tokens a minute, at least one; `None`: no limit.
    pub tpm: Option<u32>,
    /// For `policy: cost`, in any unit; finite, not negative. `None`: unknown.
    pub cost: Option<f64>,
}

/// Whose keys these are, and what they open.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tenant {
    /// Visible ASCII, 1 to 64 characters.
    pub name: String,
    /// At least one.
    pub keys: Vec<KeyHash>,
    /// Names that may be asked for, a `*` standing for anything; `None`: all.
    pub models: Option<Vec<String>>,
    pub limits: TenantLimits,
    /// Of its requests; they can only say that they are less urgent.
    pub priority: Priority,
    /// Whether it may manage models where not everybody may.
    pub management: bool,
    /// Whether engines keep what they cached for it apart.
    pub cache_salt: bool,
}

/// At least one each; `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TenantLimits {
    pub rpm: Option<u32>,
    pub tpm: Option<u32>,
    pub concurrent: Option<u32>,
}

impl TenantLimits {
    pub fn limits(&self) -> MinuteLimits {
        MinuteLimits { requests_a_minute: self.rpm, tokens_a_minute: self.tpm, concurrent: self.concurrent }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Routing {
    pub policy: Policy,
    /// Under `expected_ttft`, by how much the work that a request makes counts; at least 1.
    pub externality_weight: f64,
    /// About requests whose options would make a node load its model anew.
    pub option_guard: OptionGuard,
    pub signals: Signals,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Affinity {
    /// Headers that name a session, the first one present wins.
    #[serde(serialize_with = "as_text")]
    pub headers: Vec<HeaderName>,
    /// How long a pin outlives its last turn.
    pub ttl: Span,
    /// Sessions remembered; beyond it the least recently used are forgotten.
    pub max_sessions: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Admission {
    /// How many requests may wait at an engine, in units of its slots; not negative. More wait here.
    pub engine_queue: f64,
    /// Requests that may wait here.
    pub max_queue: u32,
    /// The longest that a request waits here.
    pub queue_timeout: Span,
    pub priorities: Priorities,
    /// Share of a node's slots that batch may not take; 0 up to but not including 1.
    pub reserve_for_interactive: f64,
}

/// How often each class has its turn; at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Priorities {
    pub interactive: u32,
    pub batch: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Resilience {
    /// Upstreams tried for one request, the first included.
    pub attempts: u32,
    /// Other models tried for one request after the one that was asked for.
    pub max_fallbacks: u32,
    pub breaker: Breaker,
    /// For a node that joins or comes back to carry its full share; zero: at once.
    pub slow_start: Span,
    /// Whether a chat stream that is cut goes on at another node.
    pub resume_streams: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Breaker {
    /// Failures in a row that open it, at least one.
    pub failures: u32,
    /// Failures older than this are forgotten.
    pub window: Span,
    /// From its opening to the first trial; doubles with each failed one.
    pub cooldown: Span,
    /// Not below `cooldown`.
    pub max_cooldown: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Timeouts {
    pub connect: Span,
    /// From the request sent to the first byte of the answer; loading a model falls into it.
    pub first_byte: Span,
    /// Between two reads of an answer.
    pub idle: Span,
    /// For one write to a client that does not read.
    pub client_write: Span,
    /// Of a stream to its client while the engine says nothing.
    pub heartbeat: Heartbeat,
}

/// How often; `None`: never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat(pub Option<Span>);

impl Serialize for Heartbeat {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            None => to.serialize_str("off"),
            Some(every) => every.serialize(to),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Health {
    pub interval: Span,
    pub timeout: Span,
    /// Failed checks in a row that take an upstream out.
    pub unhealthy_after: u32,
    /// Good checks in a row that bring it back.
    pub healthy_after: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Telemetry {
    pub interval: Span,
    /// Age past which a reading is neutral; not below `interval`.
    pub stale_after: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Largest request body.
    pub body: ByteSize,
    /// For the bodies of all requests together; not below `body`.
    pub memory_for_bodies: ByteSize,
    /// For the head of a request as a whole.
    pub header_read: Span,
}

/// What becomes of the keys that a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Auth {
    /// They stay here: the upstream gets its own, or none.
    Replace,
    /// The upstream gets them, and says itself whom it serves.
    Forward,
}

impl Auth {
    pub const NAMES: [(&'static str, Auth); 2] = [("replace", Auth::Replace), ("forward", Auth::Forward)];
}

/// Whether streams are made to tell their counts where the client did not ask for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UsageProbe {
    Off,
    On,
}

impl UsageProbe {
    pub const NAMES: [(&'static str, UsageProbe); 2] = [("off", UsageProbe::Off), ("on", UsageProbe::On)];
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Server {
    /// As written; 0: one a core. `worker_threads` is the number to start.
    pub threads: u32,
    /// Where a successor asks for the listeners; `None`: in the user's runtime directory.
    pub upgrade_sock: Option<PathBuf>,
    /// Where the number of the process stands while it serves; `None`: nowhere.
    pub pid_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Shutdown {
    /// For running streams to end; zero cuts them at once.
    pub grace: Span,
}

/// Spans of requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tracing {
    /// The collector's base URL; `None`: no spans are made.
    pub otlp: Option<UpstreamUrl>,
    /// Share of the traces that begin here which is kept, 0 to 1. Of others their own word counts.
    pub sample: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Log {
    pub access: AccessLog,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessLog {
    Json,
    Text,
    Off,
}

impl AccessLog {
    pub const NAMES: [(&'static str, AccessLog); 3] =
        [("json", AccessLog::Json), ("text", AccessLog::Text), ("off", AccessLog::Off)];

    pub fn name(self) -> &'static str {
        name_in(&AccessLog::NAMES, self)
    }
}

pub fn name_in<T: PartialEq>(names: &[(&'static str, T)], value: T) -> &'static str {
    names.iter().find(|(_, named)| *named == value).map_or("", |(name, _)| name)
}

impl Listen {
    /// Without TLS.
    pub fn plain(address: SocketAddr) -> Listen {
        Listen { address, tls: None }
    }
}

impl Server {
    /// Threads to start on this machine, at least one.
    pub fn worker_threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads as usize,
        }
    }
}

impl Upstream {
    /// An upstream of which only its name and place are known.
    pub fn new(name: String, url: UpstreamUrl) -> Upstream {
        Upstream {
            name,
            url,
            engine: None,
            slots: None,
            memory: None,
            memory_bandwidth: None,
            weight: 1.0,
            tier: 0,
            auth: Auth::Replace,
            api_key: None,
            drain: false,
            data_parallel: None,
            discover: None,
            tls: None,
        }
    }
}

impl GroupTarget {
    /// A target of which only its place and its model are known.
    pub fn new(upstream: String, model: String) -> GroupTarget {
        GroupTarget { upstream, model, weight: 1.0, rpm: None, tpm: None, cost: None }
    }
}

impl Breaker {
    pub fn rules(&self) -> BreakerRules {
        BreakerRules {
            failures: self.failures,
            window: self.window.0,
            cooldown: self.cooldown.0,
            max_cooldown: self.max_cooldown.0,
        }
    }
}

fn as_text<S: Serializer>(headers: &[HeaderName], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(headers.iter().map(HeaderName::as_str))
}
