//! What is asked of the nodes of a plan.

use std::path::Path;
use std::sync::Arc;

use super::file::{self, Work};
use super::{Find, Problems};
use crate::routing::moment::Moment;
use crate::sim::workload::agents::{self, Agents};
use crate::sim::workload::conversations::{Clients, Script, Size};
use crate::sim::workload::{Source, Trace, azure, mooncake};

pub(super) fn source(work: &Work, models: &[String], find: Find, problems: &mut Problems) -> Option<Source> {
    let first: Arc<str> = models.first().map(String::as_str).unwrap_or_default().into();
    match (&work.mooncake, &work.azure, &work.agents, &work.conversations) {
        (Some(work), None, None, None) => trace("mooncake", mooncake::read, work, find, &first, problems),
        (None, Some(work), None, None) => trace("azure", azure::read, work, find, &first, problems),
        (None, None, Some(work), None) => agents(work, first, find, problems),
        (None, None, None, Some(work)) => {
            Some(Source::Conversations(Arc::new(script(work, &first, models, problems)?)))
        }
        _ => {
            problems.add("workload", "exactly one kind", "mooncake, azure, agents or conversations");
            None
        }
    }
}

type ReadTrace = fn(&Path, &Arc<str>) -> Result<Trace, String>;

fn trace(
    kind: &str,
    read: ReadTrace,
    work: &file::Trace,
    find: Find,
    model: &Arc<str>,
    problems: &mut Problems,
) -> Option<Source> {
    let path = find(&work.trace);
    let beginning = |mut trace: Trace| {
        if let Some(length) = work.first {
            let until = trace.first().map_or(Moment::MAX, |(at, _)| *at + length.0);
            Arc::make_mut(&mut trace).retain(|(at, _)| *at <= until);
        }
        trace
    };
    let trace = read(&path, model).map(beginning);
    let trace = trace.and_then(|trace| if trace.is_empty() { Err("nothing in it".into()) } else { Ok(trace) });
    let refused = |error| {
        problems.add(format!("workload.{kind}.trace"), format!("{}: {error}", path.display()), where_from(kind))
    };
    trace.map(Source::Trace).map_err(refused).ok()
}

fn agents(work: &file::Agents, model: Arc<str>, find: Find, problems: &mut Problems) -> Option<Source> {
    let folder = find(&work.folder);
    // The folder that --traces names may be the very one.
    let folder = if folder.is_dir() { folder } else { find(Path::new(".")) };
    let sessions = agents::read(&folder, &work.prefix).and_then(|sessions| match sessions.is_empty() {
        true => Err(format!("no `{}*.jsonl` in {}", work.prefix, folder.display())),
        false => Ok(sessions),
    });
    let refused = |error| problems.add("workload.agents.folder", error, where_from("agents"));
    let sessions = sessions.map_err(refused).ok()?;
    let (plays, every, think) = (work.plays, work.every.0, work.think.0);
    Some(Source::Agents(Arc::new(Agents { sessions, plays, every, think, model })))
}

fn where_from(kind: &str) -> &'static str {
    match kind {
        "mooncake" => {
            "get conversation_trace.jsonl from github.com/kvcache-ai/Mooncake, FAST25-release/traces, and name its folder with --traces"
        }
        "azure" => "get it from github.com/Azure/AzurePublicDataset, data/, and name its folder with --traces",
        _ => "get sessions from github.com/LMCache/lmcache-agent-trace and name their folder with --traces",
    }
}

fn script(work: &file::Conversations, first: &Arc<str>, models: &[String], problems: &mut Problems) -> Option<Script> {
    for (model, share) in &work.models {
        let key = format!("workload.conversations.models.{model}");
        if !models.contains(model) {
            problems.add(key, "no worker has it", format!("there are {}", models.join(", ")));
        } else if !(*share > 0.0 && share.is_finite()) {
            problems.add(key, "its share must be more than zero", "");
        }
    }
    let sizes = [("turns", work.turns), ("system", work.system), ("question", work.question), ("answer", work.answer)];
    for (name, size) in sizes {
        if !(size.mean > 0.0 && size.mean <= TOKENS_MAX && (0.0..=4.0).contains(&size.spread)) {
            let key = format!("workload.conversations.{name}");
            problems.add(key, "a mean above zero and a spread from 0 to 4", "{mean: 200, spread: 0.5}");
        }
    }
    let clients = match work.clients.as_str() {
        "one" => Some(Clients::One),
        "each" => Some(Clients::Each),
        number => number.parse().ok().filter(|count| *count > 0).map(Clients::Of),
    };
    if clients.is_none() {
        problems.add(
            "workload.conversations.clients",
            format!("`{}` is no number", work.clients),
            "one, each, or how many",
        );
    }
    let size = |size: file::Size| Size { mean: size.mean, spread: size.spread };
    let shares = work.models.iter().map(|(model, share)| (model.as_str().into(), *share));
    let shares: Vec<(Arc<str>, f64)> = shares.collect();
    Some(Script {
        conversations: work.count,
        turns: size(work.turns),
        every: work.every.0,
        by_chance: work.by_chance,
        think: work.think.0,
        system_prompts: work.system_prompts,
        system: size(work.system),
        first: size(work.first.unwrap_or(work.question)),
        question: size(work.question),
        answer: size(work.answer),
        models: if shares.is_empty() { vec![(first.clone(), 1.0)] } else { shares },
        clients: clients?,
    })
}

/// A mistyped size must not fill memory.
const TOKENS_MAX: f64 = 1e6;
