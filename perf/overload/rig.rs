//! Three engines alike, each a process, and the real `warmgate` program in front of them.

use std::time::Duration;

use crate::engine_process::{EngineParams, EngineProcess, free_ports};
use crate::launch::{Launched, launch};
use crate::program::program;

const NAMES: [&str; 3] = ["n1", "n2", "n3"];
const SLOTS: u32 = 16;
pub const PROMPT_TOKENS: usize = 1_000;
pub const ANSWER_TOKENS: u32 = 80;
/// A small part of an engine's time. The simulated one computes prompts one after the other, so that whoever comes
/// during another's prefill waits for it, whatever is done here: at 20,000 the share of time was 15 % beside
/// batch, and the interactive p95 was 40 ms of the engine's own above 57.
const PREFILL_TOKENS_PER_S: f64 = 40_000.0;
const DECODE_TOKENS_PER_S: f64 = 20.0;

pub const QUEUE_TIMEOUT: Duration = Duration::from_secs(10);
pub const MAX_QUEUE: usize = 128;

pub struct Rig {
    pub engines: Vec<EngineProcess>,
    pub gate: Launched,
}

/// Answers a second that the engines can do: each slot gives its prompt's prefill and then an answer.
pub fn capacity_per_s() -> f64 {
    let prefill_s = PROMPT_TOKENS as f64 / PREFILL_TOKENS_PER_S;
    let decode_s = f64::from(ANSWER_TOKENS) / DECODE_TOKENS_PER_S;
    (NAMES.len() as f64) * f64::from(SLOTS) / (prefill_s + decode_s)
}

impl Rig {
    pub async fn start(reserve: f64) -> Rig {
        let engines: Vec<EngineProcess> = NAMES.iter().zip(free_ports(NAMES.len())).map(engine).collect();
        let gate = launch(&program(), &configuration(&engines, reserve)).await;
        assert_eq!(gate.state, "ready", "warmgate's log:\n{}", gate.log());
        Rig { engines, gate }
    }
}

fn engine((name, port): (&&str, u16)) -> EngineProcess {
    let params = EngineParams {
        name: (*name).to_owned(),
        port,
        slots: SLOTS,
        prefill_tokens_per_s: PREFILL_TOKENS_PER_S,
        decode_tokens_per_s: DECODE_TOKENS_PER_S,
        answer_tokens: ANSWER_TOKENS,
    };
    EngineProcess::start(params).expect("an engine")
}

fn configuration(engines: &[EngineProcess], reserve: f64) -> String {
    let entry = |engine: &EngineProcess| {
        let (name, address) = (engine.name(), engine.address());
        format!("  - {{name: {name}, url: \"http://{address}\", engine: ollama, slots: {SLOTS}}}\n")
    };
    format!(
        "listen: [{{address: \"127.0.0.1:0\"}}]\n\
         admin: {{address: \"127.0.0.1:0\"}}\n\
         log: {{access: \"off\"}}\n\
         admission: {{queue_timeout: {}s, max_queue: {MAX_QUEUE}, reserve_for_interactive: {reserve}}}\n\
         upstreams:\n{}",
        QUEUE_TIMEOUT.as_secs(),
        engines.iter().map(entry).collect::<String>()
    )
}
