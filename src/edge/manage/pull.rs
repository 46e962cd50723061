//! A pull at several nodes, with one stream of progress.
//!
//! Lines are passed on as they come, each with its node; a node whose lines the client does not read in
//! time waits. The last line is `success` if every node came to it, else an error that names who did not.
//! When the client leaves every node's connection closes; a later pull goes on where this one ended.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use pingora::http::ResponseHeader;
use pingora_proxy::Session;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::aftermath::{Aftermath, relist};
use super::ask::{Patience, Question};
use super::{Sent, Unmanaged, gone, gone_in_writing, silence_max};
use crate::edge::answer;
use crate::edge::exchange::Exchange;
use crate::edge::ingress::Ingress;
use crate::edge::node::Node;
use crate::edge::refusal::Refusal;
use crate::edge::verdict;
use crate::routing::placement::Place;
use crate::wire::progress::{Failure, Progress, Told, Verdict, last_line, sum_up};

/// Lines of progress that wait for the client, over all nodes.
const LINES_MAX: usize = 16;

pub(super) async fn answer(
    session: &mut Session,
    exchange: &mut Exchange,
    request: &Sent,
    whom: Vec<(Arc<Node>, Place)>,
) -> Result<(), Refusal> {
    let (lines, mut progress) = mpsc::channel(LINES_MAX);
    let mut pulling = JoinSet::new();
    for (place, (node, at)) in whom.into_iter().enumerate() {
        let (ingress, lines) = (exchange.ingress.clone(), lines.clone());
        let question = Question {
            method: Method::POST,
            path: "/api/pull".into(),
            body: request.body_for(&at),
            hops: request.hops,
        };
        let aftermath = Aftermath::of(request, &at);
        pulling.spawn(async move { (place, pull(&ingress, node, question, aftermath, lines).await) });
    }
    drop(lines);

    let mut begun = false;
    loop {
        let line = tokio::select! {
            biased;
            line = progress.recv() => line,
            left = session.downstream_session.read_body_or_idle(true) => return Err(gone(left)),
        };
        let Some(line) = line else { break };
        if request.managed.stream {
            if !begun {
                begin(session, exchange).await?;
                begun = true;
            }
            write(session, line, false).await?;
        }
    }
    // Every sender is gone, so every pull has come to its end.
    let mut told: Vec<(usize, Told)> = Vec::new();
    while let Some(one) = pulling.join_next().await {
        told.extend(one.ok());
    }
    told.sort_by_key(|(place, _)| *place);
    let told: Vec<Told> = told.into_iter().map(|(_, told)| told).collect();
    let verdict = sum_up(request.call.done(), &told);
    match (&verdict, begun) {
        (Verdict::Failed { status, message }, false) => {
            Err(Refusal::Managing(Unmanaged::Summed { status: *status, message: message.clone() }))
        }
        (_, true) => {
            exchange.managed(
                200,
                if verdict == Verdict::Done { verdict::Verdict::Ok } else { verdict::Verdict::StreamError },
            );
            write(session, last_line(&verdict), true).await
        }
        (Verdict::Done, false) => {
            exchange.managed(200, verdict::Verdict::Ok);
            let nodes = exchange.nodes_told();
            let written = answer::managed(session, last_line(&verdict), &exchange.request_id, nodes).await;
            written.map_err(gone_in_writing)
        }
    }
}

async fn begin(session: &mut Session, exchange: &Exchange) -> Result<(), Refusal> {
    let head = || -> pingora_core::Result<ResponseHeader> {
        let mut head = ResponseHeader::build(200, Some(6))?;
        head.insert_header("content-type", "application/x-ndjson")?;
        head.insert_header("cache-control", "no-cache")?;
        head.insert_header("x-accel-buffering", "no")?;
        head.insert_header("x-request-id", &exchange.request_id)?;
        if let Some(nodes) = exchange.nodes_told() {
            head.insert_header("x-fleet-node", nodes)?;
        }
        if session_is_h1_1(session) {
            head.insert_header("transfer-encoding", "chunked")?;
        }
        Ok(head)
    };
    let head = head().map_err(|_| Refusal::Internal)?;
    session.write_response_header(Box::new(head), false).await.map_err(gone_in_writing)
}

/// HTTP/1.0 ends the answer with its connection, HTTP/2 frames it itself.
fn session_is_h1_1(session: &Session) -> bool {
    session.req_header().version == http::Version::HTTP_11
}

async fn write(session: &mut Session, bytes: Vec<u8>, is_last: bool) -> Result<(), Refusal> {
    session.write_response_body(Some(Bytes::from(bytes)), is_last).await.map_err(gone_in_writing)
}

async fn pull(
    ingress: &Arc<Ingress>,
    node: Arc<Node>,
    question: Question,
    aftermath: Aftermath,
    lines: mpsc::Sender<Vec<u8>>,
) -> Told {
    let result = follow(ingress, &node, question, lines).await;
    let name = node.name.clone();
    if result.is_ok() && aftermath.learn(ingress, &node) {
        relist(ingress, node).await;
    }
    Told { node: name, result }
}

async fn follow(
    ingress: &Ingress,
    node: &Node,
    question: Question,
    lines: mpsc::Sender<Vec<u8>>,
) -> Result<(), Failure> {
    let patience = Patience { connect: ingress.plan().timeouts.connect.0, silence: silence_max(ingress) };
    let mut answer = ingress.managing.asker.ask(node, question, patience).await?;
    if answer.status != 200 {
        let status = answer.status;
        return Err(Failure::of_answer(status, &answer.whole().await?));
    }
    let mut progress = Progress::default();
    let mut found = Vec::new();
    while let Some(chunk) = answer.next().await? {
        progress.feed(&chunk, &node.name, |line| found.push(line));
        for line in found.drain(..) {
            // Nobody listens any more only when the client has left, and then this is dropped.
            let _ = lines.send(line).await;
        }
    }
    progress.finish(&node.name, |line| found.push(line));
    for line in found {
        let _ = lines.send(line).await;
    }
    match progress.end() {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => Err(Failure { status: None, reason: error.clone() }),
        None => Err(Failure::silent("its progress broke off")),
    }
}
