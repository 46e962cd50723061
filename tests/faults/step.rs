//! What may happen next in a world, and how often.

use crate::chance::Chance;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A request of a new conversation, or of none.
    Arrive,
    /// The next turn of a known conversation.
    Continue,
    /// A client goes, whatever its request does.
    ClientLeaves,
    /// Nothing but time.
    Wait,
    Join,
    NodeDies,
    NodeReturns,
    /// Takes connections and says nothing more.
    NodeHangs,
    NodeThaws,
    NodeSlows,
    NodeRecovers,
    /// An attempt without a first byte gets a 500.
    EngineFails,
    /// An attempt without a first byte waited too long.
    FirstByteLate,
    /// A running answer breaks off.
    AnswerCut,
    /// A model is deleted on a node, and the fleet does not know.
    ModelDeleted,
    ModelRestored,
    /// A node is asked for its report. Some answers come late, out of order or never.
    PollBegins,
    PollEnds,
    PollFails,
    /// A health check says what it sees.
    Probe,
    /// A health check is wrong.
    ProbeErrs,
    /// The rules are replaced while requests run.
    Reload,
    /// A lease that has ended is told again that it began and ended.
    LeaseEndsAgain,
    /// A node leaves the configuration, whatever runs and waits there.
    NodeLeaves,
    /// News of a node that has left.
    LateNews,
    NodeDrains,
    NodeResumes,
    Configure,
    /// Fails each new request while its checks are green.
    NodeBreaks,
    NodeMends,
    /// An engine has no place for a request, and may say for how long.
    EngineBusy,
    /// A check finds a node loading.
    Loading,
}

/// Every step and its weight.
const WEIGHTS: [(Step, usize); 32] = [
    (Step::Arrive, 200),
    (Step::Continue, 200),
    (Step::ClientLeaves, 40),
    (Step::Wait, 100),
    (Step::Join, 5),
    (Step::NodeDies, 6),
    (Step::NodeReturns, 12),
    (Step::NodeHangs, 5),
    (Step::NodeThaws, 12),
    (Step::NodeSlows, 5),
    (Step::NodeRecovers, 8),
    (Step::EngineFails, 12),
    (Step::FirstByteLate, 6),
    (Step::AnswerCut, 10),
    (Step::ModelDeleted, 5),
    (Step::ModelRestored, 8),
    (Step::PollBegins, 100),
    (Step::PollEnds, 100),
    (Step::PollFails, 10),
    (Step::Probe, 80),
    (Step::ProbeErrs, 5),
    (Step::Reload, 4),
    (Step::LeaseEndsAgain, 20),
    (Step::NodeLeaves, 3),
    (Step::LateNews, 5),
    (Step::NodeDrains, 4),
    (Step::NodeResumes, 10),
    (Step::Configure, 4),
    (Step::NodeBreaks, 4),
    (Step::NodeMends, 10),
    (Step::EngineBusy, 12),
    (Step::Loading, 3),
];

impl Step {
    pub fn draw(chance: &mut Chance) -> Step {
        let all: usize = WEIGHTS.iter().map(|(_, weight)| weight).sum();
        let mut left = chance.below(all);
        for (step, weight) in WEIGHTS {
            match left.checked_sub(weight) {
                Some(less) => left = less,
                None => return step,
            }
        }
        Step::Wait
    }
}
