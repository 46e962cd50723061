//! What may be configured about routing, and what holds when nothing is said.

use std::time::Duration;

use crate::routing::admission::Admission;
use crate::routing::breaker::BreakerRules;
use crate::routing::group::Groups;
use crate::routing::policy::Policy;
use crate::routing::runner::OptionGuard;
use crate::routing::signal::Signals;
use crate::routing::stuck::SilenceLimits;

/// What may be configured about routing.
#[derive(Clone, Debug)]
pub struct Rules {
    pub policy: Policy,
    /// By how much the work that a request makes counts under `expected_ttft`, as others wait for it too; 1: not at all.
    pub externality_weight: f64,
    /// Names beyond those that nodes report.
    pub groups: Groups,
    /// Of a group's fallbacks, how many are tried for one request.
    pub max_fallbacks: usize,
    pub admission: Admission,
    pub signals: Signals,
    pub session_ttl: Duration,
    pub max_sessions: usize,
    /// Readings older than this are no longer believed (L10).
    pub stale_after: Duration,
    pub option_guard: OptionGuard,
    pub breaker: BreakerRules,
    /// For a node that joins or comes back to carry its full share.
    pub slow_start: Duration,
    pub silence: SilenceLimits,
}

/// Found with recorded conversations: less wastes the fleet's work, more makes conversations wait for their node.
pub const EXTERNALITY_WEIGHT: f64 = 6.0;

/// As Warmgate is configured when nothing is said.
impl Default for Rules {
    fn default() -> Rules {
        Rules {
            policy: Policy::default(),
            externality_weight: EXTERNALITY_WEIGHT,
            groups: Groups::default(),
            max_fallbacks: 5,
            admission: Admission::default(),
            signals: Signals::default(),
            session_ttl: Duration::from_secs(15 * 60),
            max_sessions: 100_000,
            stale_after: Duration::from_secs(15),
            option_guard: OptionGuard::default(),
            breaker: BreakerRules::default(),
            slow_start: Duration::from_secs(30),
            silence: SilenceLimits::default(),
        }
    }
}
