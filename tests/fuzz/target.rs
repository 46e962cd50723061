//! What is fuzzed: the readers of bytes from outside, each with its laws.

use std::path::Path;

use super::law;

pub struct Target {
    pub name: &'static str,
    /// Words of its formats, thrown in by the mutations.
    pub words: &'static [&'static str],
    /// Holds an input against the laws. Tells how it ended, coarsely, or which law it broke.
    pub check: fn(&[u8]) -> Result<u64, String>,
}

pub static TARGETS: [&Target; 8] = [
    &law::peek::TARGET,
    &law::form::TARGET,
    &law::observe::TARGET,
    &law::prometheus::TARGET,
    &law::request::TARGET,
    &law::answer::TARGET,
    &law::engines::TARGET,
    &law::config::TARGET,
];

impl Target {
    /// The committed seeds, in the order of their names.
    pub fn corpus(&self) -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(self.name);
        let entries = folder.read_dir().unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut files: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
        files.sort();
        files.iter().map(|file| std::fs::read(file).expect("a readable seed")).collect()
    }
}

/// Fails with the words unless `holds`.
pub fn law(holds: bool, words: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(words()) }
}
