//! The blobs of a scripted node: their sizes and hashes, never their bytes.

use std::collections::HashMap;
use std::sync::Mutex;

use serde_json::{Value, json};
use xxhash_rust::xxh3::Xxh3;

use super::script::Hold;

/// Hashing is slow in a debug build; of a large blob the beginning must do.
pub const HASHED_BYTES_MAX: u64 = 16 << 20;

#[derive(Default)]
pub struct Blobs(Mutex<Held>);

#[derive(Default)]
struct Held {
    by_path: HashMap<String, (u64, u128)>,
    calls: usize,
    hold: Option<Hold>,
}

/// Size and hash of what has come so far.
#[derive(Default)]
pub struct Sum {
    bytes: u64,
    hash: Xxh3,
}

impl Sum {
    pub fn add(&mut self, piece: &[u8]) {
        if self.bytes < HASHED_BYTES_MAX {
            self.hash.update(piece);
        }
        self.bytes += piece.len() as u64;
    }

    pub fn value(&self) -> (u64, u128) {
        (self.bytes, self.hash.digest128())
    }
}

impl Blobs {
    /// Counts a call, and tells whether the blob is there.
    pub fn asked(&self, path: &str) -> bool {
        let mut held = self.0.lock().expect("blobs");
        held.calls += 1;
        held.by_path.contains_key(path)
    }

    pub fn hold(&self, hold: &Hold) {
        self.0.lock().expect("blobs").hold = Some(hold.clone());
    }

    /// Comes back when blobs may be read.
    pub async fn wait(&self) {
        let hold = self.0.lock().expect("blobs").hold.clone();
        if let Some(hold) = hold {
            hold.wait().await;
        }
    }

    pub fn put(&self, path: &str, sum: Sum) {
        self.0.lock().expect("blobs").by_path.insert(path.to_owned(), sum.value());
    }

    pub fn all(&self) -> HashMap<String, (u64, u128)> {
        self.0.lock().expect("blobs").by_path.clone()
    }

    pub fn calls(&self) -> usize {
        self.0.lock().expect("blobs").calls
    }

    /// Status and body of the answer to a create.
    pub fn create(&self, body: &[u8]) -> (u16, String) {
        let asked: Value = serde_json::from_slice(body).unwrap_or_default();
        let held = self.0.lock().expect("blobs");
        let files = asked["files"].as_object().into_iter().flatten();
        let here = |digest: &Value| held.by_path.contains_key(&format!("/api/blobs/{}", digest.as_str().unwrap_or("")));
        match files.clone().all(|(_, digest)| here(digest)) {
            true => (200, json!({"status": "success"}).to_string() + "\n"),
            false => (400, json!({"error": "blob not found"}).to_string()),
        }
    }
}
