//! `warmgate demo`: the real gateway over a simulated fleet, to be tried with nothing but curl.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use super::{DemoArgs, EXIT_WRONG, logging};
use crate::config::{AccessLog, Admin, Listen, Plan, Upstream};
use crate::edge::ingress::Ingress;
use crate::edge::server::{Beside, serve};
use crate::sim::fleet::Fleet;

pub fn demo(args: DemoArgs) -> ExitCode {
    if !args.admin.ip().is_loopback() {
        eprintln!("warmgate: the admin address has no token yet and must be on this machine, such as 127.0.0.1:9435");
        return ExitCode::from(EXIT_WRONG);
    }
    logging::start();
    let served = Fleet::demo().map(Arc::new).and_then(|fleet| {
        let plan = plan(&args, &fleet)?;
        let services = vec![Box::new(fleet.service()) as Box<_>];
        let beside = Beside { services, simulated: true, greeting: Some(greeting), ..Beside::default() };
        serve(plan, beside).map_err(io::Error::other)
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("warmgate: {error}");
            ExitCode::FAILURE
        }
    }
}

fn plan(args: &DemoArgs, fleet: &Fleet) -> io::Result<Plan> {
    let upstreams = fleet.nodes().iter().map(|node| {
        let url = node.url().parse().map_err(|_| io::Error::other("the simulated fleet has no address"))?;
        Ok(Upstream { engine: Some("ollama"), slots: Some(4), ..Upstream::new(node.name().to_string(), url) })
    });
    let mut plan = Plan {
        listen: vec![Listen::plain(args.listen)],
        admin: Admin { address: args.admin, token: None, tls: None },
        upstreams: upstreams.collect::<io::Result<_>>()?,
        ..Plan::default()
    };
    plan.log.access = AccessLog::Text;
    Ok(plan)
}

fn greeting(_: &Ingress, address: SocketAddr) -> String {
    format!(
        "\nThis is a demo: three SIMULATED nodes, no model behind them. Try:\n\n\
         curl -i http://{address}/api/chat -d '{{\"model\": \"qwen3.6:27b\", \"messages\": \
         [{{\"role\": \"user\", \"content\": \"Why is the sky blue?\"}}]}}'\n"
    )
}
