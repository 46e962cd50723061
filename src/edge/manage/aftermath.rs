//! What a managing call that worked changes in the picture of the fleet.
//!
//! What is certain is learnt at once; for the rest the node is asked again without waiting for its turn,
//! so that lists show what was done.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::{Call, Sent};
use crate::edge::ingress::Ingress;
use crate::edge::node::Node;
use crate::edge::telemetry::Telemetry;
use crate::routing::fleet::UpstreamId;
use crate::routing::placement::Place;
use crate::routing::uploads::Digest;

#[derive(Clone, Debug)]
pub enum Aftermath {
    /// Its list of models is another now.
    Relisted,
    Deleted {
        model: String,
    },
    Unloaded {
        model: String,
    },
    /// A blob is there: its place is remembered from now on.
    Stored {
        digest: Digest,
        client: u64,
        upstream: UpstreamId,
    },
    Nothing,
}

/// How long an answer waits for the node's new list.
const RELIST_MAX: Duration = Duration::from_secs(1);

impl Aftermath {
    pub(super) fn of(request: &Sent, place: &Place) -> Aftermath {
        match request.call {
            Call::Pull | Call::Create | Call::Copy => Aftermath::Relisted,
            Call::Delete => {
                Aftermath::Deleted { model: place.spelling.clone().unwrap_or(request.managed.model.clone()) }
            }
            Call::Push | Call::Blob(_) => Aftermath::Nothing,
        }
    }

    /// Learns at once what is certain; true if the node has to be asked for the rest.
    pub fn learn(&self, ingress: &Ingress, node: &Node) -> bool {
        match self {
            Aftermath::Relisted => true,
            Aftermath::Deleted { model } => {
                ingress.fleet.with(|fleet, _| fleet.learn_deleted(node.id, model));
                true
            }
            Aftermath::Unloaded { model } => {
                ingress.fleet.with(|fleet, now| fleet.learn_unloaded(node.id, model, now));
                true
            }
            Aftermath::Stored { digest, client, upstream } => {
                let now = ingress.fleet.now();
                ingress.managing.uploads.lock().put(*digest, *client, *upstream, now);
                false
            }
            Aftermath::Nothing => false,
        }
    }
}

/// Asks the node what it holds now.
pub async fn relist(ingress: &Ingress, node: Arc<Node>) {
    let plan = ingress.plan();
    let telemetry = Telemetry {
        fleet: ingress.fleet.clone(),
        fetcher: ingress.fetcher.clone(),
        timeout: plan.health.timeout.0,
        interval: plan.telemetry.interval.0,
    };
    // On a task of its own: it is of use to all, even when the client leaves meanwhile.
    let asking = tokio::spawn(async move { telemetry.poll(&node.site).await });
    let _ = timeout(RELIST_MAX, asking).await;
    ingress.lists.catch_up(ingress);
}
