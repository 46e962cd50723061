//! What is wrong with a node, as one text from several finders.
//!
//! Probe and telemetry look at a node in turn and each knows half. Each keeps its own finding, so that
//! neither overwrites the other's; what several find is said once.

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

/// Who found something wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finder {
    /// Resolving its name. Whatever the others hear from the node refutes it.
    Address,
    Probe,
    Telemetry,
}

pub struct Problem {
    /// By finder; empty where nothing is wrong.
    findings: Mutex<[String; 3]>,
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

    /// Notes what `finder` found, empty for nothing. Returns all that is wrong if that changed.
    pub fn note(&self, finder: Finder, finding: &str) -> Option<Arc<String>> {
        let mut findings = self.findings.lock();
        findings[finder as usize] = finding.to_string();
        if finding.is_empty() {
            findings[Finder::Address as usize].clear();
        }
        let mut distinct: Vec<&str> = Vec::new();
        for finding in findings.iter().filter(|finding| !finding.is_empty()) {
            if !distinct.contains(&finding.as_str()) {
                distinct.push(finding);
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
        let noted = problem.note(finder, finding);
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
}
