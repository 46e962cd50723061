//! Which models a tenant may ask for, by the names that clients write.
//!
//! Names are compared as everywhere (`routing::name`): case folds, and no tag means `:latest`. A `*` stands
//! for any text, also for none.

use crate::routing::name;

pub struct Models {
    /// `None`: all.
    patterns: Option<Vec<String>>,
}

/// What a name without a tag means.
const LATEST: &str = ":latest";

impl Models {
    pub fn of(written: Option<&[String]>) -> Models {
        Models { patterns: written.map(|patterns| patterns.iter().map(|pattern| folded(pattern)).collect()) }
    }

    pub fn are_all(&self) -> bool {
        self.patterns.is_none()
    }

    pub fn contain(&self, model: &str) -> bool {
        let Some(patterns) = &self.patterns else { return true };
        let name = name::fold(model);
        let bare = name.strip_suffix(LATEST);
        patterns.iter().any(|pattern| fits(pattern, &name) || bare.is_some_and(|bare| fits(pattern, bare)))
    }
}

/// A pattern's tag is not guessed where a `*` may stand for it.
fn folded(pattern: &str) -> String {
    let folded = name::fold(pattern);
    let has_tag = pattern.to_ascii_lowercase().ends_with(LATEST);
    match folded.strip_suffix(LATEST) {
        Some(bare) if pattern.contains('*') && !has_tag => bare.to_owned(),
        _ => folded,
    }
}

fn fits(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(mut left) = text.strip_prefix(start).and_then(|left| left.strip_suffix(end)) else { return false };
    for part in middle.split('*') {
        match left.find(part) {
            Some(at) => left = left.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(patterns: &[&str], model: &str, expected: bool) {
        let patterns: Vec<String> = patterns.iter().map(|pattern| pattern.to_string()).collect();
        assert_eq!(Models::of(Some(&patterns)).contain(model), expected, "{patterns:?} {model}");
    }

    #[test]
    fn names_are_folded() {
        check(&["Moss"], "moss:latest", true);
        check(&["moss:latest"], "MOSS", true);
        check(&["moss"], "registry.ollama.ai/library/moss", true);
        check(&["moss"], "moss:7b", false);
        check(&["moss"], "pebblelab/moss", false);
        check(&["Qwen/Qwen3-32B"], "qwen/qwen3-32b", true);
        check(&["fern", "moss"], "moss", true);
    }

    #[test]
    fn a_star_stands_for_anything() {
        check(&["qwen3*"], "qwen3:32b", true);
        check(&["qwen3*"], "qwen3.6:27b", true);
        check(&["qwen3*"], "Qwen3", true);
        check(&["qwen3*"], "my-qwen3", false);
        check(&["library/qwen3*"], "qwen3:32b", true);
        check(&["*-chat"], "my-chat", true);
        check(&["*-chat"], "my-chat:latest", true);
        check(&["*-chat"], "my-chat:7b", false);
        check(&["*:latest"], "moss", true);
        check(&["moss:*"], "moss", true);
        check(&["a*b*c"], "a-b-b-c", true);
        check(&["a*b*c"], "a-c", false);
        check(&["ab*ba"], "aba", false);
        check(&["*"], "anything/at:all", true);
        check(&["**"], "", true);
        check(&["a*é*z"], "a-é-z", true);
    }

    #[test]
    fn no_list_is_all_of_them() {
        assert!(Models::of(None).contain("moss") && Models::of(None).are_all());
        assert!(!Models::of(Some(&[])).contain("moss"));
    }
}
