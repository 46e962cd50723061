//! How long the run waits for one event: longer than tests do, for shuffled turns queue up.

use std::future::Future;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(300);

/// The future's value, or a panic naming what did not happen in time.
pub async fn within<F: Future>(what: &str, event: F) -> F::Output {
    match tokio::time::timeout(PATIENCE, event).await {
        Ok(value) => value,
        Err(_) => panic!("waited {PATIENCE:?} in vain for: {what}"),
    }
}
