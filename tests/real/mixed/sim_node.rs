//! One simulated Ollama node on a free port of this machine, to stand beside real engines.
//!
//! Prints its address when it listens and runs until it is ended.

use std::io;

use warmgate::sim::fleet::{Fleet, demo_node};

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let fleet = Fleet::bind([demo_node("sim")])?;
    fleet.start()?;
    for node in fleet.nodes() {
        println!("{}", node.url());
    }
    std::future::pending().await
}
