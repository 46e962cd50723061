//! A managing call that the proxy carries to its one node.
//!
//! It is sent once, on a connection that nobody used before, and the node's answer is the client's,
//! whatever its status.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use pingora_core::upstreams::peer::HttpPeer;

use super::aftermath::{Aftermath, relist};
use super::{Call, Permit, Unmanaged};
use crate::edge::ingress::Ingress;
use crate::edge::node::Node;
use crate::edge::refusal::Refusal;
use crate::edge::replay::Patience;
use crate::wire::progress::Progress;

pub struct Carried {
    pub node: Arc<Node>,
    /// `None`: it streams through.
    pub body: Option<Bytes>,
    /// Of a call whose answer is a stream that has to say how it ended.
    progress: Option<Progress>,
    aftermath: Aftermath,
    _permit: Option<Permit>,
}

/// How a carried call's answer ended.
pub enum Ended {
    Well,
    /// Its stream says that it failed.
    InError,
    /// Its stream says nothing of an end.
    Unsaid,
}

impl Carried {
    pub(super) fn new(
        node: Arc<Node>,
        call: Call,
        body: Option<Bytes>,
        aftermath: Aftermath,
        permit: Option<Permit>,
    ) -> Carried {
        let streams = matches!(call, Call::Pull | Call::Push | Call::Create);
        Carried { node, body, progress: streams.then(Progress::default), aftermath, _permit: permit }
    }

    /// With a connection of its own: a kept one may have gone stale, and nothing is sent twice.
    pub fn alone(&self, mut peer: HttpPeer, ingress: &Ingress) -> HttpPeer {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        peer.group_key = NEXT.fetch_add(1, Ordering::Relaxed);
        peer.options.read_timeout = patience(ingress).idle;
        peer
    }

    pub fn patience(&self, ingress: &Ingress) -> Patience {
        patience(ingress)
    }

    pub fn failed(&self) -> Refusal {
        Refusal::Managing(Unmanaged::NodeFailed { node: self.node.name.clone() })
    }

    /// Bytes of the answer, as they go by.
    pub fn pass(&mut self, chunk: &[u8]) {
        if let Some(progress) = &mut self.progress {
            progress.feed(chunk, "", |_| ());
        }
    }

    pub fn in_line(&self) -> bool {
        self.progress.as_ref().is_some_and(Progress::in_line)
    }

    /// The answer is over: learns what it changed, if it worked.
    pub fn end(&mut self, ingress: &Arc<Ingress>, status: u16) -> Ended {
        let succeeded = (200..300).contains(&status);
        let ended = match &mut self.progress {
            Some(progress) if succeeded => {
                progress.finish("", |_| ());
                match progress.end() {
                    Some(Ok(())) => Ended::Well,
                    Some(Err(_)) => Ended::InError,
                    None => Ended::Unsaid,
                }
            }
            _ => Ended::Well,
        };
        if succeeded && matches!(ended, Ended::Well) && self.aftermath.learn(ingress, &self.node) {
            let (ingress, node) = (ingress.clone(), self.node.clone());
            tokio::spawn(async move { relist(&ingress, node).await });
        }
        ended
    }
}

/// A node may work for long on one step of a call, as it does on loading a model: the longest of the
/// limits on silence holds, and none on the whole.
fn patience(ingress: &Ingress) -> Patience {
    let silence = super::silence_max(ingress);
    Patience { first_byte: Some(silence), idle: Some(silence) }
}
