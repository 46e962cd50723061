//! Requests and tokens of the last minute, for the limits and the `usage` policy.
//!
//! A sliding minute from two counted ones: the running minute, and of the one before as much as still
//! lies within sixty seconds. Nothing is kept by request.

use std::time::Duration;

use super::moment::Moment;

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    minute_began: Moment,
    current: Counts,
    before: Counts,
}

/// What was used in a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    pub requests: f64,
    pub tokens: f64,
}

impl Usage {
    pub fn add(&mut self, requests: u32, tokens: u32, now: Moment) {
        *self = self.turned(now);
        self.current.requests += f64::from(requests);
        self.current.tokens += f64::from(tokens);
    }

    /// Of the sixty seconds up to `now`.
    pub fn last_minute(&self, now: Moment) -> Counts {
        if self.current == Counts::default() && self.before == Counts::default() {
            return Counts::default();
        }
        let turned = self.turned(now);
        let passed = now.since(turned.minute_began).as_secs_f64() / MINUTE.as_secs_f64();
        let left = (1.0 - passed).clamp(0.0, 1.0);
        Counts {
            requests: turned.current.requests + left * turned.before.requests,
            tokens: turned.current.tokens + left * turned.before.tokens,
        }
    }

    /// With the minute that `now` lies in as the current one.
    fn turned(&self, now: Moment) -> Usage {
        let passed = now.since(self.minute_began);
        match () {
            _ if passed < MINUTE => *self,
            _ if passed < 2 * MINUTE => {
                Usage { minute_began: self.minute_began + MINUTE, current: Counts::default(), before: self.current }
            }
            _ => Usage { minute_began: now, ..Usage::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_slides() {
        let mut usage = Usage::default();
        usage.add(6, 600, Moment::from_secs(30));
        let at = |secs| usage.last_minute(Moment::from_secs(secs)).requests;
        assert_eq!(at(59), 6.0);
        assert_eq!(at(90), 3.0);
        assert_eq!(at(105), 1.5);
        assert_eq!(at(300), 0.0);
        assert_eq!(usage.last_minute(Moment::from_secs(90)).tokens, 300.0);
    }
}
