//! A model of an engine, for a demo without a GPU, for tests and for the simulator.
//!
//! `engine` is pure and lives in virtual time: slots, queue, model loads, prefill, decode, prefix
//! cache. `face` puts it behind real sockets as an Ollama and OpenAI server in real time. `fleet` is
//! the three nodes of `warmgate demo`. Every answer says that it is simulated; nothing in here is
//! ever used for a configured upstream.

pub mod capacity;
pub mod chance;
pub mod engine;
pub mod face;
pub mod fleet;
pub mod peers;
pub mod plan;
pub mod report;
pub mod run;
pub mod simulation;
pub mod workload;
