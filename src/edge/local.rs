//! The paths that Warmgate answers itself, from memory, in the forms clients expect.
//!
//! A dead node delays none of them: lists come from the last good reading of each node that is up.

use bytes::Bytes;
use pingora_core::Result;
use pingora_proxy::Session;
use serde_json::{Value, json};

use super::answer;
use super::ingress::Ingress;
use super::lists::List;
use super::route::Local;
use super::tenants::Tenant;
use crate::routing::ask::Dialect;
use crate::wire;

/// The version of Ollama whose API is spoken here. Clients parse it as dotted numbers and compare.
const OLLAMA_API_VERSION: &str = "0.33.0";

/// A tenant sees what it may use.
pub async fn serve(ingress: &Ingress, session: &mut Session, local: Local, tenant: Option<&Tenant>) -> Result<()> {
    let lists = ingress.lists.latest();
    let seen = |all: &List| match tenant.filter(|tenant| !tenant.may_use_all()) {
        Some(tenant) => all.only(|name| tenant.may_use(name)),
        None => all.whole(),
    };
    let may_see = |id: &str| tenant.is_none_or(|tenant| tenant.may_use(id));
    match local {
        Local::Root => answer::write(session, 200, "text/plain; charset=utf-8", b"Ollama is running".to_vec()).await,
        Local::Version => answer::json(session, 200, &version(ingress)).await,
        Local::Healthz => answer::json(session, 200, &json!({"status": "alive"})).await,
        Local::Readyz => ready(ingress, session).await,
        Local::Tags => list(session, seen(&lists.tags)).await,
        Local::Ps => list(session, seen(&lists.ps)).await,
        Local::Models => list(session, seen(&lists.openai)).await,
        Local::Model(id) => match lists.openai_model(&id).filter(|_| may_see(&id)) {
            Some(model) => list(session, model).await,
            None => {
                let body = wire::error::body(Dialect::OpenAi, 404, "no such model; GET /v1/models lists what there is");
                answer::write(session, 404, "application/json", body).await
            }
        },
    }
}

async fn list(session: &mut Session, list: Bytes) -> Result<()> {
    answer::write(session, 200, "application/json", list).await
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
