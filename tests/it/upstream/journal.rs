//! What a scripted node received, and how each request ended.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::watch;

use crate::http1::Head;
use crate::patience::within;

/// One request that arrived whole.
#[derive(Clone, Debug)]
pub struct Record {
    pub method: String,
    pub path: String,
    pub head: Head,
    pub body: Bytes,
    /// The other end: requests on one connection have the same.
    pub peer: SocketAddr,
    pub received: Instant,
    /// How and when it ended; `None` while its script plays.
    pub end: Option<(End, Instant)>,
}

impl Record {
    /// The body's hash, for bodies too long to print when they differ.
    pub fn body_hash(&self) -> u128 {
        xxhash_rust::xxh3::xxh3_128(&self.body)
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its script came to its end, be that an answer or a break.
    Played,
    /// The peer closed or reset before that.
    PeerGone,
}

/// The records in order of arrival; whoever waits is woken by each change.
pub struct Journal {
    records: watch::Sender<Vec<Record>>,
}

impl Journal {
    pub fn new() -> Self {
        Journal { records: watch::Sender::new(Vec::new()) }
    }

    /// Writes an arrival down and gives its number.
    pub fn arrived(&self, head: &Head, body: Bytes, peer: SocketAddr) -> usize {
        let record = Record {
            method: head.word(0).to_owned(),
            path: head.word(1).to_owned(),
            head: head.clone(),
            body,
            peer,
            received: Instant::now(),
            end: None,
        };
        let mut number = 0;
        self.records.send_modify(|records| {
            number = records.len();
            records.push(record);
        });
        number
    }

    pub fn end(&self, number: usize, end: End) {
        let now = Instant::now();
        self.records.send_modify(|records| records[number].end = Some((end, now)));
    }

    pub fn count(&self) -> usize {
        self.records.borrow().len()
    }

    pub fn in_flight(&self) -> usize {
        let records = self.records.borrow();
        records.iter().filter(|r| r.end.is_none()).count()
    }

    #[track_caller]
    pub fn request(&self, node: &str, n: usize) -> impl Future<Output = Record> + '_ {
        within(&format!("request {n} at {node}"), self.first(move |records| records.get(n).cloned()))
    }

    #[track_caller]
    pub fn ended(&self, node: &str, n: usize, how: End) -> impl Future<Output = Instant> + '_ {
        let as_told = move |records: &Vec<Record>| match records.get(n)?.end {
            Some((end, at)) if end == how => Some(at),
            _ => None,
        };
        within(&format!("request {n} at {node} to end as {how:?}"), self.first(as_told))
    }

    /// The first value that `find` gives, now or after a later change.
    async fn first<T>(&self, find: impl Fn(&Vec<Record>) -> Option<T>) -> T {
        let mut watcher = self.records.subscribe();
        loop {
            if let Some(found) = find(&watcher.borrow_and_update()) {
                return found;
            }
            watcher.changed().await.expect("the journal outlives us");
        }
    }
}
