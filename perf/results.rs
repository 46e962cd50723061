//! Targets, and the files under `perf/results`.

use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::Value;

use crate::provenance;

/// A sentence that must be true, and whether it is.
#[derive(Serialize)]
pub struct Target {
    pub what: String,
    pub met: bool,
}

impl Target {
    pub fn new(met: bool, what: impl Into<String>) -> Target {
        Target { what: what.into(), met }
    }
}

pub fn print(targets: &[Target]) {
    for target in targets {
        println!("{} {}", if target.met { "met:   " } else { "MISSED:" }, target.what);
    }
}

pub fn exit_code(targets: &[Target]) -> ExitCode {
    if targets.iter().all(|target| target.met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Writes the result, and the raw rows as `csv` where there are any, named by the date.
pub fn keep(run: &str, result: &Value, csv: Option<&str>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("perf/results");
    std::fs::create_dir_all(&folder).expect("perf/results");
    let name = format!("{run}-{}", provenance::date());
    std::fs::write(folder.join(format!("{name}.json")), format!("{result:#}\n")).expect("the result");
    if let Some(csv) = csv {
        std::fs::write(folder.join(format!("{name}.csv")), csv).expect("the rows");
    }
    println!("kept as perf/results/{name}.json{}", if csv.is_some() { " and .csv" } else { "" });
}
