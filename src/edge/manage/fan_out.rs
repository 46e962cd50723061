//! One short call put to several nodes, and one answer.
//!
//! Done when every node did it. Else the answer is an error that names each node that did not, with its
//! reason, and those that did.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use pingora_proxy::Session;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::aftermath::{Aftermath, relist};
use super::ask::{Patience, Question};
use super::{Call, Sent, Unmanaged, while_client_stays};
use crate::edge::answer;
use crate::edge::exchange::Exchange;
use crate::edge::ingress::Ingress;
use crate::edge::node::Node;
use crate::edge::refusal::Refusal;
use crate::edge::verdict;
use crate::routing::placement::Place;
use crate::wire::progress::{Failure, Told, Verdict, forgive_absence, sum_up};

/// For a node to do what takes it a moment: to delete, copy or unload.
const MOMENT_MAX: Duration = Duration::from_secs(30);

/// What one node is asked, and what it means that it did so.
pub struct Part {
    pub node: Arc<Node>,
    pub question: Question,
    pub aftermath: Aftermath,
}

pub(super) async fn answer(
    session: &mut Session,
    exchange: &mut Exchange,
    request: &Sent,
    whom: Vec<(Arc<Node>, Place)>,
) -> Result<(), Refusal> {
    let (method, path) = match request.call {
        Call::Delete => (Method::DELETE, "/api/delete"),
        _ => (Method::POST, "/api/copy"),
    };
    let parts = whom.into_iter().map(|(node, place)| Part {
        question: Question {
            method: method.clone(),
            path: path.into(),
            body: request.body_for(&place),
            hops: request.hops,
        },
        aftermath: Aftermath::of(request, &place),
        node,
    });
    let mut told = put(session, &exchange.ingress, parts.collect()).await?;
    if request.call == Call::Delete {
        forgive_absence(&mut told);
    }
    match sum_up(request.call.done(), &told) {
        Verdict::Done => {
            exchange.managed(200, verdict::Verdict::Ok);
            let nodes = exchange.nodes_told();
            let written = answer::managed(session, Vec::new(), &exchange.request_id, nodes).await;
            written.map_err(super::gone_in_writing)
        }
        Verdict::Failed { status, message } => Err(Refusal::Managing(Unmanaged::Summed { status, message })),
    }
}

/// Asks all at once and waits for all; what worked is learnt before this comes back.
pub async fn put(session: &mut Session, ingress: &Arc<Ingress>, parts: Vec<Part>) -> Result<Vec<Told>, Refusal> {
    let mut asking = JoinSet::new();
    for (place, part) in parts.into_iter().enumerate() {
        let ingress = ingress.clone();
        asking.spawn(async move { (place, ask(&ingress, part).await) });
    }
    let all = async {
        let mut told = Vec::new();
        while let Some(one) = asking.join_next().await {
            told.extend(one.ok());
        }
        told
    };
    let mut told = while_client_stays(session, all).await?;
    told.sort_by_key(|(place, _)| *place);
    Ok(told.into_iter().map(|(_, told)| told).collect())
}

async fn ask(ingress: &Ingress, part: Part) -> Told {
    let Part { node, question, aftermath } = part;
    let patience = Patience { connect: ingress.plan().timeouts.connect.0, silence: MOMENT_MAX };
    let asking = async {
        let answer = ingress.managing.asker.ask(&node, question, patience).await?;
        let status = answer.status;
        let body = answer.whole().await?;
        if (200..300).contains(&status) { Ok(()) } else { Err(Failure::of_answer(status, &body)) }
    };
    let late = || Err(Failure::silent(format!("no answer within {MOMENT_MAX:?}")));
    let result = timeout(MOMENT_MAX, asking).await.unwrap_or_else(|_| late());
    let name = node.name.clone();
    if result.is_ok() && aftermath.learn(ingress, &node) {
        relist(ingress, node).await;
    }
    Told { node: name, result }
}
