//! The configuration of a gate under test: scripted nodes, and any text of the test's own.

use super::launch::{FileBeside, Pod, Surroundings};
use crate::upstream::Upstream;

/// What the configuration file will say; everything else is Warmgate's default.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    nodes: Vec<String>,
    slots: Option<u32>,
    more: String,
    raw: Option<String>,
    pub surroundings: Surroundings,
}

impl Settings {
    /// These nodes, each with its own name, URL and engine.
    pub fn over(nodes: &[&Upstream]) -> Settings {
        let entry = |node: &&Upstream| {
            let (name, url, engine) = (node.name(), node.url(), node.engine());
            format!("name: {name}, url: \"{url}\", engine: {engine}")
        };
        Settings { nodes: nodes.iter().map(entry).collect(), ..Settings::default() }
    }

    /// One more upstream, by its keys as they are written.
    pub fn upstream(mut self, keys: &str) -> Settings {
        self.nodes.push(keys.to_owned());
        self
    }

    /// The whole file, for what the nodes' usual entries do not say.
    pub fn raw(yaml: &str) -> Settings {
        Settings { raw: Some(yaml.to_owned()), ..Settings::default() }
    }

    /// The process may have so many files open and no more.
    pub fn files(mut self, files: u32) -> Settings {
        self.surroundings.files = Some(files);
        self
    }

    /// It logs as `RUST_LOG` has it.
    pub fn logging(mut self, filter: &str) -> Settings {
        self.surroundings.log = Some(filter.to_owned());
        self
    }

    /// The process finds such a file by that variable.
    #[allow(dead_code, reason = "used with the feature `kube`")]
    pub fn beside(mut self, name: &'static str, text: &str, variable: &'static str) -> Settings {
        self.surroundings.files_beside.push(FileBeside { name, text: text.to_owned(), variable });
        self
    }

    /// The process runs in that pod.
    #[allow(dead_code, reason = "used with the feature `kube`")]
    pub fn in_pod(mut self, pod: Pod) -> Settings {
        self.surroundings.pod = Some(pod);
        self
    }

    /// Slots of every node; left out, Warmgate does not know them.
    pub fn slots(mut self, slots: u32) -> Settings {
        self.slots = Some(slots);
        self
    }

    /// More about the node that was named last, as fields of its entry.
    pub fn with_fields(mut self, fields: &str) -> Settings {
        let last = self.nodes.last_mut().expect("a node");
        *last += ", ";
        *last += fields;
        self
    }

    /// Further top-level YAML.
    pub fn more(mut self, yaml: &str) -> Settings {
        self.more += yaml;
        self.more += "\n";
        self
    }

    pub fn yaml(&self) -> String {
        if let Some(raw) = &self.raw {
            return raw.clone();
        }
        let slots = self.slots.map(|n| format!(", slots: {n}"));
        let slots = slots.unwrap_or_default();
        let nodes = self.nodes.iter().map(|node| format!("  - {{{node}{slots}}}\n"));
        format!(
            "listen: [{{address: \"127.0.0.1:0\"}}]\nadmin: {{address: \"127.0.0.1:0\"}}\nupstreams:\n{}{}",
            nodes.collect::<String>(),
            self.more,
        )
    }
}
