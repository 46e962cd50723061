//! The tables on the screen, and the files under `perf/results`.

use std::fmt::Write;

use serde_json::json;

use crate::Arguments;
use crate::contestant::Contestant;
use crate::measure::Row;
use crate::process::Cores;
use crate::provenance;
use crate::results;
use crate::summary::{Medians, Target, missing};

pub fn print(contestants: &[Contestant], rows: &[Row], medians: &Medians, targets: &[Target]) {
    let mut measures: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        if !measures.contains(&(row.measure.as_str(), row.unit)) {
            measures.push((&row.measure, row.unit));
        }
    }
    print!("{:<34}", "medians");
    let here: Vec<_> = contestants.iter().filter(|one| one.running.is_ok()).map(|one| one.name).collect();
    here.iter().for_each(|name| print!("{name:>14}"));
    println!();
    for (measure, unit) in measures {
        print!("{:<34}", format!("{measure} ({unit})"));
        for name in &here {
            match medians.get(name, measure) {
                Some(value) if value >= 100.0 => print!("{value:>14.0}"),
                Some(value) => print!("{value:>14.2}"),
                None => print!("{:>14}", "-"),
            }
        }
        println!();
    }
    for (name, why) in missing(contestants) {
        println!("{name} is missing: {why}");
    }
    println!();
    for Target { what, target, measured, met } in targets {
        let verdict = match met {
            Some(true) => "met:   ",
            Some(false) => "MISSED:",
            None => "       ",
        };
        println!("{verdict} {what:<52} {measured:>16}  (target {target})");
    }
}

pub fn keep(
    arguments: &Arguments,
    load_before: &str,
    contestants: &[Contestant],
    rows: &[Row],
    medians: &Medians,
    targets: &[Target],
) {
    let versions: serde_json::Map<String, serde_json::Value> = contestants
        .iter()
        .filter_map(|one| Some((one.name.to_owned(), one.running.as_ref().ok()?.version.clone().into())))
        .collect();
    let cores = Cores::split();
    let result = json!({
        "command": format!("cargo run --release --example compare{}", if arguments.scaling { " -- --scaling" } else { "" }),
        "commit": provenance::commit(),
        "machine": provenance::machine(),
        "load_averages_before": load_before,
        "note": arguments.note,
        "workload": {
            "rounds": arguments.rounds,
            "seconds_a_measure": arguments.seconds(),
            "upstreams": crate::UPSTREAMS,
            "pinned": match cores.proxy {
                Some(_) => "each proxy on core 0 with one thread; load and upstreams together on core 1",
                None => "nothing: there is one core",
            },
            "bodies": "chats of a system prompt, two turns and a question over OpenAI's path, going round 64 conversations",
            "streams": "100 chunks 10 ms apart, and one that ends",
            "order": "contestants in turn within each round, beginning with another in each",
        },
        "versions": versions,
        "missing": missing(contestants),
        "medians": medians.all(),
        "targets": targets,
        "run_again_when": "the way of a request through the edge, what is read of a body, Pingora, the profile or the allocator change",
    });
    let name = if arguments.scaling { "scaling" } else { "compare" };
    results::keep(name, &result, Some(&csv(rows)));
}

fn csv(rows: &[Row]) -> String {
    let mut text = String::from("round,contestant,measure,unit,value\n");
    for Row { round, contestant, measure, unit, value } in rows {
        let _ = writeln!(text, "{round},{contestant},{measure},{unit},{value:.3}");
    }
    text
}
