//! The decision core and the readers of other people's bytes are pure, and every file is small.
//!
//! `src/routing` and `src/wire` may compute and nothing else: no files, sockets, clocks, chance,
//! tasks, globals or logs. This is checked on the source text, with comments and strings taken out;
//! it is a lint against slips, not a proof against tricks.

mod scan;

use std::path::{Path, PathBuf};

use scan::impurities;

/// No file is longer; one that wants to be holds two ideas.
const FILE_LINES_MAX: usize = 500;

#[test]
fn the_core_is_pure() {
    let mut found = Vec::new();
    for file in rust_files(&["src/routing", "src/routing.rs", "src/wire", "src/wire.rs"]) {
        for (line, word) in impurities(&read(&file)) {
            found.push(format!("{}:{line}: {word}", file.display()));
        }
    }
    assert!(found.is_empty(), "the pure part is not:\n{}", found.join("\n"));
}

#[test]
fn files_are_small_and_say_what_they_are() {
    let mut found = Vec::new();
    for file in rust_files(&["src", "tests", "perf"]) {
        let text = read(&file);
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            found.push(format!("{}: {lines} lines", file.display()));
        }
        if !text.starts_with("//!") {
            found.push(format!("{}: does not open with `//!`", file.display()));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// All Rust files at or under these places of the repository, in which cargo runs its tests. A place
/// without any is a mistake: what moved away would be scanned no more.
fn rust_files(places: &[&str]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for place in places {
        let before = files.len();
        collect(Path::new(place), &mut files);
        assert!(files.len() > before, "nothing to scan at {place}");
    }
    files.sort();
    files
}

fn collect(place: &Path, files: &mut Vec<PathBuf>) {
    if place.extension().is_some_and(|e| e == "rs") {
        files.push(place.to_owned());
    }
    for entry in place.read_dir().into_iter().flatten() {
        let entry = entry.expect("a readable folder").path();
        // Builds of crates that live under perf/ are not ours.
        if !entry.ends_with("target") {
            collect(&entry, files);
        }
    }
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}
