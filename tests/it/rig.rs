//! The gate and nodes that most tests start from, so that a test shows only what it is about.

use crate::client::Reply;
use crate::gate::{Gate, Settings};
use crate::talk::{Dialect, MODEL, Talk};
use crate::upstream::{Model, Upstream};

/// A gate over one node that holds the model.
pub struct Single {
    pub gate: Gate,
    pub node: Upstream,
}

impl Single {
    pub async fn new() -> Single {
        Single::with("").await
    }

    /// With further configuration.
    pub async fn with(yaml: &str) -> Single {
        let node = node("n1").await;
        let gate = Gate::start(&Settings::over(&[&node]).more(yaml)).await;
        Single { gate, node }
    }
}

/// A gate over two nodes alike, and a conversation that one of them has answered once.
pub struct Pair {
    pub gate: Gate,
    /// The node that holds the conversation.
    pub home: Upstream,
    pub away: Upstream,
    pub talk: Talk,
}

impl Pair {
    pub async fn new(dialect: Dialect) -> Pair {
        Pair::with(dialect, "").await
    }

    /// With further configuration.
    pub async fn with(dialect: Dialect, yaml: &str) -> Pair {
        let [n1, n2] = [node("n1").await, node("n2").await];
        let gate = Gate::start(&Settings::over(&[&n1, &n2]).more(yaml)).await;
        let talk = Talk::about(dialect, "moss");
        let opening = finished(&gate, &talk).await;
        let at_first = opening.node() == n1.name();
        let (home, away) = if at_first { (n1, n2) } else { (n2, n1) };
        let talk = talk.then("And where?");
        Pair { gate, home, away, talk }
    }
}

/// An Ollama node with the model in memory.
pub async fn node(name: &str) -> Upstream {
    Upstream::ollama(name, vec![Model::resident(MODEL)]).await
}

/// The answer to the conversation's next question, read to its end.
pub async fn finished(gate: &Gate, talk: &Talk) -> Reply {
    let mut reply = gate.send(&talk.ask()).await;
    reply.whole().await;
    reply
}
