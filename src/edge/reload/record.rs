//! One reload: who asked for it, and what came of it.
//!
//! Bounded whatever stood in the file, since some are remembered.

use std::time::Duration;

use log::Level;
use serde_json::{Value, json};

use super::Changes;
use crate::config::{Change, Problem, Problems};

#[derive(Clone, Debug)]
pub struct Record {
    pub cause: Cause,
    /// When it began, in milliseconds since 1970.
    pub wall_ms: u64,
    pub took: Duration,
    pub outcome: Outcome,
    /// Changes and problems beyond those that are kept.
    more: usize,
}

/// Who asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    File,
    Signal,
    Request,
}

#[derive(Clone, Debug)]
pub enum Outcome {
    /// The file is in force, as far as this process can have it.
    Applied(Changes),
    /// The file is bad, and nothing is changed.
    Refused(Refused),
    /// There is no file.
    NoFile,
}

/// Why a file was not taken.
#[derive(Clone, Debug)]
pub struct Refused {
    pub problems: Vec<Problem>,
    /// The problems as they are shown.
    lines: Vec<String>,
    more: usize,
}

/// Changes, or problems, of one reload that are kept.
const KEPT_MAX: usize = 100;

/// Of a value that is kept, written out; of longer ones only the key is.
const VALUE_BYTES_MAX: usize = 1024;

/// Of a text of a problem that is kept.
const TEXT_CHARS_MAX: usize = 400;

const NO_FILE: &str = "no configuration file was read at the start, so there is none to read again; start with -c FILE";

impl Record {
    pub fn new(cause: Cause, wall_ms: u64, took: Duration, mut outcome: Outcome) -> Record {
        let more = match &mut outcome {
            Outcome::Applied(changes) => bound(&mut changes.applied) + bound(&mut changes.needs_new_process),
            Outcome::Refused(refused) => refused.more,
            Outcome::NoFile => 0,
        };
        Record { cause, wall_ms, took, outcome, more }
    }

    pub fn status(&self) -> u16 {
        match self.outcome {
            Outcome::Applied(_) => 200,
            Outcome::Refused(_) => 422,
            Outcome::NoFile => 409,
        }
    }

    /// For people, a line each.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        match &self.outcome {
            Outcome::NoFile => lines.push(NO_FILE.to_owned()),
            Outcome::Refused(refused) => {
                lines.push("refused, and nothing is changed".to_owned());
                lines.extend(refused.lines.iter().cloned());
            }
            Outcome::Applied(changes) => {
                let count = changes.applied.len();
                lines.push(if count == 0 { "nothing has changed".into() } else { "in force".into() });
                lines.extend(changes.applied.iter().map(Change::to_string));
                let held = changes.needs_new_process.iter();
                lines.extend(held.map(|change| format!("needs a new process, and is as it was: {change}")));
            }
        }
        if self.more > 0 {
            lines.push(format!("and {} more", self.more));
        }
        lines
    }

    pub fn log(&self) {
        let level = match &self.outcome {
            Outcome::Applied(changes) if changes.needs_new_process.is_empty() => Level::Info,
            Outcome::Applied(_) | Outcome::NoFile => Level::Warn,
            Outcome::Refused(_) => Level::Error,
        };
        let by = self.cause.name();
        for line in self.lines() {
            log::log!(level, "configuration, by {by}: {line}");
        }
    }

    pub fn to_json(&self) -> Value {
        let (changes, held, problems) = match &self.outcome {
            Outcome::Applied(changes) => (&changes.applied[..], &changes.needs_new_process[..], &[][..]),
            Outcome::Refused(refused) => (&[][..], &[][..], &refused.problems[..]),
            Outcome::NoFile => (&[][..], &[][..], &[][..]),
        };
        json!({
            "outcome": self.outcome.name(),
            "cause": self.cause.name(),
            "at_ms": self.wall_ms,
            "took_ms": self.took.as_secs_f64() * 1000.0,
            "changes": changes,
            "needs_new_process": held,
            "problems": problems,
            "more": self.more,
            "lines": self.lines(),
        })
    }
}

impl Cause {
    pub fn name(self) -> &'static str {
        match self {
            Cause::File => "file",
            Cause::Signal => "SIGHUP",
            Cause::Request => "request",
        }
    }
}

impl Outcome {
    pub const NAMES: [&str; 4] = ["applied", "unchanged", "refused", "no_file"];

    pub fn name(&self) -> &'static str {
        match self {
            Outcome::Applied(changes) if *changes == Changes::default() => "unchanged",
            Outcome::Applied(_) => "applied",
            Outcome::Refused(_) => "refused",
            Outcome::NoFile => "no_file",
        }
    }
}

impl Refused {
    pub fn by(problems: &Problems) -> Refused {
        let kept = problems.list.iter().take(KEPT_MAX).map(|problem| Problem {
            path: short(&problem.path),
            line: problem.line,
            what: short(&problem.what),
            hint: short(&problem.hint),
        });
        Refused {
            problems: kept.collect(),
            lines: problems.lines().take(KEPT_MAX).collect(),
            more: problems.list.len().saturating_sub(KEPT_MAX),
        }
    }

    /// The file could not even be tried.
    pub fn unread() -> Refused {
        Refused { problems: Vec::new(), lines: vec!["reading the file failed inside Warmgate".into()], more: 0 }
    }
}

/// Cuts what is kept; gives how many were let go.
fn bound(changes: &mut Vec<Change>) -> usize {
    let more = changes.len().saturating_sub(KEPT_MAX);
    changes.truncate(KEPT_MAX);
    for change in changes {
        for value in [&mut change.from, &mut change.to] {
            if value.as_ref().is_some_and(|value| value.to_string().len() > VALUE_BYTES_MAX) {
                *value = None;
            }
        }
    }
    more
}

fn short(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{self, Plan};

    fn record(outcome: Outcome) -> Record {
        Record::new(Cause::Signal, 0, Duration::ZERO, outcome)
    }

    fn refused(text: &str) -> Outcome {
        Outcome::Refused(Refused::by(&config::parse(text, Path::new("x.yaml")).unwrap_err()))
    }

    #[track_caller]
    fn check(outcome: Outcome, name: &str, status: u16, lines: &[&str]) {
        let record = record(outcome);
        assert_eq!((record.outcome.name(), record.status()), (name, status));
        assert_eq!(record.lines(), lines);
    }

    #[test]
    fn what_is_told() {
        check(Outcome::NoFile, "no_file", 409, &[NO_FILE]);
        check(Outcome::Applied(Changes::default()), "unchanged", 200, &["nothing has changed"]);
        let new = config::parse("management: true\nserver: {threads: 7}", Path::new("x.yaml")).unwrap();
        let (needs_new_process, applied) =
            config::changes(&Plan::default(), &new).into_iter().partition(Change::needs_new_process);
        check(
            Outcome::Applied(Changes { applied, needs_new_process }),
            "applied",
            200,
            &["in force", "management: false -> true", "needs a new process, and is as it was: server.threads: 0 -> 7"],
        );
        check(
            refused("managment: true"),
            "refused",
            422,
            &["refused, and nothing is changed", "x.yaml:1: managment: unknown key; did you mean management?"],
        );
    }

    #[test]
    fn a_record_is_bounded() {
        let many: String = (0..500).map(|n| format!("k{n}{}: 1\n", "x".repeat(500))).collect();
        let record = record(refused(&many));
        assert_eq!(record.lines().len(), KEPT_MAX + 2);
        assert!(record.to_json().to_string().len() < 200 * KEPT_MAX * 10);
    }
}
