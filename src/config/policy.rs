//! The policies that `policy:` may name, for the fleet or for one model.

use super::problem::Report;
use super::read::{Read, Spot, one_of};
pub use crate::routing::policy::Policy;

/// What LiteLLM calls them, so that its values can be copied.
const LITELLM: [(&str, Policy); 6] = [
    ("simple-shuffle", Policy::Shuffle),
    ("least-busy", Policy::LeastBusy),
    ("latency-based-routing", Policy::Latency),
    ("usage-based-routing", Policy::Usage),
    ("usage-based-routing-v2", Policy::Usage),
    ("cost-based-routing", Policy::Cost),
];

impl Read for Policy {
    fn read(at: Spot, report: &mut Report) -> Option<Policy> {
        let written = at.node.scalar();
        let theirs = LITELLM.iter().find(|(name, _)| written.as_deref() == Some(name));
        // Messages name only our own spellings.
        theirs.map(|(_, policy)| *policy).or_else(|| one_of(at, &Policy::NAMES, report))
    }
}
