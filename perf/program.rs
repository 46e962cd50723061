//! The `warmgate` program to be measured.

use std::path::PathBuf;

/// The build beside this example, of the same profile.
pub fn program() -> PathBuf {
    let example = std::env::current_exe().expect("our own path");
    let folder = example.parent().and_then(|p| p.parent());
    let program = folder.expect("a target folder").join("warmgate");
    assert!(program.exists(), "run `cargo build` first, with the same profile");
    program
}
