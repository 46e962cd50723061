//! How many instructions do the pure parts of a request's way take?
//!
//! Times differ from machine to machine and from minute to minute, instructions hardly: Valgrind counts them
//! over inputs that are always the same, and they are compared with what is kept in
//! `perf/results/instructions.json`. The program runs itself, each operation a few times and then more times; the
//! difference is the operation's alone.
//!
//! ```text
//! cargo run --release --example instructions                        # fails beyond +10 %
//! cargo run --release --example instructions -- --update "why they changed"
//! ```

#[path = "../body.rs"]
mod body;
#[path = "../fleet.rs"]
#[allow(dead_code)]
mod fleet;
mod operation;
#[path = "../provenance.rs"]
#[allow(dead_code)]
mod provenance;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Parser;
use serde_json::{Value, json};

/// Of the kept figures, before it is too many.
const GROWTH_MAX: f64 = 0.10;
/// A few operations, and more.
const TIMES: (usize, usize) = (3, 23);

#[derive(Parser)]
struct Arguments {
    /// Keeps the figures instead of comparing them, for this reason.
    #[arg(long, value_name = "REASON")]
    update: Option<String>,
    /// Does the operation of that number so many times, and nothing else.
    #[arg(long, hide = true, num_args = 2, value_names = ["NUMBER", "TIMES"])]
    perform: Option<Vec<usize>>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some([number, times]) = arguments.perform.as_deref() {
        (operation::ALL[*number].run)(*times);
        return ExitCode::SUCCESS;
    }
    let counted: BTreeMap<&str, u64> =
        operation::ALL.iter().enumerate().map(|(number, operation)| (operation.name, count(number))).collect();
    match arguments.update {
        Some(reason) => {
            keep(&counted, &reason);
            ExitCode::SUCCESS
        }
        None => compare(&counted),
    }
}

/// Instructions of one operation.
fn count(number: usize) -> u64 {
    let [few, many] = [TIMES.0, TIMES.1].map(|times| counted(number, times));
    many.saturating_sub(few) / (TIMES.1 - TIMES.0) as u64
}

fn counted(number: usize, times: usize) -> u64 {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    valgrind.arg(std::env::current_exe().expect("our own path"));
    let output = valgrind.args(["--perform", &number.to_string(), &times.to_string()]).output();
    let output = output.unwrap_or_else(|e| panic!("valgrind counts instructions, and cannot be started: {e}"));
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().find_map(|line| line.split_once("Collected : "));
    let count = line.and_then(|(_, count)| count.trim().parse().ok());
    count.unwrap_or_else(|| panic!("valgrind counted nothing:\n{said}"))
}

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("perf/results/instructions.json")
}

fn compare(counted: &BTreeMap<&str, u64>) -> ExitCode {
    let kept: Value =
        std::fs::read(file()).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    let mut grown = false;
    for (name, now) in counted {
        let before = kept["instructions"][name].as_u64();
        let growth = before.map(|before| *now as f64 / before as f64 - 1.0);
        let too_many = growth.is_none_or(|growth| growth > GROWTH_MAX);
        grown |= too_many;
        let told = growth.map_or("new".into(), |growth| format!("{:+.1} %", growth * 100.0));
        println!("{} {name:<52}{now:>12}{told:>10}", if too_many { "MISSED:" } else { "met:   " });
    }
    if grown {
        println!(
            "more than {:.0} % above {}: mend it, or keep what is counted now:",
            GROWTH_MAX * 100.0,
            file().display()
        );
        println!("    cargo run --release --example instructions -- --update 'why they changed'");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn keep(counted: &BTreeMap<&str, u64>, reason: &str) {
    counted.iter().for_each(|(name, now)| println!("{name:<52}{now:>12}"));
    let compiler = Command::new("rustc")
        .arg("-V")
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let result = json!({
        "command": "cargo run --release --example instructions -- --update REASON",
        "reason": reason,
        "date": provenance::date(),
        "commit": provenance::commit(),
        "machine": provenance::machine(),
        "compiler": compiler.unwrap_or_default(),
        "instructions": counted,
        "run_again_when": "a change of the pure parts moves a figure by more than a tenth, or the compiler or a crate does",
    });
    std::fs::write(file(), format!("{result:#}\n")).expect("the figures");
}
