//! The engines that a node can pass for: one file a kind, one line in the roster.
//!
//! A kind is data: which paths it has, how it takes a model's name, what its pages say, and the words
//! and shape in which it refuses. The pages are pure functions of a snapshot. What is the same
//! everywhere, the work and the answers in each dialect, is in the other files of `face`.

mod llama_cpp;
mod ollama;
mod sglang;
mod vllm;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::{Value, json};

use super::journal::Stats;
use super::params::{NodeModel, NodeParams};
use super::refusal::Refusal;
use super::voice::rerank::Ranked;
use crate::date::unix_seconds;
use crate::routing::ask::Endpoint;
use crate::sim::engine::{Demand, Resident, Usage};

/// Every kind, by the name that `engine:` has in the configuration.
#[rustfmt::skip]
pub static ROSTER: &[&Kind] = &[
    &llama_cpp::KIND,
    &ollama::KIND,
    &sglang::KIND,
    &vllm::KIND,
];

pub use ollama::show;

/// A fixed day on which all models are said to have been installed: 1 March 2026.
const INSTALLED_UNIX_S: u64 = 1_772_323_200;

/// One engine's outside, as data.
pub struct Kind {
    pub name: &'static str,
    /// What is asked of it with POST; every other such path is unknown to it.
    pub serves: &'static [Endpoint],
    pub names: Names,
    pub overflow: Overflow,
    pub responses: Responses,
    /// Its streams in OpenAI's dialect begin with a chunk that has a role and no text.
    pub role_first: bool,
    /// The answer to a GET of this path.
    pub page: fn(&str, &Snapshot) -> Option<Page>,
    /// The answer to a request for this path that is not served.
    pub refuse: fn(&Refusal, &str) -> Page,
    /// The answer of `/v1/rerank`, the best document first.
    pub rerank: fn(&str, &[Ranked], &Usage) -> Value,
}

/// How it takes the name of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Must be there; case folds, and no tag means `latest`.
    Ollama,
    /// As listed, or none at all for the first model.
    Exact,
    /// Whatever is asked, the one model answers.
    Any,
}

/// What becomes of a prompt that the window does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// It loses its beginning.
    Truncated,
    /// It is refused.
    Refused,
    /// It is refused, together with the answer that is asked for.
    RefusedWithOutput,
}

/// What `previous_response_id` means to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Responses {
    /// Nothing.
    Ignored,
    /// That it is to go on from there, if it made that one itself.
    Stored,
    /// A mistake.
    Refused,
}

/// A node at one instant.
pub struct Snapshot<'a> {
    pub node: &'a NodeParams,
    /// The models in memory, and for how much longer.
    pub resident: Vec<(Resident, Option<Duration>)>,
    /// In the order of the node's models.
    pub demand: Vec<Demand>,
    pub stats: Stats,
    pub now: SystemTime,
}

/// A whole answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    pub status: u16,
    pub content_type: &'static str,
    pub body: Bytes,
    /// How long it takes to come.
    pub after: Duration,
}

impl Kind {
    pub fn find(name: &str) -> Option<&'static Kind> {
        ROSTER.iter().copied().find(|kind| kind.name == name)
    }

    /// The kind that speaks Ollama's own dialect.
    pub fn ollama() -> &'static Kind {
        &ollama::KIND
    }

    /// What a POST to this path asks for, if it is served.
    pub fn service(&self, path: &str) -> Option<Endpoint> {
        Endpoint::of_path(path).filter(|endpoint| self.serves.contains(endpoint))
    }
}

impl Snapshot<'_> {
    /// Each model, and what is asked of it.
    pub fn models(&self) -> impl Iterator<Item = (&NodeModel, &Demand)> {
        self.node.models.iter().zip(&self.demand)
    }

    /// A metric with one sample a model, as the exporters of engines write them.
    pub fn metric(&self, name: &str, kind: &str, labels: &str, value: impl Fn(&NodeModel, &Demand) -> f64) -> String {
        let sample = |(model, demand): (&NodeModel, &Demand)| {
            let model_name = &model.engine.name;
            format!("{name}{{{labels},model_name=\"{model_name}\"}} {:?}\n", value(model, demand))
        };
        let samples: String = self.models().map(sample).collect();
        format!("# TYPE {name} {kind}\n{samples}")
    }
}

impl Page {
    pub fn json(value: &Value) -> Page {
        Page::of("application/json; charset=utf-8", value.to_string())
    }

    pub fn text(text: impl Into<String>) -> Page {
        Page::of("text/plain; charset=utf-8", text.into())
    }

    pub fn metrics(text: String) -> Page {
        Page::of("text/plain; version=0.0.4; charset=utf-8", text)
    }

    pub fn with_status(self, status: u16) -> Page {
        Page { status, ..self }
    }

    pub fn after(self, after: Duration) -> Page {
        Page { after, ..self }
    }

    fn of(content_type: &'static str, body: String) -> Page {
        Page { status: 200, content_type, body: body.into(), after: Duration::ZERO }
    }
}

/// `/v1/models`.
fn openai_models(node: &NodeParams, entry: impl Fn(&NodeModel) -> Value) -> Value {
    json!({"object": "list", "data": node.models.iter().map(entry).collect::<Vec<_>>()})
}

/// An entry of it, with what every engine tells.
fn openai_model(model: &NodeModel, owner: &str) -> Value {
    json!({
        "id": model.engine.name,
        "object": "model",
        "created": unix_seconds(installed()),
        "owned_by": owner,
    })
}

/// The same with what vLLM and SGLang add.
fn served_model(model: &NodeModel, owner: &str) -> Value {
    let mut entry = openai_model(model, owner);
    entry["root"] = json!(model.engine.name);
    entry["parent"] = Value::Null;
    entry["max_model_len"] = json!(model.engine.context_tokens);
    entry
}

fn installed() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(INSTALLED_UNIX_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_one_file_and_one_roster_line() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/sim/face/kind");
        let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut files: Vec<String> =
            names.filter_map(|name| Some(name.to_str()?.strip_suffix(".rs")?.to_string())).collect();
        files.sort();
        let roster: Vec<&str> = ROSTER.iter().map(|kind| kind.name).collect();
        assert_eq!(roster, files, "alphabetical, and complete");
    }

    #[test]
    fn a_kind_serves_what_the_engine_of_its_name_is_known_to() {
        for kind in ROSTER {
            let engine = crate::engines::find(kind.name).unwrap();
            let told =
                |endpoint: &Endpoint| engine.dialects.contains(&endpoint.dialect()) && !engine.lacks.contains(endpoint);
            for endpoint in kind.serves {
                assert!(told(endpoint), "{}: {}", kind.name, endpoint.path());
            }
        }
    }
}
