//! Three engines alike, each a process, and the real `warmgate` program in front of them.

use std::time::Instant;

use crate::engine_process::{EngineParams, EngineProcess, free_ports};
use crate::launch::{Launched, launch};
use crate::program::program;

const NAMES: [&str; 3] = ["n1", "n2", "n3"];

/// One engine alone serves all conversations, some of which then wait: what is measured is what faults cost,
/// not what too few engines do.
const SLOTS: u32 = 20;
const ENGINE_QUEUE: f64 = 0.5;
const PREFILL_TOKENS_PER_S: f64 = 1_000_000.0;
const DECODE_TOKENS_PER_S: f64 = 25.0;
/// So few that they are reached before the run, see `prelude`.
const MAX_SESSIONS: usize = 5_000;
pub const ANSWER_TOKENS: u32 = 60;

pub struct Rig {
    pub engines: Vec<EngineProcess>,
    pub gate: Launched,
    pub began: Instant,
}

impl Rig {
    pub async fn start() -> Rig {
        let engines: Vec<EngineProcess> = NAMES.iter().zip(free_ports(NAMES.len())).map(engine).collect();
        let gate = launch(&program(), &configuration(&engines)).await;
        assert_eq!(gate.state, "ready", "warmgate's log:\n{}", gate.log());
        Rig { engines, gate, began: Instant::now() }
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

/// Nothing of failure handling differs from the defaults.
fn configuration(engines: &[EngineProcess]) -> String {
    let entry = |engine: &EngineProcess| {
        let (name, address) = (engine.name(), engine.address());
        format!("  - {{name: {name}, url: \"http://{address}\", engine: ollama, slots: {SLOTS}}}\n")
    };
    format!(
        "listen: [{{address: \"127.0.0.1:0\"}}]\n\
         admin: {{address: \"127.0.0.1:0\"}}\n\
         log: {{access: \"off\"}}\n\
         admission: {{engine_queue: {ENGINE_QUEUE}}}\n\
         affinity: {{max_sessions: {MAX_SESSIONS}}}\n\
         upstreams:\n{}",
        engines.iter().map(entry).collect::<String>()
    )
}
