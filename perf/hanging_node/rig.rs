//! Five simulated nodes and the real `warmgate` program in front of them.

use std::time::Duration;

use serde_json::{Value, json};
use warmgate::sim::face::NodeParams;
use warmgate::sim::fleet::Fleet;

use crate::client::{Conn, Request};
use crate::door::Door;
use crate::launch::{Launched, launch};
pub use crate::moss::MODEL;
use crate::moss::Moss;
use crate::program::program;

/// The model that only the node holds that will hang.
const ELSEWHERE: &str = "fern:3b";

/// Requests that wait at the node that hangs.
pub const STUCK: usize = 20;

pub struct Rig {
    pub gate: Launched,
    _fleet: Fleet,
    door: Door,
    stuck: Vec<Conn>,
}

impl Rig {
    pub async fn start() -> Rig {
        let names = ["n1", "n2", "n3", "n4"].map(|name| node(name, MODEL));
        let fleet = Fleet::bind(names.into_iter().chain([node("hung", ELSEWHERE)])).expect("free ports");
        fleet.start().expect("five nodes");
        let [open @ .., hung] = fleet.nodes() else { panic!("no nodes") };
        let door = Door::before(hung.address()).await;
        let places = open.iter().map(|node| (node.name(), node.address())).chain([(hung.name(), door.address)]);
        let entries = places.map(|(name, at)| format!("  - {{name: {name}, url: \"http://{at}\", engine: ollama}}\n"));
        let configuration = format!(
            "listen: [{{address: \"127.0.0.1:0\"}}]\n\
             admin: {{address: \"127.0.0.1:0\"}}\n\
             log: {{access: \"off\"}}\n\
             upstreams:\n{}",
            entries.collect::<String>()
        );
        let gate = launch(&program(), &configuration).await;
        assert_eq!(gate.state, "ready", "warmgate's log:\n{}", gate.log());
        Rig { gate, _fleet: fleet, door, stuck: Vec::new() }
    }

    /// One node stops answering whatever it is asked, and requests are stuck at it.
    pub async fn hang(&mut self) {
        self.door.shut();
        for _ in 0..STUCK {
            let mut conn = Conn::open(self.gate.address).await;
            conn.send(&chat(ELSEWHERE)).await;
            self.stuck.push(conn);
        }
        while self.in_flight().await < STUCK as u64 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn in_flight(&self) -> u64 {
        let conn = Conn::open(self.gate.admin).await;
        let status: Value = conn.exchange(&Request::get_as("localhost", "/fleet/status")).await.json().await;
        status["in_flight"].as_u64().expect("in_flight")
    }
}

pub fn chat(model: &str) -> Request {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "hello"}]});
    Request::post("/api/chat", body.to_string())
}

/// A node that answers with one token as fast as it can.
fn node(name: &str, model: &str) -> NodeParams {
    let moss = Moss {
        slots: 4,
        prefill_tokens_per_s: 1e6,
        decode_tokens_per_s: 1e4,
        conversations_cached: 4,
        context_tokens: 8_192,
        answer_tokens: 1,
    };
    moss.node(name, model)
}
