//! The policies that `policy:` may name, for the fleet or for one model.

use serde::Serialize;

use super::plan::name_in;
use super::problem::Report;
use super::read::{Read, Spot, one_of};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The sum of the signals; the highest wins.
    Fleet,
    /// At random by weight.
    Shuffle,
    /// Where the fewest requests run.
    LeastBusy,
    /// Where the first token came soonest of late.
    Latency,
    /// Where the most of `rpm` and `tpm` is left.
    Usage,
    /// Where it costs least.
    Cost,
}

/// What LiteLLM calls them, so that its values can be copied.
const LITELLM: [(&str, Policy); 6] = [
    ("simple-shuffle", Policy::Shuffle),
    ("least-busy", Policy::LeastBusy),
    ("latency-based-routing", Policy::Latency),
    ("usage-based-routing", Policy::Usage),
    ("usage-based-routing-v2", Policy::Usage),
    ("cost-based-routing", Policy::Cost),
];

const LATER: [&str; 1] = ["expected_ttft"];

impl Policy {
    pub const NAMES: [(&'static str, Policy); 6] = [
        ("fleet", Policy::Fleet),
        ("shuffle", Policy::Shuffle),
        ("least_busy", Policy::LeastBusy),
        ("latency", Policy::Latency),
        ("usage", Policy::Usage),
        ("cost", Policy::Cost),
    ];

    pub fn name(self) -> &'static str {
        name_in(&Policy::NAMES, self)
    }
}

impl Read for Policy {
    fn read(at: Spot, report: &mut Report) -> Option<Policy> {
        let written = at.node.scalar();
        let theirs = LITELLM.iter().find(|(name, _)| written.as_deref() == Some(name));
        // Messages name only our own spellings.
        theirs.map(|(_, policy)| *policy).or_else(|| one_of(at, &Policy::NAMES, &LATER, report))
    }
}
