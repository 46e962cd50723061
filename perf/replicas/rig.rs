//! Engines alike, one more for probes, and replicas of the real `warmgate` program in front of them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use warmgate::config::KeyHash;

use crate::Arguments;
use crate::client::{Conn, Request};
use crate::engine_process::{EngineParams, EngineProcess, MODEL, free_ports};
use crate::launch::{Launched, launch};
use crate::patience::within;
use crate::program::program;

const ENGINES: usize = 6;
const SLOTS: u32 = 48;
const PREFILL_TOKENS_PER_S: f64 = 20_000.0;
const DECODE_TOKENS_PER_S: f64 = 80.0;
const ANSWER_TOKENS: u32 = 24;
/// The engine for probes answers at once, with one token.
const PROBE: &str = "probe";
const PROBE_SPEED: f64 = 10_000_000.0;

/// The keys of those who talk, who probe, and who flood.
pub const KEYS: [&str; 3] = ["key-of-those-who-talk", "key-of-those-who-probe", "key-of-those-who-flood"];

pub struct Rig {
    _engines: Vec<EngineProcess>,
    gates: Vec<Launched>,
}

impl Rig {
    /// Replicas that hear of each other, if there is a Redis.
    pub async fn start(replicas: usize, redis: Option<String>, arguments: &Arguments) -> Rig {
        let ports = free_ports(ENGINES + 1);
        let names = (1..=ENGINES).map(|n| format!("n{n}")).chain([PROBE.to_owned()]);
        let engines: Vec<EngineProcess> = names.zip(ports).map(engine).collect();
        let yaml = configuration(&engines, redis.as_deref(), arguments);
        let mut gates = Vec::new();
        for _ in 0..replicas {
            let gate = launch(&program(), &yaml).await;
            assert_eq!(gate.state, "ready", "warmgate's log:\n{}", gate.log());
            gates.push(gate);
        }
        let rig = Rig { _engines: engines, gates };
        if redis.is_some() {
            for gate in &rig.gates {
                within("replicas to hear of each other", async {
                    while status(gate.admin).await["cluster"]["other_replicas"] != replicas as u64 - 1 {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                })
                .await;
            }
        }
        rig
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.gates.iter().map(|gate| gate.address).collect()
    }

    /// Calls to Redis of all replicas, by operation and result.
    pub async fn operations(&self) -> BTreeMap<String, u64> {
        let mut operations = BTreeMap::new();
        for gate in &self.gates {
            let request = Request::get_as("localhost", "/metrics");
            let text = Conn::open(gate.admin).await.exchange(&request).await.whole().await;
            for line in String::from_utf8_lossy(&text).lines() {
                let Some(rest) = line.strip_prefix("warmgate_cluster_") else { continue };
                let Some((name, value)) = rest.rsplit_once(' ') else { continue };
                let wanted = name.contains("_total") || name.starts_with("lookup_seconds_bucket");
                if let Some(count) = value.parse::<u64>().ok().filter(|count| wanted && *count > 0) {
                    *operations.entry(name.to_owned()).or_default() += count;
                }
            }
        }
        operations
    }
}

async fn status(admin: SocketAddr) -> Value {
    let request = Request::get_as("localhost", "/fleet/status");
    Conn::open(admin).await.exchange(&request).await.json().await
}

fn engine((name, port): (String, u16)) -> EngineProcess {
    let is_probe = name == PROBE;
    let params = EngineParams {
        name,
        port,
        slots: SLOTS,
        prefill_tokens_per_s: if is_probe { PROBE_SPEED } else { PREFILL_TOKENS_PER_S },
        decode_tokens_per_s: if is_probe { PROBE_SPEED } else { DECODE_TOKENS_PER_S },
        answer_tokens: if is_probe { 1 } else { ANSWER_TOKENS },
    };
    EngineProcess::start(params).expect("an engine")
}

fn configuration(engines: &[EngineProcess], redis: Option<&str>, arguments: &Arguments) -> String {
    let entry = |engine: &EngineProcess| {
        // Whoever asks for the model itself is served by the others.
        let tier = u8::from(engine.name() == PROBE);
        let place = format!("url: \"http://{}\", engine: ollama, slots: {SLOTS}, tier: {tier}", engine.address());
        format!("  - {{name: {}, {place}}}\n", engine.name())
    };
    let tenant = |name: &str, key: &str, limits: &str| {
        format!("  - {{name: {name}, keys: [\"{}\"], limits: {{{limits}}}}}\n", KeyHash::of(key).written())
    };
    format!(
        "listen: [{{address: \"127.0.0.1:0\"}}]\n\
         admin: {{address: \"127.0.0.1:0\"}}\n\
         log: {{access: \"off\"}}\n\
         models: [{{name: {PROBE}, targets: [{{upstream: {PROBE}, model: \"{MODEL}\"}}]}}]\n\
         {}tenants:\n{}{}{}upstreams:\n{}",
        redis.map(|url| format!("cluster: {{redis: \"{url}\"}}\n")).unwrap_or_default(),
        tenant("talks", KEYS[0], "rpm: 1000000, tpm: 4000000000, concurrent: 100000"),
        tenant("probes", KEYS[1], "rpm: 1000000"),
        tenant("floods", KEYS[2], &format!("rpm: {}", arguments.rpm)),
        engines.iter().map(entry).collect::<String>()
    )
}
