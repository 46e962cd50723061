//! The paths that Warmgate answers itself, from memory, in the forms clients expect.
//!
//! A dead node delays none of them: lists come from the last good reading of each node that is up.

use std::sync::Arc;

use pingora_core::Result;
use pingora_proxy::Session;
use serde_json::{Value, json};

use super::answer;
use super::catalogue;
use super::ingress::Ingress;
use super::node::Node;
use super::route::Local;
use crate::routing::ask::Dialect;
use crate::wire;

/// The version of Ollama whose API is spoken here. Clients parse it as dotted numbers and compare.
const OLLAMA_API_VERSION: &str = "0.33.0";

pub async fn serve(ingress: &Ingress, session: &mut Session, local: Local) -> Result<()> {
    match local {
        Local::Root => answer::write(session, 200, "text/plain; charset=utf-8", b"Ollama is running".to_vec()).await,
        Local::Version => answer::json(session, 200, &version(ingress)).await,
        Local::Healthz => answer::json(session, 200, &json!({"status": "alive"})).await,
        Local::Readyz => ready(ingress, session).await,
        Local::Tags => answer::json(session, 200, &list(ingress, catalogue::tags)).await,
        Local::Ps => answer::json(session, 200, &list(ingress, catalogue::ps)).await,
        Local::Models => answer::json(session, 200, &list(ingress, catalogue::openai_models)).await,
        Local::Model(id) => match list(ingress, |nodes| catalogue::openai_model(nodes, &id).unwrap_or(Value::Null)) {
            Value::Null => {
                let body = wire::error::body(Dialect::OpenAi, 404, "no such model; GET /v1/models lists what there is");
                answer::write(session, 404, "application/json", body).await
            }
            model => answer::json(session, 200, &model).await,
        },
    }
}

fn version(ingress: &Ingress) -> Value {
    let mut version = json!({"version": OLLAMA_API_VERSION, "warmgate": env!("CARGO_PKG_VERSION")});
    if ingress.simulated {
        version["simulated"] = true.into();
    }
    version
}

async fn ready(ingress: &Ingress, session: &mut Session) -> Result<()> {
    match ingress.readiness() {
        Ok(()) => answer::json(session, 200, &json!({"ready": true})).await,
        Err(reason) => answer::json(session, 503, &json!({"ready": false, "reason": reason})).await,
    }
}

fn list(ingress: &Ingress, merge: impl Fn(&[catalogue::Node]) -> Value) -> Value {
    let up = |node: &&Arc<Node>| ingress.fleet.with(|fleet, _| fleet.upstream(node.id).is_some_and(|up| up.healthy));
    let live: Vec<_> = ingress.nodes.iter().filter(up).map(|node| (node, node.listings.load_full())).collect();
    let nodes: Vec<catalogue::Node> = live
        .iter()
        .map(|(node, listings)| catalogue::Node {
            name: &node.name,
            listings,
            speaks_ollama: node.engine.get().is_some_and(|engine| engine.dialects.contains(&Dialect::Ollama)),
        })
        .collect();
    merge(&nodes)
}
