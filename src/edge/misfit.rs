//! Tells of requests whose options are not those that a node's model was loaded with.
//!
//! The count is in a metric and each case in its receipt; the log has a line for each option of each model
//! on each node, once, since clients send the same options all day.

use std::collections::HashSet;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::metrics::Metrics;
use super::node::Node;
use crate::routing::fleet::UpstreamId;
use crate::routing::runner::{Action, Misfit, RunnerOption};

/// Lines logged in all. A fleet with more cases than these has read enough of them.
const LINES_MAX: usize = 1024;

/// Of what the log has been told.
#[derive(Default)]
pub struct MisfitsTold(Mutex<HashSet<(UpstreamId, String, RunnerOption, Action)>>);

impl MisfitsTold {
    /// An attempt at `node` begins with a misfit.
    pub fn tell(&self, misfit: &Misfit, node: &Node, model: &str, metrics: &Metrics) {
        if misfit.action == Action::Passed {
            return;
        }
        metrics.option_reloads.with_label_values(&[node.label.as_str(), misfit.action.name()]).inc();
        let told = |option: &&RunnerOption| self.is_news(node.id, model, **option, misfit.action);
        let differing: Vec<String> =
            misfit.differing.iter().filter(told).map(|option| words(misfit, *option)).collect();
        if !differing.is_empty() {
            let what_follows = match misfit.action {
                Action::Pinned => "sent with the option as it is in memory (option_guard: pin)",
                _ => "the node loads the model anew for it; let clients agree on one value, or see option_guard",
            };
            let differing = differing.join(", ");
            log::warn!("{}: a request for {model} asks for {differing}: {what_follows}", node.name);
        }
    }

    fn is_news(&self, node: UpstreamId, model: &str, option: RunnerOption, action: Action) -> bool {
        let mut told = self.0.lock();
        told.len() < LINES_MAX && told.insert((node, model.to_string(), option, action))
    }
}

fn words(misfit: &Misfit, option: RunnerOption) -> String {
    let word = |value: Option<i32>| value.map_or("its own".to_string(), |value| value.to_string());
    let (asked, resident) = (word(misfit.asked.get(option)), word(misfit.resident.get(option)));
    format!("{} {asked} where {resident} is in memory", option.name())
}

/// For a receipt; `null` where nothing is to be said. A value that was left out is `null`, too.
pub fn json(misfit: Option<&Misfit>) -> Value {
    let Some(misfit) = misfit.filter(|misfit| misfit.action != Action::Passed) else { return Value::Null };
    let options: serde_json::Map<String, Value> = misfit
        .differing
        .iter()
        .map(|option| {
            let values = json!({"asked": misfit.asked.get(*option), "resident": misfit.resident.get(*option)});
            (option.name().to_string(), values)
        })
        .collect();
    json!({"action": misfit.action.name(), "options": options})
}
