//! One id a request: the client's own if it is fit to be a header and a log field, else a new one.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use once_cell::sync::Lazy;

use super::spelling;
use crate::routing::chain::{hash_text, mix};

const MAX_GIVEN_CHARS: usize = 128;

/// Differs from process to process, so that restarts and replicas do not repeat ids.
static SEED: Lazy<u64> = Lazy::new(|| RandomState::new().hash_one(std::process::id()));
static NEXT: AtomicU64 = AtomicU64::new(0);

pub fn accept_or_make(given: Option<&str>) -> String {
    let fit = |id: &&str| !id.is_empty() && id.len() <= MAX_GIVEN_CHARS && id.bytes().all(|b| b.is_ascii_graphic());
    match given.filter(fit) {
        Some(id) => id.to_string(),
        None => {
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            spelling::hex([mix(*SEED, n), mix(!*SEED, n)])
        }
    }
}

/// The request's own value in ties and under chancy policies.
pub fn hash(id: &str) -> u64 {
    hash_text(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fit_ids_are_kept_and_others_replaced() {
        assert_eq!(accept_or_make(Some("req-17")), "req-17");
        for unfit in [None, Some(""), Some("a b"), Some("a\nb"), Some(&*"x".repeat(200))] {
            let made = accept_or_make(unfit);
            assert_eq!(made.len(), 32);
            assert_ne!(made, accept_or_make(unfit));
        }
    }
}
