//! The latest reloads, for whoever asks what was changed and when.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::record::Record;

/// Reloads that are remembered.
const REMEMBERED_MAX: usize = 64;

#[derive(Default)]
pub struct Reloads(Mutex<VecDeque<Arc<Record>>>);

impl Reloads {
    pub fn keep(&self, record: Arc<Record>) {
        let mut records = self.0.lock();
        records.push_front(record);
        records.truncate(REMEMBERED_MAX);
    }

    /// The latest first.
    pub fn latest(&self) -> Vec<Arc<Record>> {
        self.0.lock().iter().cloned().collect()
    }

    pub fn last(&self) -> Option<Arc<Record>> {
        self.0.lock().front().cloned()
    }
}
