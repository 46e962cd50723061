//! `warmgate run`: serve.

use std::path::Path;
use std::process::ExitCode;

use super::{EXIT_WRONG, RunArgs, logging};
use crate::config::{self, Files, Plan, Upstream};
use crate::edge::reload::Source;
use crate::edge::server::{Beside, serve};

/// Where a configuration is looked for when none is named.
const PLACES: [&str; 2] = ["conf/warmgate.yaml", "/etc/warmgate/warmgate.yaml"];

/// Where engines listen unless told otherwise: Ollama, vLLM, llama.cpp, SGLang, LiteLLM. Whatever
/// answers there is used only if it is recognised by what it says.
const USUAL_PORTS: [u16; 5] = [11434, 8000, 8080, 30000, 4000];

pub fn run(args: RunArgs) -> ExitCode {
    let place = args.config.as_deref().or_else(|| config::first_of(&PLACES.map(Path::new)));
    let mut files = Files::default();
    let read = place.map_or(Ok(Plan::default()), |place| config::load_noting(place, &mut files));
    let mut plan = match read {
        Ok(plan) => plan,
        Err(problems) => {
            eprintln!("{problems}");
            return ExitCode::from(EXIT_WRONG);
        }
    };
    logging::start();
    match place {
        Some(place) => log::info!("configuration: {}", place.display()),
        None => log::info!("configuration: none, all defaults"),
    }
    complete(&mut plan);
    let source = place.map(|place| Source { path: place.to_owned(), files, complete });
    match serve(plan, Beside { source, upgrades: args.upgrade, ..Beside::default() }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("warmgate: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Without upstreams, takes whatever engine is found on this machine.
fn complete(plan: &mut Plan) {
    if !plan.upstreams.is_empty() {
        return;
    }
    plan.is_guess = true;
    log::info!("no upstream is configured: looking for engines on this machine, ports {USUAL_PORTS:?}");
    let own = plan.listen.iter().map(|listen| listen.address).chain([plan.admin.address]);
    let own: Vec<u16> = own.map(|address| address.port()).collect();
    let ports = USUAL_PORTS.iter().filter(|port| !own.contains(port));
    plan.upstreams = ports
        .filter_map(|port| {
            let url = format!("http://127.0.0.1:{port}").parse().ok()?;
            Some(Upstream::new(format!("local-{port}"), url))
        })
        .collect();
}
