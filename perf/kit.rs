//! What load runs before the real program share: clients, engines as processes, chance with a seed, results.
//!
//! A run takes all of it (`use kit::*`) and uses what it needs.

#![allow(dead_code)]

#[path = "chat.rs"]
pub mod chat;
#[path = "../tests/it/client.rs"]
pub mod client;
#[path = "dice.rs"]
pub mod dice;
#[path = "engine_process.rs"]
pub mod engine_process;
#[path = "../tests/it/http1.rs"]
pub mod http1;
#[path = "../tests/it/gate/launch.rs"]
pub mod launch;
#[path = "moss.rs"]
pub mod moss;
#[path = "numbers.rs"]
pub mod numbers;
#[path = "program.rs"]
pub mod program;
#[path = "provenance.rs"]
pub mod provenance;
#[path = "results.rs"]
pub mod results;
#[path = "usage.rs"]
pub mod usage;
