//! Three simulated nodes alike and the real `warmgate` program in front of them.

use warmgate::sim::face::{Node, NodeParams, Record};
use warmgate::sim::fleet::Fleet;

use crate::launch::{Launched, launch};
pub use crate::moss::MODEL;
use crate::moss::Moss;
use crate::plan::ANSWER_TOKENS;
use crate::program::program;

pub const SLOTS: u32 = 4;

pub struct Rig {
    fleet: Fleet,
    pub gate: Launched,
}

impl Rig {
    pub async fn start(policy: &str) -> Rig {
        let fleet = Fleet::bind(["n1", "n2", "n3"].map(node)).expect("free ports");
        fleet.start().expect("three nodes");
        let gate = launch(&program(), &configuration(&fleet, policy)).await;
        assert_eq!(gate.state, "ready", "warmgate's log:\n{}", gate.log());
        Rig { fleet, gate }
    }

    /// The node's own record of a request.
    pub fn record(&self, node: &str, request_id: &str) -> Option<Record> {
        let node = self.fleet.nodes().iter().find(|n| n.name() == node)?;
        let mut records = node.records().into_iter();
        records.find(|r| r.request_id.as_deref() == Some(request_id))
    }
}

fn configuration(fleet: &Fleet, policy: &str) -> String {
    let entry = |node: &Node| {
        let (name, url) = (node.name(), node.url());
        format!("  - {{name: {name}, url: \"{url}\", engine: ollama, slots: {SLOTS}}}\n")
    };
    format!(
        "listen: [{{address: \"127.0.0.1:0\"}}]\n\
         admin: {{address: \"127.0.0.1:0\"}}\n\
         log: {{access: \"off\"}}\n\
         routing: {{policy: {policy}}}\n\
         upstreams:\n{}",
        fleet.nodes().iter().map(entry).collect::<String>(),
    )
}

fn node(name: &str) -> NodeParams {
    let moss = Moss {
        slots: SLOTS,
        prefill_tokens_per_s: 2_000.0,
        decode_tokens_per_s: 100.0,
        conversations_cached: 64,
        context_tokens: 8_192,
        answer_tokens: ANSWER_TOKENS as u32,
    };
    moss.node(name, MODEL)
}
