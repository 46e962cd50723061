//! The latest receipts, as many as fit into a fixed number of bytes.

use std::collections::VecDeque;
use std::mem::size_of;

use parking_lot::Mutex;

use super::{Attempt, Receipt};
use crate::routing::fleet::UpstreamId;
use crate::routing::runner::Misfit;
use crate::routing::select::{Exclusion, Row};

/// Bytes of receipts that are kept: some eight thousand of a fleet of three nodes, two thousand of a large one.
pub const RECEIPTS_BYTES_MAX: usize = 8 << 20;

#[derive(Default)]
pub struct Receipts {
    ring: Mutex<Ring>,
}

/// Which receipts somebody wants to see, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub limit: usize,
    /// Of this conversation only.
    pub session: Option<String>,
    /// With an attempt at this node only.
    pub node: Option<String>,
}

#[derive(Default)]
struct Ring {
    receipts: VecDeque<Receipt>,
    bytes: usize,
}

impl Receipts {
    pub fn add(&self, receipt: Receipt) {
        self.ring.lock().add(receipt, RECEIPTS_BYTES_MAX);
    }

    pub fn find(&self, request_id: &str) -> Option<Receipt> {
        self.ring.lock().receipts.iter().rev().find(|receipt| receipt.request_id == request_id).cloned()
    }

    pub fn latest(&self, wanted: &Wanted, name: &dyn Fn(UpstreamId) -> String) -> Vec<Receipt> {
        let fits = |receipt: &&Receipt| {
            let of_session = wanted.session.as_ref().is_none_or(|key| receipt.session.as_ref() == Some(key));
            of_session && wanted.node.as_ref().is_none_or(|node| receipt.was_at(node, name))
        };
        self.ring.lock().receipts.iter().rev().filter(fits).take(wanted.limit).cloned().collect()
    }
}

impl Ring {
    fn add(&mut self, receipt: Receipt, bytes_max: usize) {
        self.bytes += bytes(&receipt);
        self.receipts.push_back(receipt);
        while self.bytes > bytes_max
            && let Some(oldest) = self.receipts.pop_front()
        {
            self.bytes -= bytes(&oldest);
        }
    }
}

/// What a receipt takes in memory, near enough.
fn bytes(receipt: &Receipt) -> usize {
    let texts = [&receipt.request_id, &receipt.path, &receipt.model];
    let texts: usize = texts
        .into_iter()
        .chain(&receipt.session)
        .chain(&receipt.trace_id)
        .chain(&receipt.nodes)
        .map(|text| text.len())
        .sum();
    let lists = receipt.nodes.len() * size_of::<String>();
    let lists = lists + size_of_val(&receipt.waits_ms[..]);
    size_of::<Receipt>() + texts + lists + receipt.attempts.iter().map(attempt_bytes).sum::<usize>()
}

fn attempt_bytes(attempt: &Attempt) -> usize {
    let rows = &attempt.decision.rows;
    let misfits = rows.iter().chain([&attempt.row]).filter(|row| row.misfit.is_some()).count();
    size_of::<Attempt>()
        + size_of_val(&rows[..])
        + misfits * size_of::<Misfit>()
        + attempt.decision.excluded.len() * size_of::<(UpstreamId, Exclusion)>()
        + attempt.excluded_by.len() * size_of::<(Exclusion, usize)>()
        + size_of::<Row>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt(id: usize, path_bytes: usize) -> Receipt {
        let session = Some(format!("s{}", id % 2));
        Receipt { request_id: id.to_string(), path: "x".repeat(path_bytes), session, ..Receipt::default() }
    }

    #[test]
    fn the_ring_is_bounded_in_bytes_whatever_the_size_of_each() {
        let (mut ring, most) = (Ring::default(), 64 << 10);
        for id in 0..2000 {
            ring.add(receipt(id, id % 257), most);
            assert!(ring.bytes <= most);
            assert_eq!(ring.bytes, ring.receipts.iter().map(bytes).sum::<usize>());
        }
        assert!(ring.receipts.len() > 50, "{}", ring.receipts.len());
        assert_eq!(ring.receipts.back().map(|receipt| receipt.request_id.as_str()), Some("1999"));
    }

    #[test]
    fn the_latest_of_a_session() {
        let receipts = Receipts::default();
        (0..10).for_each(|id| receipts.add(receipt(id, 1)));
        let ids = |wanted: Wanted| {
            let found = receipts.latest(&wanted, &|_| String::new());
            found.into_iter().map(|receipt| receipt.request_id).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(ids(Wanted { limit: 3, ..Wanted::default() }), "9 8 7");
        assert_eq!(ids(Wanted { limit: 3, session: Some("s0".into()), ..Wanted::default() }), "8 6 4");
        assert_eq!(ids(Wanted { limit: 3, node: Some("n1".into()), ..Wanted::default() }), "");
    }
}
