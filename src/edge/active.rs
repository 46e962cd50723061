//! One request under way, counted while it lives; a process that shuts down waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts one request while it lives.
pub struct Active(Arc<AtomicUsize>);

impl Active {
    pub fn new(count: &Arc<AtomicUsize>) -> Active {
        count.fetch_add(1, Ordering::Relaxed);
        Active(count.clone())
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
