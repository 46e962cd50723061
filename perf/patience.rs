//! How long a load run waits for one event before it gives up altogether: what is too long for a request
//! is for the run itself to say.

use std::future::Future;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(3600);

/// The future's value, or a panic naming what did not happen in time.
pub async fn within<F: Future>(what: &str, event: F) -> F::Output {
    match tokio::time::timeout(PATIENCE, event).await {
        Ok(value) => value,
        Err(_) => panic!("waited {PATIENCE:?} in vain for: {what}"),
    }
}
