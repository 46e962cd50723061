//! One simulated node on a free port of this machine, to stand beside real engines.
//!
//! The arguments are the kind of engine that it passes for and the model that it serves; a node of
//! Ollama's kind has the models of the demo. Prints its address when it listens and runs until it is ended.

use std::io;

use warmgate::sim::face::{Kind, NodeParams};
use warmgate::sim::fleet::{Fleet, batching_node, demo_node};

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let node = node(&arguments).ok_or_else(|| io::Error::other("usage: sim_node ollama | KIND MODEL"))?;
    let fleet = Fleet::bind([node])?;
    fleet.start()?;
    for node in fleet.nodes() {
        println!("{}", node.url());
    }
    std::future::pending().await
}

fn node(arguments: &[String]) -> Option<NodeParams> {
    match arguments {
        [kind] if kind == Kind::ollama().name => Some(demo_node("sim")),
        [kind, model] => Some(batching_node(Kind::find(kind)?, "sim", model)),
        _ => None,
    }
}
