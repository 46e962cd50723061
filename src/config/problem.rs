//! What is wrong with a configuration, in words its writer can act on.
//!
//! A `Report` collects while the text is read and knows only key paths; the lines are looked up at
//! the end, and only if there is something to report. Values of secrets never get here: the readers
//! of secrets do not quote them.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::files::Files;
use super::lines::Lines;

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Key path such as `upstreams[1].url`; empty: the file as a whole.
    pub path: String,
    /// Line in the text, from 1, where known.
    pub line: Option<usize>,
    pub what: String,
    /// What to do about it; may be empty.
    pub hint: String,
}

/// Every problem of one text, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    /// The name of the text: its path as the user gave it.
    pub origin: PathBuf,
    /// In the order of the text.
    pub list: Vec<Problem>,
}

impl Problems {
    /// The file could not be read at all.
    pub fn unreadable(origin: &Path, why: &str) -> Problems {
        let what = format!("cannot be read: {why}");
        Problems::syntax(origin, Problem { path: String::new(), line: None, what, hint: String::new() })
    }

    /// One line each, as they are shown.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.list.iter().map(|problem| format!("{}:{problem}", self.origin.display()))
    }

    /// The text could not be understood far enough to look at its keys.
    pub fn syntax(origin: &Path, problem: Problem) -> Problems {
        Problems { origin: origin.to_owned(), list: vec![problem] }
    }
}

impl std::error::Error for Problems {}

/// Problems that are shown. Whoever has more has made one mistake many times.
const SHOWN_MAX: usize = 100;

impl fmt::Display for Problems {
    /// One line a problem: `conf/x.yaml:12: upstreams[0].slotz: unknown key; did you mean slots?`
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for (index, line) in self.lines().take(SHOWN_MAX).enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{line}")?;
        }
        match self.list.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            1 => write!(f, "\n{}: and one problem more", self.origin.display()),
            more => write!(f, "\n{}: and {more} problems more", self.origin.display()),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        if !self.path.is_empty() {
            write!(f, " {}:", OneLine(&self.path))?;
        }
        write!(f, " {}", OneLine(&self.what))?;
        if !self.hint.is_empty() {
            write!(f, "; {}", OneLine(&self.hint))?;
        }
        Ok(())
    }
}

/// Text that may quote the file: control characters are escaped and long quotes cut, so that a
/// problem stays one line whatever was written.
struct OneLine<'a>(&'a str);

const QUOTE_CHARS_MAX: usize = 400;

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for c in self.0.chars().take(QUOTE_CHARS_MAX) {
            match c.is_control() {
                true => write!(f, "{}", c.escape_default())?,
                false => write!(f, "{c}")?,
            }
        }
        if self.0.chars().nth(QUOTE_CHARS_MAX).is_some() { f.write_str("...") } else { Ok(()) }
    }
}

/// Problems found so far.
#[derive(Debug, Default)]
pub struct Report {
    /// Every key path there is, to tell where a misplaced key belongs.
    schema: Vec<String>,
    found: Vec<Found>,
    /// The paths of `found`.
    paths: HashSet<String>,
    /// What was read on the way.
    pub files: Files,
}

#[derive(Debug)]
struct Found {
    path: String,
    what: String,
    hint: String,
    /// The key stands there twice, and the second place is meant.
    repeated: bool,
}

impl Report {
    pub fn with_schema(schema: Vec<String>) -> Report {
        Report { schema, ..Report::default() }
    }

    pub fn add(&mut self, path: impl Into<String>, what: impl Into<String>, hint: impl Into<String>) {
        self.push(Found { path: path.into(), what: what.into(), hint: hint.into(), repeated: false });
    }

    /// The same key again in one section.
    /// Whether there is a problem with that very key.
    pub fn has(&self, path: &str) -> bool {
        self.found.iter().any(|problem| problem.path == path)
    }

    pub fn add_repeated(&mut self, path: impl Into<String>) {
        let what = "written twice".to_owned();
        self.push(Found { path: path.into(), what, hint: "keep one of them".into(), repeated: true });
    }

    /// A required key is not there; says nothing if it is there and was found wanting already.
    pub fn add_missing(&mut self, path: &str, hint: &str) {
        if !self.paths.contains(path) {
            self.add(path, "missing", hint);
        }
    }

    fn push(&mut self, found: Found) {
        self.paths.insert(found.path.clone());
        self.found.push(found);
    }

    /// Where a key of this name stands: a few paths.
    pub fn places_of(&self, key: &str) -> Vec<String> {
        const PLACES_MAX: usize = 3;
        let mut places: Vec<String> = self.schema.iter().filter_map(|path| place_in(path, key)).collect();
        places.dedup();
        places.truncate(PLACES_MAX);
        places
    }

    /// Looks up the lines; `None` if there was no problem.
    pub fn into_problems(self, origin: &Path, text: &str) -> Option<Problems> {
        if self.found.is_empty() {
            return None;
        }
        let lines = Lines::of(text);
        let mut list: Vec<Problem> = self.found.into_iter().map(|found| found.at_its_line(&lines)).collect();
        list.sort_by_key(|problem| problem.line);
        Some(Problems { origin: origin.to_owned(), list })
    }
}

/// The part of `path` that ends with `key`.
fn place_in(path: &str, key: &str) -> Option<String> {
    let segments: Vec<&str> = path.split('.').collect();
    let at = segments.iter().position(|segment| segment.trim_end_matches("[]") == key)?;
    Some(segments[..=at].join("."))
}

impl Found {
    fn at_its_line(self, lines: &Lines) -> Problem {
        let line = if self.repeated { lines.last(&self.path) } else { lines.first(&self.path) };
        Problem { path: self.path, line, what: self.what, hint: self.hint }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, line: Option<usize>, what: &str, hint: &str, expected: &str) {
        let problem = Problem { path: path.into(), line, what: what.into(), hint: hint.into() };
        assert_eq!(Problems::syntax(Path::new("conf/x.yaml"), problem).to_string(), expected);
    }

    #[test]
    fn reads_like_a_compiler() {
        check("a.b", Some(12), "unknown key", "did you mean c?", "conf/x.yaml:12: a.b: unknown key; did you mean c?");
        check("a", None, "missing", "", "conf/x.yaml: a: missing");
        check("", None, "cannot be read: no", "", "conf/x.yaml: cannot be read: no");
        check("a\nb", Some(1), "x\u{1b}[31m", "", "conf/x.yaml:1: a\\nb: x\\u{1b}[31m");
    }

    #[test]
    fn of_very_many_problems_the_first_are_shown_and_the_rest_counted() {
        let problem = |n| Problem { path: format!("a[{n}]"), line: None, what: "bad".into(), hint: String::new() };
        for (count, lines, last) in [
            (100, 100, "x: a[99]: bad"),
            (101, 101, "x: and one problem more"),
            (20_000, 101, "x: and 19900 problems more"),
        ] {
            let shown = Problems { origin: "x".into(), list: (0..count).map(problem).collect() }.to_string();
            assert_eq!((shown.lines().count(), shown.lines().last()), (lines, Some(last)));
        }
    }

    #[test]
    fn long_quotes_are_cut() {
        assert_eq!(OneLine(&"x".repeat(1000)).to_string().len(), QUOTE_CHARS_MAX + 3);
    }
}
