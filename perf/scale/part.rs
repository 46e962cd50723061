//! One of so many parts of a fleet: as many nodes fewer, and as many conversations fewer for them.

use std::sync::Arc;

use warmgate::sim::plan::Plan;
use warmgate::sim::run::nodes::NodeParams;
use warmgate::sim::workload::Source;

pub fn nodes(plan: &Plan, part: usize) -> Arc<Vec<NodeParams>> {
    Arc::new(plan.nodes.iter().step_by(part.max(1)).cloned().collect())
}

/// Who asks is as in the whole: fewer begin, and less often. Whoever asks by a trace asks at that rate.
pub fn source(plan: &Plan, part: usize) -> Source {
    let mut source = plan.source.clone();
    if let Source::Conversations(script) = &mut source {
        let script = Arc::make_mut(script);
        script.conversations /= part.max(1);
        script.every *= part.max(1) as u32;
    }
    source
}
