//! Where a result comes from: the machine, its load, the commit and the day.

use std::process::Command;

pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split(": ").nth(1));
    format!("{cores} cores, {}", name.unwrap_or("processor unknown"))
}

/// The system's load averages over 1, 5 and 15 minutes.
#[allow(dead_code)]
pub fn load() -> String {
    let all = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    all.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

pub fn commit() -> String {
    said("git", &["describe", "--always", "--dirty", "--abbrev=12"])
}

pub fn date() -> String {
    said("date", &["-u", "+%Y-%m-%d"])
}

/// What a command prints, or `unknown`.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
    match text {
        Ok(text) if !text.is_empty() => text,
        _ => "unknown".to_owned(),
    }
}
