//! The tables on the screen, and the files under `perf/results`.

use std::fmt::Write;

use serde_json::json;

use crate::contestant::Contestant;
use crate::measure::{Measured, Row, Void};
use crate::provenance;
use crate::results;
use crate::summary::{Medians, Target, missing};
use crate::{Arguments, Run};

pub fn print(contestants: &[Contestant], measured: &Measured, medians: &Medians, targets: &[Target]) {
    let mut measures: Vec<(&str, &str)> = Vec::new();
    for row in &measured.rows {
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
                None if measured.is_void(name, measure) => print!("{:>14}", "void"),
                None => print!("{:>14}", "-"),
            }
        }
        println!();
    }
    for (name, why) in missing(contestants) {
        println!("{name} is missing: {why}");
    }
    for Void { round, contestant, measure, why } in &measured.voids {
        println!("void: {contestant}, round {}, {measure}: {why}", round + 1);
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
    run: &Run,
    contestants: &[Contestant],
    measured: &Measured,
    medians: &Medians,
    targets: &[Target],
) {
    let versions: serde_json::Map<String, serde_json::Value> = contestants
        .iter()
        .filter_map(|one| Some((one.name.to_owned(), one.running.as_ref().ok()?.version.clone().into())))
        .collect();
    let result = json!({
        "command": format!("cargo run --release --example compare{}", if arguments.scaling { " -- --scaling" } else { "" }),
        "commit": provenance::commit(),
        "machine": run.machine,
        "load_averages_before": run.load_before,
        "note": arguments.note,
        "workload": {
            "rounds": arguments.rounds,
            "seconds_a_measure": arguments.seconds(),
            "open_files_allowed": run.open_files,
            "idle_streams_wanted": run.idle_streams,
            "upstreams": crate::UPSTREAMS,
            "pinned": match run.cores.proxy {
                Some(_) => "each proxy on core 0 with one thread; load and upstreams together on core 1",
                None => "nothing: there is one core",
            },
            "bodies": "chats of a system prompt, two turns and a question over OpenAI's path, going round 64 conversations",
            "streams": "100 chunks 10 ms apart, and one that ends",
            "order": "contestants in turn, the others stopped meanwhile; each round begins with another and goes the other way round than the one before; a second of load before each turn is not counted",
        },
        "versions": versions,
        "missing": missing(contestants),
        "void": measured.voids,
        "medians": medians.all(),
        "targets": targets,
        "run_again_when": "the way of a request through the edge, what is read of a body, Pingora, the profile or the allocator change",
    });
    let name = if arguments.scaling { "scaling" } else { "compare" };
    results::keep(name, &result, Some(&csv(measured)));
}

fn csv(measured: &Measured) -> String {
    let mut text = String::from("round,contestant,measure,unit,value\n");
    for Row { round, contestant, measure, unit, value } in &measured.rows {
        let _ = writeln!(text, "{round},{contestant},{measure},{unit},{value:.3}");
    }
    for Void { round, contestant, measure, why } in &measured.voids {
        let _ = writeln!(text, "{round},{contestant},{measure},void,\"{}\"", why.replace('"', "'"));
    }
    text
}
