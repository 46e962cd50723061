//! What the calls of a cluster cost a real Redis: its time, the bytes of each, and what a session takes of its memory.
//!
//! Starts a `redis-server` of its own, makes each kind of call so often in the form in which `edge::cluster` makes it,
//! and reads Redis' own counts (`INFO commandstats`, `stats`, `cpu`, `memory`) before and after. What it comes to for
//! the plan of `--example scale` is reckoned from these.
//!
//! ```text
//! cargo run --release --example redis_costs
//! ```

#[path = "../../tests/it/patience.rs"]
#[allow(dead_code)]
mod patience;
#[path = "../provenance.rs"]
mod provenance;
#[path = "../../tests/it/redis_server.rs"]
#[allow(dead_code)]
mod redis_server;
#[path = "../results.rs"]
#[allow(dead_code)]
mod results;

mod call;
mod info;
mod plan;

use clap::Parser;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};
use serde_json::json;

use call::{Call, Cost};
use redis_server::RedisServer;

/// What do the calls of a cluster cost Redis?
#[derive(Parser, Clone, Debug)]
struct Arguments {
    /// Calls of each kind.
    #[arg(long, default_value_t = 100_000)]
    calls: usize,
    /// Sessions whose memory is measured.
    #[arg(long, default_value_t = 100_000)]
    sessions: usize,
    /// Who hears what is published.
    #[arg(long, default_value_t = 50)]
    replicas: usize,
    /// Of a message with turns alone, and of one with the counts of all nodes, for the part that is reckoned; from the
    /// result of `--example scale`.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000])]
    message_bytes: Vec<usize>,
    #[arg(long, default_value = "")]
    note: String,
    /// Writes no result files.
    #[arg(long)]
    dry: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments = Arguments::parse();
    let (commit, load_before) = (provenance::commit(), provenance::load());
    let redis = RedisServer::start().await;
    let client = Client::open(redis.direct_url()).expect("an address");
    // However busy the machine is, what is measured is Redis' own count.
    let patient = AsyncConnectionConfig::new().set_response_timeout(None);
    let connecting = client.get_multiplexed_async_connection_with_config(&patient);
    let mut connection = connecting.await.expect("a connection");

    let session_bytes = session_bytes(&mut connection, arguments.sessions).await;
    println!("a session takes {:.0} bytes, and {:.0} while the end before is kept", session_bytes[0], session_bytes[1]);
    let mut costs = Vec::new();
    for call in Call::ALL {
        costs.push(call.measured(&mut connection, arguments.calls).await);
    }
    for bytes in &arguments.message_bytes {
        costs.push(call::published(&client, &mut connection, *bytes, arguments.replicas).await);
    }
    println!(
        "{:<34}{:>9}{:>12}{:>12}{:>10}{:>10}",
        "call", "calls", "command us", "process us", "bytes in", "bytes out"
    );
    costs.iter().for_each(Cost::print);
    let account_bytes = call::account_bytes(&mut connection).await;
    println!("a tenant's account takes {account_bytes} bytes");
    let whole = plan::whole(&costs, session_bytes);
    whole.iter().for_each(|(what, value)| println!("{what:<58}{value:>14.1}"));
    if !arguments.dry {
        let result = json!({
            "run": "redis_costs",
            "date": provenance::date(),
            "machine": provenance::machine(),
            "commit": commit,
            "load_before": load_before,
            "redis": info::text(&mut connection, "server", "redis_version").await,
            "again_if": "edge/cluster changes, or another Redis is used",
            "note": arguments.note,
            "session_bytes": session_bytes[0],
            "session_bytes_with_the_end_before": session_bytes[1],
            "account_bytes": account_bytes,
            "calls": costs,
            "of_20000_requests_a_second": whole.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
        });
        results::keep("redis_costs", &result, None);
    }
}

/// Memory of a session: with its latest end alone, and while the one before is there as well.
async fn session_bytes(connection: &mut MultiplexedConnection, sessions: usize) -> [f64; 2] {
    let before = info::number(connection, "memory", "used_memory").await;
    call::pins(connection, sessions, 1).await;
    let one = info::number(connection, "memory", "used_memory").await;
    call::pins(connection, sessions, 2).await;
    let two = info::number(connection, "memory", "used_memory").await;
    let _: () = redis::cmd("FLUSHALL").query_async(connection).await.expect("an answer");
    [(one - before) / sessions as f64, (two - before) / sessions as f64]
}
