//! A simulation as it is written down: nodes, what is asked of them, and who is to decide.
//!
//! `file` is what was written, here is what was meant. Everything wrong with the values is reported at once,
//! each with its key and what to do.

mod file;
mod nodes;
mod source;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::capacity;
use super::peers::{self, Peer};
use super::run::nodes::NodeParams;
use super::run::peer::IndexError;
use super::run::product::Setting;
use super::workload::Source;
use crate::config::nearest::nearest;
use crate::routing::fleet::Rules;
use crate::routing::policy::Policy;
use file::File;

/// A simulation, ready to run.
pub struct Plan {
    pub name: String,
    pub nodes: Arc<Vec<NodeParams>>,
    pub source: Source,
    pub contestants: Vec<Contestant>,
    pub seeds: Vec<u64>,
    /// How many times as fast the source's own time runs.
    pub rates: Vec<f64>,
    /// The rate at which the nodes have as much to do as they can (`capacity`).
    pub full_rate: f64,
    pub setting: Setting,
}

/// Somebody who decides.
#[derive(Clone, Copy)]
pub enum Contestant {
    Ours(Policy),
    Theirs(&'static Peer),
}

impl Contestant {
    pub fn name(self) -> &'static str {
        match self {
            Contestant::Ours(policy) => policy.name(),
            Contestant::Theirs(peer) => peer.name,
        }
    }

    pub fn find(name: &str) -> Option<Contestant> {
        let ours = Policy::NAMES.iter().find(|(known, _)| *known == name);
        let ours = ours.map(|(_, policy)| Contestant::Ours(*policy));
        ours.or_else(|| peers::find(name).map(Contestant::Theirs))
    }

    pub fn all() -> Vec<Contestant> {
        let ours = Policy::NAMES.iter().map(|(_, policy)| Contestant::Ours(*policy));
        ours.chain(peers::ROSTER.iter().filter_map(|peer| Contestant::find(peer.name))).collect()
    }

    /// For tables: what it is.
    pub fn about(self) -> &'static str {
        match self {
            Contestant::Ours(_) => "Warmgate's",
            Contestant::Theirs(peer) => peer.about,
        }
    }
}

/// What is wrong with a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    pub origin: PathBuf,
    /// Key, what is wrong, what to do.
    pub list: Vec<(String, String, String)>,
}

impl Problems {
    fn add(&mut self, key: impl Into<String>, what: impl Into<String>, hint: impl Into<String>) {
        self.list.push((key.into(), what.into(), hint.into()));
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for (index, (key, what, hint)) in self.list.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{}: ", self.origin.display())?;
            if !key.is_empty() {
                write!(f, "{key}: ")?;
            }
            write!(f, "{what}")?;
            if !hint.is_empty() {
                write!(f, "; {hint}")?;
            }
        }
        Ok(())
    }
}

/// Reads a plan. Paths of traces count from `traces` if that is given, else from the plan's own folder.
pub fn load(path: &Path, traces: Option<&Path>) -> Result<Plan, Problems> {
    let mut problems = Problems { origin: path.to_owned(), list: Vec::new() };
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            problems.add("", format!("cannot be read: {error}"), "");
            return Err(problems);
        }
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let find = |trace: &Path| match traces {
        Some(traces) => traces.join(trace.file_name().unwrap_or(trace.as_os_str())),
        None => folder.join(trace),
    };
    resolve(&name, &text, &find, &mut problems).filter(|_| problems.list.is_empty()).ok_or(problems)
}

/// Where a trace lies.
type Find<'a> = &'a dyn Fn(&Path) -> PathBuf;

fn resolve(name: &str, text: &str, find: Find, problems: &mut Problems) -> Option<Plan> {
    let file: File = match serde_yaml::from_str(text) {
        Ok(file) => file,
        Err(error) => {
            let (what, hint) = explained(&error.to_string());
            problems.add("", what, hint);
            return None;
        }
    };
    let nodes = nodes::nodes(&file.workers, problems);
    let models: Vec<String> =
        nodes.iter().flat_map(|node| &node.engine.models).map(|model| model.name.clone()).collect();
    let contestants = contestants(&file.policies, problems);
    check_numbers(&file, problems);
    // Nothing is read while the plan is wrong.
    let source = problems.list.is_empty().then(|| source::source(&file.workload, &models, find, problems)).flatten()?;
    let nodes = Arc::new(nodes);
    let seed = file.seeds.first().copied().unwrap_or_default();
    let full_rate = capacity::saturation(&nodes, &source, seed);
    let rates = match file.loads {
        Some(loads) => loads.into_iter().map(|load| load * full_rate).collect(),
        None => file.rates.unwrap_or_else(|| vec![1.0]),
    };
    let rules = Rules { signals: file.signals.unwrap_or_default(), ..Rules::default() };
    Some(Plan {
        name: file.name.unwrap_or_else(|| name.to_string()),
        nodes,
        source,
        contestants,
        seeds: file.seeds,
        rates,
        full_rate,
        setting: Setting {
            rules,
            telemetry_interval: file.telemetry_interval.0.max(Duration::from_millis(10)),
            queue_timeout: file.queue_timeout.0,
            index: IndexError { never_evicts: file.index.never_evicts, half: file.index.half },
        },
    })
}

/// Serde's words, with a guess at what was meant.
fn explained(error: &str) -> (String, String) {
    let mut quoted = error.split('`').skip(1).step_by(2);
    let wrong = quoted.next().unwrap_or_default();
    let known: Vec<&str> = quoted.collect();
    let hint = if error.contains("unknown field") { nearest(wrong, &known) } else { None };
    (error.to_string(), hint.map(|known| format!("did you mean {known}?")).unwrap_or_default())
}

fn contestants(names: &[String], problems: &mut Problems) -> Vec<Contestant> {
    let known: Vec<&str> = Contestant::all().iter().map(|contestant| contestant.name()).collect();
    let mut found = Vec::new();
    for (index, name) in names.iter().enumerate() {
        match Contestant::find(name) {
            Some(contestant) => found.push(contestant),
            None if name == "all" => found.extend(Contestant::all()),
            None => {
                let guess = nearest(name, &known).map(|known| format!("did you mean {known}? "));
                let hint = format!("{}Known are all, {}", guess.unwrap_or_default(), known.join(", "));
                problems.add(format!("policies[{index}]"), format!("`{name}` is no policy"), hint);
            }
        }
    }
    if names.is_empty() {
        problems.add("policies", "nobody is to decide", format!("name some of {}", known.join(", ")));
    }
    found
}

fn check_numbers(file: &File, problems: &mut Problems) {
    if file.seeds.is_empty() {
        problems.add("seeds", "no seed, no run", "write [1]");
    }
    let rates = [
        ("rates", &file.rates, "speed", "1 is as fast as it was, 2 twice as fast"),
        ("loads", &file.loads, "load", "1 is all that the nodes can do, 0.5 half of it"),
    ];
    for (key, list, what, hint) in rates {
        let list = list.as_deref();
        let wrong = list.into_iter().flatten().enumerate().filter(|(_, rate)| !(**rate > 0.0 && rate.is_finite()));
        for (index, rate) in wrong {
            problems.add(format!("{key}[{index}]"), format!("{rate} is no {what}"), hint);
        }
        if list.is_some_and(<[f64]>::is_empty) {
            problems.add(key, "none of them, no run", "write [1.0]");
        }
    }
    if file.rates.is_some() && file.loads.is_some() {
        problems.add("loads", "there are rates already", "write one of the two");
    }
}
