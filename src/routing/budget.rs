//! How many retries the whole gateway may send, so that they never multiply an overload.
//!
//! Counted are retries of requests that a live engine turned away or failed on: each is more work for a
//! fleet that may be short of room already. A request whose node is gone is not counted, since no other
//! node does more for it than it would have done anyway; `retry` says which is which.

use std::time::Duration;

use super::moment::Moment;
use super::recent::Recent;

/// Over so long requests and retries are compared. Short enough to follow a burst, long enough that a
/// quiet second does not empty the budget.
const WINDOW: Duration = Duration::from_secs(10);

/// Retries for each request: with all nodes refusing, the fleet sees a fifth more than was asked.
const SHARE: f64 = 0.2;

/// Retries in a window that are free: a gateway with little traffic can still move what fails.
const FLOOR: f64 = 10.0;

#[derive(Clone, Copy, Debug, Default)]
pub struct RetryBudget {
    requests: Recent,
    retries: Recent,
}

impl RetryBudget {
    /// A new request came.
    pub fn request(&mut self, now: Moment) {
        self.requests.add(1.0, WINDOW, now);
    }

    /// Takes one retry out of the budget; false if none is left.
    pub fn take(&mut self, now: Moment) -> bool {
        let allowed = FLOOR + SHARE * self.requests.sum(WINDOW, now);
        let fits = self.retries.sum(WINDOW, now) + 1.0 <= allowed;
        if fits {
            self.retries.add(1.0, WINDOW, now);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ret_08_a_thousand_failures_are_retried_a_fifth_as_often() {
        let mut budget = RetryBudget::default();
        let mut retries = 0;
        for request in 0..1000 {
            let now = Moment(request * 10_000);
            budget.request(now);
            retries += u32::from(budget.take(now));
        }
        assert!((150..=210).contains(&retries), "{retries}");
    }

    #[test]
    fn a_quiet_gateway_retries_freely_and_an_empty_budget_fills_again() {
        let mut budget = RetryBudget::default();
        let taken = (0..20).filter(|_| budget.take(Moment::from_secs(100))).count();
        assert_eq!(taken, FLOOR as usize);
        assert!(budget.take(Moment::from_secs(130)));
    }
}
