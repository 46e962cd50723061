//! When are two model names the same model?
//!
//! On Ollama, case folds, no tag means `:latest`, and the default registry and namespace may be left
//! out (`server/routes.go`, `types/model`). Everywhere else a name is compared to the letter.

use super::chain::{hash_bytes, hash_text};

/// How clients' model names compare with an engine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    Ollama,
    Exact,
}

impl Naming {
    /// Whether an engine takes both spellings for the same without being told; case is not left to it,
    /// since Ollama folds it in some of its paths only.
    pub fn is_same(self, a: &str, b: &str) -> bool {
        match self {
            Naming::Ollama => canonical(a) == canonical(b),
            Naming::Exact => a == b,
        }
    }
}

const DEFAULT_REGISTRY: &str = "registry.ollama.ai/";
const DEFAULT_NAMESPACE: &str = "library/";

/// The one spelling under which all spellings of an Ollama name meet.
pub fn fold(name: &str) -> String {
    let mut folded = canonical(name);
    folded.make_ascii_lowercase();
    folded
}

/// The hash of `fold`'s spelling, without making it.
pub fn fold_hash(name: &str) -> u64 {
    let (bare, tag) = parts(name);
    let mut folded = [0; HASHED_IN_PLACE];
    let Some((here, rest)) = folded.split_at_mut_checked(bare.len()) else { return hash_text(&fold(name)) };
    let Some(there) = rest.get_mut(..tag.len()) else { return hash_text(&fold(name)) };
    here.copy_from_slice(bare.as_bytes());
    there.copy_from_slice(tag.as_bytes());
    let spelled = &mut folded[..bare.len() + tag.len()];
    spelled.make_ascii_lowercase();
    hash_bytes(spelled)
}

/// Longer names are hashed in a copy of their own; hardly any is.
const HASHED_IN_PLACE: usize = 128;

/// The name with its tag and without the parts that are implied; case kept.
pub fn canonical(name: &str) -> String {
    let (bare, tag) = parts(name);
    let mut canonical = String::with_capacity(bare.len() + tag.len());
    canonical.push_str(bare);
    canonical.push_str(tag);
    canonical
}

/// What is not implied of it, and the tag that is.
fn parts(name: &str) -> (&str, &'static str) {
    let name = strip_prefix_ignoring_case(name, DEFAULT_REGISTRY);
    let name = strip_prefix_ignoring_case(name, DEFAULT_NAMESPACE);
    // What stands last of the two: a tag, or a slash after which there is none.
    let last = name.bytes().rev().find(|byte| matches!(byte, b':' | b'/'));
    (name, if last == Some(b':') { "" } else { ":latest" })
}

fn strip_prefix_ignoring_case<'a>(text: &'a str, prefix: &str) -> &'a str {
    match text.split_at_checked(prefix.len()) {
        Some((head, rest)) if head.eq_ignore_ascii_case(prefix) => rest,
        _ => text,
    }
}

/// The `most` known names nearest to `wanted`, nearest first; names that share little are left out.
/// Looks at the first `MAX_COMPARED` names only: this is done for anybody who mistypes.
pub fn nearest(wanted: &str, known: &[String], most: usize) -> Vec<String> {
    let short = |name: &str| name.chars().take(MAX_COMPARED_CHARS).collect::<String>().to_lowercase();
    let wanted = short(wanted);
    let likeness = |name: &String| (strsim::jaro_winkler(&wanted, &short(name)), name.clone());
    let compared = known.iter().take(MAX_COMPARED).map(likeness);
    let mut like: Vec<(f64, String)> = compared.filter(|(likeness, _)| *likeness >= MIN_LIKENESS).collect();
    like.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    like.dedup();
    like.into_iter().take(most).map(|(_, name)| name).collect()
}

const MAX_COMPARED: usize = 1000;

/// Names come from clients and may be long; comparing is quadratic.
const MAX_COMPARED_CHARS: usize = 64;

/// Of 1; below it a suggestion would only puzzle.
const MIN_LIKENESS: f64 = 0.75;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, expected: &str) {
        assert_eq!(fold(name), expected);
        assert_eq!(fold_hash(name), hash_text(expected));
    }

    #[test]
    fn cat_01_implicit_latest() {
        check("moss", "moss:latest");
        check("moss:7b", "moss:7b");
        check("host.test:5000/org/moss", "host.test:5000/org/moss:latest");
    }

    #[test]
    fn a_tag_stands_after_the_last_slash() {
        check("host.test:5000/moss:7b", "host.test:5000/moss:7b");
        check("moss:7b/", "moss:7b/:latest");
        check("", ":latest");
    }

    #[test]
    fn a_name_longer_than_any_is_hashed_as_well() {
        for length in [HASHED_IN_PLACE - 8, HASHED_IN_PLACE - 7, HASHED_IN_PLACE - 6, HASHED_IN_PLACE, 300] {
            let name = "m".repeat(length);
            check(&name, &format!("{name}:latest"));
        }
    }

    #[test]
    fn cat_02_case_folds() {
        check("Moss:7B", "moss:7b");
    }

    #[test]
    fn cat_03_defaults_are_implied_and_nothing_else() {
        check("library/moss:7b", "moss:7b");
        check("registry.ollama.ai/library/moss", "moss:latest");
        check("pebblelab/moss:7b", "pebblelab/moss:7b");
        check("hub.test/pebblelab/moss-GGUF:Q4_K_M", "hub.test/pebblelab/moss-gguf:q4_k_m");
        check("é", "é:latest");
    }

    #[test]
    fn nearest_names_come_first() {
        let known = ["qwen3:32b", "qwen3.6:27b", "llama3.2:3b"].map(String::from);
        assert_eq!(nearest("qwen3.6:27", &known, 2), ["qwen3.6:27b", "qwen3:32b"]);
        assert_eq!(nearest("zzzzzzzzzzzzzzzzzzzz", &known, 2), [""; 0]);
    }
}
