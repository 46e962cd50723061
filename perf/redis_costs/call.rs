//! The calls, as `edge::cluster` makes them.

use redis::aio::MultiplexedConnection;
use redis::{Client, Cmd, Script};
use serde::Serialize;

use crate::info;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A pin.
    Store,
    /// The end before is kept for a shorter time.
    Shorten,
    /// A pin that is not known, of a conversation of eight messages.
    LookUp,
    Take,
    Settle,
}

#[derive(Serialize)]
pub struct Cost {
    pub call: String,
    calls: usize,
    /// Of Redis' one thread for commands, by its own watch.
    pub command_us: f64,
    /// Of the whole process, with what it takes to read and write.
    pub process_us: f64,
    pub bytes_in: f64,
    pub bytes_out: f64,
}

/// Calls of many requests that are under way at once.
const AT_ONCE: usize = 50;
const TENANTS: usize = 100;
const TTL_MS: u64 = 900_000;
const ENDS: u64 = 8;

const WINDOW: &str = include_str!("../../src/edge/cluster/window.lua");
const TAKE: &str = include_str!("../../src/edge/cluster/take.lua");
const SETTLE: &str = include_str!("../../src/edge/cluster/settle.lua");

fn pin(session: usize, end: u64) -> String {
    // Hashes are sixteen digits, whatever they are of.
    let root = (session as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("warmgate:pin:{{{root:016x}}}:{:016x}", root ^ (end + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9))
}

fn store(session: usize, end: u64) -> Cmd {
    let mut command = redis::cmd("SET");
    let value = format!("{:016x} 3 1700000000000 {:x}", session as u64 ^ 0x1234_5678_9abc_def0, u64::MAX / 3 - end);
    command.arg(pin(session, end)).arg(value).arg("PX").arg(TTL_MS);
    command
}

/// So many ends of each session.
pub async fn pins(connection: &mut MultiplexedConnection, sessions: usize, ends: u64) {
    for first in (0..sessions).step_by(200) {
        let mut all = redis::pipe();
        for session in first..(first + 200).min(sessions) {
            for end in 0..ends {
                all.add_command(store(session, end)).ignore();
            }
        }
        let _: () = all.query_async(connection).await.expect("an answer");
    }
}

/// Of the accounts that the calls have made, the mean.
pub async fn account_bytes(connection: &mut MultiplexedConnection) -> u64 {
    let mut all = 0;
    for what in ["use", "run"] {
        let key = format!("warmgate:{what}:{{{:016x}}}", 1);
        let bytes: Option<u64> =
            redis::cmd("MEMORY").arg("USAGE").arg(key).query_async(connection).await.expect("an answer");
        all += bytes.unwrap_or(0);
    }
    all
}

impl Call {
    pub const ALL: [Call; 5] = [Call::Store, Call::Shorten, Call::LookUp, Call::Take, Call::Settle];

    fn name(self) -> &'static str {
        match self {
            Call::Store => "SET of a pin",
            Call::Shorten => "PEXPIRE of the end before",
            Call::LookUp => "MGET of 8 ends",
            Call::Take => "take from a limit",
            Call::Settle => "settle it",
        }
    }

    /// As Redis counts it.
    fn command(self) -> &'static str {
        match self {
            Call::Store => "set",
            Call::Shorten => "pexpire",
            Call::LookUp => "mget",
            Call::Take | Call::Settle => "evalsha",
        }
    }

    pub async fn measured(self, connection: &mut MultiplexedConnection, calls: usize) -> Cost {
        let hash = match self {
            Call::Take => loaded(connection, &[WINDOW, TAKE].concat()).await,
            Call::Settle => loaded(connection, &[WINDOW, SETTLE].concat()).await,
            _ => String::new(),
        };
        let watch = Watch::start(connection, self.command()).await;
        for first in (0..calls).step_by(AT_ONCE) {
            let mut all = redis::pipe();
            for n in first..(first + AT_ONCE).min(calls) {
                all.add_command(self.made(n, &hash)).ignore();
            }
            let _: () = all.query_async(connection).await.expect("an answer");
        }
        watch.stop(connection, self.name().to_owned(), calls).await
    }

    fn made(self, n: usize, hash: &str) -> Cmd {
        let tenant = n % TENANTS;
        match self {
            Call::Store => store(n, 1),
            Call::Shorten => {
                let mut command = redis::cmd("PEXPIRE");
                command.arg(pin(n, 1)).arg(60_000);
                command
            }
            Call::LookUp => {
                let mut command = redis::cmd("MGET");
                for end in 0..ENDS {
                    command.arg(pin(n, end));
                }
                command
            }
            Call::Take => scripted(hash, tenant, &[n as u64, 3, 2, 1_000_000_000, 4_000_000_000, 100_000, 700, 0]),
            Call::Settle => scripted(hash, tenant, &[n as u64, 2, 0, 0, 0, 0, 0, 300]),
        }
    }
}

async fn loaded(connection: &mut MultiplexedConnection, text: &str) -> String {
    let script = Script::new(text);
    script.prepare_invoke().load_async(connection).await.expect("a script that Redis takes")
}

fn scripted(hash: &str, tenant: usize, args: &[u64]) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(hash).arg(2);
    for what in ["use", "run"] {
        command.arg(format!("warmgate:{what}:{{{tenant:016x}}}"));
    }
    command.arg(format!("{:016x}", 7)).arg(args);
    command
}

/// One that all replicas hear.
pub async fn published(client: &Client, connection: &mut MultiplexedConnection, bytes: usize, replicas: usize) -> Cost {
    let mut hearing = tokio::task::JoinSet::new();
    for _ in 0..replicas {
        let mut pubsub = client.get_async_pubsub().await.expect("a connection");
        pubsub.subscribe("warmgate:replicas").await.expect("a channel");
        hearing.spawn(async move {
            let mut messages = pubsub.on_message();
            loop {
                let next = std::future::poll_fn(|context| {
                    futures_core::Stream::poll_next(std::pin::Pin::new(&mut messages), context)
                });
                if next.await.is_none() {
                    return;
                }
            }
        });
    }
    const MESSAGES: usize = 2_000;
    let payload = vec![7u8; bytes];
    let watch = Watch::start(connection, "publish").await;
    for _ in 0..MESSAGES {
        let mut command = redis::cmd("PUBLISH");
        command.arg("warmgate:replicas").arg(&payload);
        let _: usize = command.query_async(connection).await.expect("an answer");
    }
    let cost = watch.stop(connection, format!("PUBLISH of {bytes} bytes to {replicas}"), MESSAGES).await;
    hearing.shutdown().await;
    cost
}

/// Redis' counts before.
struct Watch {
    command: &'static str,
    before: [f64; 4],
}

impl Watch {
    async fn start(connection: &mut MultiplexedConnection, command: &'static str) -> Watch {
        Watch { command, before: counts(connection, command).await }
    }

    async fn stop(self, connection: &mut MultiplexedConnection, call: String, calls: usize) -> Cost {
        let after = counts(connection, self.command).await;
        let each = |at: usize| (after[at] - self.before[at]) / calls as f64;
        let (command_us, process_us) = (each(0), each(1) * 1e6);
        Cost { call, calls, command_us, process_us, bytes_in: each(2), bytes_out: each(3) }
    }
}

async fn counts(connection: &mut MultiplexedConnection, command: &str) -> [f64; 4] {
    [
        info::command_us(connection, command).await,
        info::cpu_s(connection).await,
        info::number(connection, "stats", "total_net_input_bytes").await,
        info::number(connection, "stats", "total_net_output_bytes").await,
    ]
}

impl Cost {
    pub fn print(&self) {
        let Cost { call, calls, command_us, process_us, bytes_in, bytes_out } = self;
        println!("{call:<34}{calls:>9}{command_us:>12.2}{process_us:>12.2}{bytes_in:>10.0}{bytes_out:>10.0}");
    }
}
