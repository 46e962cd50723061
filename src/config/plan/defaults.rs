//! What holds where a configuration says nothing. `conf/warmgate.yaml` shows the same, and a test holds the two
//! together.

use std::net::Ipv4Addr;

use super::*;
use crate::routing::fleet::EXTERNALITY_WEIGHT;

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            listen: vec![Listen::plain(loopback(11435))],
            admin: Admin { address: loopback(9435), token: None, tls: None },
            upstreams: Vec::new(),
            is_guess: false,
            models: Vec::new(),
            routing: Routing {
                policy: Policy::Fleet,
                externality_weight: EXTERNALITY_WEIGHT,
                option_guard: OptionGuard::Warn,
                signals: Signals::default(),
            },
            affinity: Affinity::default(),
            admission: Admission::default(),
            resilience: Resilience::default(),
            timeouts: Timeouts::default(),
            health: Health::default(),
            telemetry: Telemetry { interval: Span::from_secs(2), stale_after: Span::from_secs(15) },
            limits: Limits::default(),
            cors: Cors::default(),
            usage_probe: UsageProbe::Off,
            management: false,
            routing_headers: true,
            trusted_peers: TrustedPeers::default(),
            tenants: Vec::new(),
            jwt: None,
            cache_salt: false,
            cache_salt_key: None,
            cluster: None,
            server: Server { threads: 0, upgrade_sock: None, pid_file: None },
            shutdown: Shutdown { grace: minutes(5) },
            log: Log { access: AccessLog::Json },
            tracing: Tracing { otlp: None, sample: 1.0 },
            state_file: None,
        }
    }
}

impl Default for Affinity {
    fn default() -> Affinity {
        let headers = ["x-session-id", "x-openwebui-chat-id", "x-claude-code-session-id", "session_id"];
        Affinity { headers: headers.map(HeaderName::from_static).into(), ttl: minutes(15), max_sessions: 100_000 }
    }
}

impl Default for Admission {
    fn default() -> Admission {
        Admission {
            engine_queue: 1.0,
            max_queue: 512,
            queue_timeout: minutes(10),
            priorities: Priorities { interactive: 3, batch: 1 },
            reserve_for_interactive: 0.0,
        }
    }
}

impl Default for Resilience {
    fn default() -> Resilience {
        Resilience {
            attempts: 3,
            max_fallbacks: 5,
            breaker: Breaker::default(),
            slow_start: Span::from_secs(30),
            resume_streams: false,
        }
    }
}

impl Default for Breaker {
    fn default() -> Breaker {
        Breaker { failures: 3, window: Span::from_secs(60), cooldown: Span::from_secs(10), max_cooldown: minutes(5) }
    }
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            connect: Span::from_secs(2),
            first_byte: minutes(15),
            idle: minutes(5),
            client_write: Span::from_secs(60),
            heartbeat: Heartbeat(None),
        }
    }
}

impl Default for Health {
    fn default() -> Health {
        Health { interval: Span::from_secs(5), timeout: Span::from_secs(5), unhealthy_after: 2, healthy_after: 2 }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { body: ByteSize(128 << 20), memory_for_bodies: ByteSize(1 << 30), header_read: Span::from_secs(30) }
    }
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

const fn minutes(minutes: u64) -> Span {
    Span::from_secs(minutes * 60)
}
