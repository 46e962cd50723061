//! `warmgate run`: serve.

use std::path::Path;
use std::process::ExitCode;

use super::{EXIT_WRONG, RunArgs, logging};
use crate::config::{self, Plan, Upstream};
use crate::edge::server::{Beside, serve};

/// Where a configuration is looked for when none is named.
const PLACES: [&str; 2] = ["conf/warmgate.yaml", "/etc/warmgate/warmgate.yaml"];

/// Where engines listen unless told otherwise: Ollama, vLLM, llama.cpp, SGLang, LiteLLM. Whatever
/// answers there is used only if it is recognised by what it says.
const USUAL_PORTS: [u16; 5] = [11434, 8000, 8080, 30000, 4000];

pub fn run(args: RunArgs) -> ExitCode {
    let read = match &args.config {
        Some(path) => config::load(path).map(|plan| (plan, Some(path.as_path()))),
        None => config::load_first(&PLACES.map(Path::new)),
    };
    let (mut plan, place) = match read {
        Ok(read) => read,
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
    let is_guess = plan.upstreams.is_empty();
    if is_guess {
        look_around(&mut plan);
    }
    match serve(plan, Beside { is_guess, ..Beside::default() }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("warmgate: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Takes whatever engine is found on this machine.
fn look_around(plan: &mut Plan) {
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
