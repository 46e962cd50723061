//! How long a test waits for something before it says what did not happen.
//!
//! Nothing in the kit waits without a bound, and nothing sleeps where an event can be awaited: a
//! test that would hang fails instead, with the name of what it was waiting for.

use std::future::Future;
use std::time::Duration;

/// Long beside what anything takes on an idle machine, so that a busy one fails no test.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The future's value, or a panic naming what did not happen in time.
#[track_caller]
pub fn within<F: Future>(what: &str, event: F) -> impl Future<Output = F::Output> + use<F> {
    within_time(PATIENCE, what, event)
}

/// What `look` shows at last, where there is no event to await from outside: a pause keeps it from spinning.
#[track_caller]
pub fn until<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> impl Future<Output = T> {
    within(what, async move {
        loop {
            if let Some(shown) = look().await {
                return shown;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    })
}

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Like `within`, with another bound.
#[track_caller]
pub fn within_time<F: Future>(limit: Duration, what: &str, event: F) -> impl Future<Output = F::Output> + use<F> {
    let what = what.to_owned();
    let asked = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(limit, event).await {
            Ok(value) => value,
            Err(_) => panic!("waited {limit:?} in vain for: {what} (asked at {asked})"),
        }
    }
}
