//! What is wrong with a node, as one text from several finders.
//!
//! Probe and telemetry look at a node in turn and each knows half. Each keeps its own finding, so that
//! neither overwrites the other's; what several find is said once.

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

/// What kind of thing is wrong; what comes later outweighs what comes before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ailment {
    #[default]
    None,
    /// It will serve soon.
    Loading,
    /// It does not answer, or not as it should.
    Down,
    /// Something else answers there.
    WrongType,
    /// It does not accept our key.
    Auth,
}

/// What one look at a node found wrong, in words; empty for nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    pub ailment: Ailment,
    pub words: String,
}

impl Finding {
    pub fn new(ailment: Ailment, words: impl Into<String>) -> Finding {
        Finding { ailment, words: words.into() }
    }
}

/// Words alone are those of a node that is down.
impl From<String> for Finding {
    fn from(words: String) -> Finding {
        let ailment = if words.is_empty() { Ailment::None } else { Ailment::Down };
        Finding { ailment, words }
    }
}

impl From<&str> for Finding {
    fn from(words: &str) -> Finding {
        words.to_string().into()
    }
}

/// Who found something wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finder {
    /// Resolving its name. Whatever the others hear from the node refutes it.
    Address,
    Probe,
    Telemetry,
}

pub struct Problem {
    /// By finder.
    findings: Mutex<[Finding; 3]>,
    text: ArcSwap<String>,
}

impl Problem {
    /// With a text that stands until the first finding.
    pub fn new(text: &str) -> Problem {
        Problem { findings: Mutex::default(), text: ArcSwap::from_pointee(text.to_string()) }
    }

    /// All that is wrong, in words; empty when nothing is.
    pub fn load(&self) -> Arc<String> {
        self.text.load_full()
    }

    /// The gravest of all that is wrong.
    pub fn ailment(&self) -> Ailment {
        self.findings.lock().iter().map(|finding| finding.ailment).max().unwrap_or_default()
    }

    /// Notes what `finder` found. Returns all that is wrong if that changed.
    pub fn note(&self, finder: Finder, finding: Finding) -> Option<Arc<String>> {
        let mut findings = self.findings.lock();
        if finding.words.is_empty() {
            findings[Finder::Address as usize] = Finding::default();
        }
        findings[finder as usize] = finding;
        let mut distinct: Vec<&str> = Vec::new();
        for finding in findings.iter().filter(|finding| !finding.words.is_empty()) {
            if !distinct.contains(&finding.words.as_str()) {
                distinct.push(&finding.words);
            }
        }
        let text = Arc::new(distinct.join("; "));
        let before = self.text.swap(text.clone());
        (before != text).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(problem: &Problem, finder: Finder, finding: &str, news: Option<&str>) {
        let noted = problem.note(finder, finding.into());
        assert_eq!(noted.as_ref().map(|text| text.as_str()), news, "{finder:?}: {finding}");
    }

    #[test]
    fn findings_stand_side_by_side_and_only_changes_are_news() {
        let problem = Problem::new("not asked yet");
        check(&problem, Finder::Telemetry, "", Some(""));
        for news in [Some("refused"), None] {
            check(&problem, Finder::Probe, "refused", news);
            check(&problem, Finder::Telemetry, "refused", None);
        }
        check(&problem, Finder::Telemetry, "no `data`", Some("refused; no `data`"));
        check(&problem, Finder::Probe, "refused", None);
        check(&problem, Finder::Probe, "", Some("no `data`"));
        assert_eq!(*problem.load(), "no `data`");
        check(&problem, Finder::Telemetry, "", Some(""));
    }

    #[test]
    fn an_answer_refutes_that_the_name_leads_nowhere() {
        let problem = Problem::new("");
        check(&problem, Finder::Address, "no such host", Some("no such host"));
        check(&problem, Finder::Probe, "", Some(""));
    }

    #[test]
    fn the_gravest_counts_until_it_is_gone() {
        let problem = Problem::new("not asked yet");
        assert_eq!(problem.ailment(), Ailment::None);
        problem.note(Finder::Probe, "refused".into());
        assert_eq!(problem.ailment(), Ailment::Down);
        problem.note(Finder::Telemetry, Finding::new(Ailment::Auth, "no"));
        assert_eq!(problem.ailment(), Ailment::Auth);
        problem.note(Finder::Telemetry, "".into());
        assert_eq!(problem.ailment(), Ailment::Down);
    }
}
