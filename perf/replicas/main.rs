//! The load run of replicas: is a fleet as warm behind three Warmgates as behind one, and does Redis matter?
//!
//! Simulated engines in processes of their own behind one replica, and then behind three that agree over a real
//! `redis-server`, which is killed for a while and started again, empty. Clients send each turn by any replica. Beside
//! them probes ask small things of which nobody knows anything, so that each makes a replica ask Redis all that it
//! can; and a tenant floods all replicas with more than its limit allows. Prints a table, keeps it under
//! `perf/results`, and fails if a target is missed. Every process that it starts ends with it.
//!
//! ```text
//! cargo build --release && cargo run --release --example replicas
//! ```

#[path = "../kit.rs"]
mod kit;
#[path = "../patience.rs"]
mod patience;
#[path = "../../tests/it/redis_server.rs"]
#[allow(dead_code)]
mod redis_server;

mod clients;
mod rig;
mod summary;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;

use clients::Clients;
use kit::*;
use redis_server::RedisServer;
use rig::Rig;
use summary::{Phase, Summary};

/// Three replicas over one Redis, which is killed for a while: how warm, how exact, how quick?
#[derive(Parser, Clone, Debug)]
pub struct Arguments {
    /// Conversations at a time.
    #[arg(long, default_value_t = 200)]
    conversations: usize,
    /// Seconds of each phase; Redis is gone for one of them.
    #[arg(long, default_value_t = 30)]
    phase_s: u64,
    /// Probes a second.
    #[arg(long, default_value_t = 50)]
    probes: u64,
    /// Requests a minute that the flooding tenant may make.
    #[arg(long, default_value_t = 600)]
    rpm: usize,
    /// Of texts, pauses and replicas.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What else is to be known of this run.
    #[arg(long, default_value = "")]
    note: String,
    /// Writes no result files.
    #[arg(long)]
    dry: bool,
}

const REPLICAS: usize = 3;

/// Until the first conversations have had their turns.
const WARM_UP: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> ExitCode {
    engine_process::role().await;
    let arguments = Arguments::parse();
    let (commit, load_before) = (provenance::commit(), provenance::load());
    let phase = Duration::from_secs(arguments.phase_s);

    let one = {
        let rig = Rig::start(1, None, &arguments).await;
        let clients = Arc::new(Clients::new(rig.addresses(), &arguments));
        let talking = clients.clone().begin();
        tokio::time::sleep(WARM_UP).await;
        let one = Phase::during("one replica", &clients, phase).await;
        clients.no_more();
        talking.await.expect("the clients");
        one
    };

    let mut redis = RedisServer::start().await;
    let rig = Rig::start(REPLICAS, Some(redis.direct_url()), &arguments).await;
    let clients = Arc::new(Clients::new(rig.addresses(), &arguments));
    let talking = clients.clone().begin();
    tokio::time::sleep(WARM_UP).await;
    let before = Phase::during("three, before", &clients, phase).await;
    let flood = clients::flood(&rig.addresses(), &arguments).await;
    redis.kill().await;
    let during = Phase::during("three, Redis killed", &clients, phase).await;
    redis.restart().await;
    let back = Phase::during("three, Redis back", &clients, phase).await;
    let after = Phase::during("three, after", &clients, phase).await;
    clients.no_more();
    talking.await.expect("the clients");
    let operations = rig.operations().await;

    let summary = Summary { phases: vec![one, before, during, back, after], flood, operations };
    let targets = summary.targets(&arguments);
    summary.print();
    results::print(&targets);
    if !arguments.dry {
        summary.keep(&arguments, [&commit, &load_before], &targets);
    }
    results::exit_code(&targets)
}
