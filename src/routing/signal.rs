//! The eight rules that judge an upstream for an ask, and their roster.
//!
//! A signal is one file with one struct: its fields are the constants a configuration may change
//! (`routing.signals.<name>.<field>`), its `points` the rule. Adding one means that file and one line
//! in `roster!` below; configuration, receipts, metrics labels and the property tests run over the
//! roster. A signal reads one `Candidate` and its ask and answers in points, always finite; it knows
//! of no other candidate, so the order in which upstreams are listed cannot matter (law L6).
//! Under `policy: expected_ttft` the same eight answer in time: each a part of the expected cost.

use serde::{Deserialize, Serialize};

use super::ask::Ask;
use super::candidate::Candidate;

mod availability;
mod context_fit;
mod latency;
mod memory_fit;
mod model_loaded;
mod queue_depth;
mod role;
mod session;

/// One rule.
pub trait Signal {
    /// Points for `candidate` serving `ask`; more is better.
    fn points(&self, candidate: &Candidate, ask: &Ask) -> f64;

    /// What this rule is about, as seconds of the cost of serving `ask` there; never below zero.
    fn cost_s(&self, candidate: &Candidate, ask: &Ask) -> f64;
}

macro_rules! roster {
    ($($name:ident: $signal:ty,)*) => {
        /// Every signal with its constants; reads and writes the `routing.signals` section.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Signals {
            $(pub $name: $signal,)*
        }

        impl Signals {
            /// Names in the order of the points.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// What each signal says, in the order of `NAMES`.
            pub fn points(&self, candidate: &Candidate, ask: &Ask) -> Points {
                [$(self.$name.points(candidate, ask)),*]
            }

            /// By expected time: each signal's part of the cost, in seconds below zero.
            pub fn seconds(&self, candidate: &Candidate, ask: &Ask) -> Points {
                [$(0.0 - self.$name.cost_s(candidate, ask)),*]
            }
        }

        /// One number a signal, in the order of `Signals::NAMES`.
        pub type Points = [f64; [$(stringify!($name)),*].len()];
    };
}

roster! {
    model_loaded: model_loaded::ModelLoaded,
    memory_fit: memory_fit::MemoryFit,
    queue_depth: queue_depth::QueueDepth,
    latency: latency::Latency,
    role: role::Role,
    availability: availability::Availability,
    context_fit: context_fit::ContextFit,
    session: session::Session,
}
