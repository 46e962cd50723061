//! What a node is: a name, the engine it passes for, its models and how they present themselves.

use std::time::Duration;

use super::kind::{Kind, Names};
use crate::routing::report::Abilities;
use crate::sim::engine::{EngineParams, ModelParams};

/// One node.
#[derive(Clone)]
pub struct NodeParams {
    pub name: String,
    /// The engine it passes for.
    pub kind: &'static Kind,
    pub models: Vec<NodeModel>,
    pub memory_bytes: u64,
    pub max_waiting: usize,
    pub keep_alive: Option<Duration>,
    /// Length of an answer to which the client sets no lower limit.
    pub answer_tokens: u32,
}

/// One model, for the engine and for the lists.
#[derive(Clone, Debug)]
pub struct NodeModel {
    pub engine: ModelParams,
    pub card: Card,
}

/// What lists and `/api/show` say of a model.
#[derive(Clone, Debug)]
pub struct Card {
    /// Architecture, as in `general.architecture`.
    pub family: &'static str,
    pub parameter_size: &'static str,
    pub parameter_count: u64,
    pub quantization: &'static str,
    /// Size on disk.
    pub size_bytes: u64,
    pub embedding_length: u32,
    pub abilities: Abilities,
}

impl NodeParams {
    pub fn engine(&self) -> EngineParams {
        EngineParams {
            models: self.models.iter().map(|model| model.engine.clone()).collect(),
            memory_bytes: self.memory_bytes,
            max_waiting: self.max_waiting,
            keep_alive: self.keep_alive,
        }
    }

    /// The model that a client means.
    pub fn find(&self, asked: &str) -> Option<&NodeModel> {
        let named = |is_it: &dyn Fn(&str) -> bool| self.models.iter().find(|model| is_it(&model.engine.name));
        match self.kind.names {
            Names::Ollama => {
                let asked = full_name(asked);
                named(&|name| full_name(name) == asked)
            }
            Names::Exact if asked.is_empty() => self.models.first(),
            Names::Exact => named(&|name| name == asked),
            Names::Any => named(&|name| name == asked).or(self.models.first()),
        }
    }
}

/// Ollama's: case folds, no tag means `latest`, its own registry and namespace may be written or left
/// out.
fn full_name(name: &str) -> String {
    let lower = name.to_lowercase();
    let bare = lower.strip_prefix("registry.ollama.ai/").unwrap_or(&lower);
    let bare = bare.strip_prefix("library/").unwrap_or(bare);
    let has_tag = bare.rsplit('/').next().is_some_and(|last| last.contains(':'));
    if has_tag { bare.to_owned() } else { format!("{bare}:latest") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, full: &str) {
        assert_eq!(full_name(name), full);
    }

    #[test]
    fn names_compare_as_ollamas_do() {
        check("Llama3.2", "llama3.2:latest");
        check("llama3.2:3B", "llama3.2:3b");
        check("library/llama3.2", "llama3.2:latest");
        check("registry.ollama.ai/library/llama3.2:3b", "llama3.2:3b");
        check("host:5000/me/x", "host:5000/me/x:latest");
    }
}
