//! A name behind which the rows of an upstream are found, and how finding them goes.
//!
//! The source that is asked may be away while all that it told is still believed: whether it answers, and what is
//! wrong, are therefore two things.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::config;
use crate::edge::clock::wall_ms;
use crate::edge::problem::{Finder, Problem};

/// A host name, or a service, whose addresses are rows.
pub struct Name {
    pub upstream: config::Upstream,
    /// Why nothing, or not all, is known of what is behind it.
    pub problem: Problem,
    answers: AtomicBool,
    /// Since when it does or does not, in milliseconds since 1970; zero: it was never asked.
    since_ms: AtomicU64,
}

impl Name {
    pub fn new(upstream: config::Upstream) -> Name {
        let problem = Problem::new("not looked up yet");
        Name { upstream, problem, answers: AtomicBool::new(false), since_ms: AtomicU64::new(0) }
    }

    /// The source was asked. Whether it answered, and what is wrong all the same; empty: nothing.
    pub fn note(&self, answers: bool, problem: String) {
        let is_change = self.answers.swap(answers, Ordering::Relaxed) != answers;
        if is_change || self.since_ms.load(Ordering::Relaxed) == 0 {
            self.since_ms.store(wall_ms(), Ordering::Relaxed);
        }
        let name = &self.upstream.name;
        match self.problem.note(Finder::Address, problem.into()).as_deref().map(String::as_str) {
            None => {}
            Some("") => log::info!("{name}: found"),
            Some(problem) => log::warn!("{name}: {problem}"),
        }
    }

    /// Its source answered when it was last asked.
    pub fn answers(&self) -> bool {
        self.answers.load(Ordering::Relaxed)
    }

    /// For `/fleet/status`.
    pub fn to_json(&self, rows: usize) -> Value {
        let problem = self.problem.load();
        json!({
            "name": self.upstream.name,
            "by": self.upstream.discover.as_ref().map(|discover| discover.name()),
            "rows": rows,
            "answers": self.answers(),
            "since_ms": Some(self.since_ms.load(Ordering::Relaxed)).filter(|since_ms| *since_ms > 0),
            "problem": Some(&*problem).filter(|problem| !problem.is_empty()),
        })
    }
}
