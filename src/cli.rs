//! The command line: what may be written there, and which command it starts.
//!
//! Exit codes: 0 fine, 1 failed, 2 wrong arguments or configuration. Answers go to standard output,
//! complaints to standard error.

mod check;
mod demo;
mod explain;
mod hash_key;
pub mod logging;
mod order;
mod run;
mod simulate;
pub mod target;
mod top;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use target::TargetArgs;

/// Wrong arguments or configuration.
const EXIT_WRONG: u8 = 2;

#[derive(Debug, Parser)]
#[command(name = "warmgate", version, about, after_help = EXAMPLES, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  warmgate demo                             try it without any engine
  warmgate check -c conf/warmgate.yaml      is this file right, and what does it say?
  warmgate run -c conf/warmgate.yaml        serve
  warmgate run                              serve the engines that run on this machine
  openssl rand -hex 32 | tee key | warmgate hash-key
                                            make a key for a client, and its line for the configuration
  warmgate reload                           have a running one read its configuration again
  warmgate drain studio                     let a node finish, for maintenance; `resume` ends it
  warmgate run -c FILE --upgrade            take over from the one that serves
  warmgate top                              watch nodes, requests and conversations
  warmgate explain --request body.json      where would this request go, and why?

Exit codes: 0 fine, 1 failed, 2 wrong arguments or configuration.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve
    Run(RunArgs),
    /// Validate a configuration: print every problem, or what was understood; open nothing
    Check(CheckArgs),
    /// Ask a running Warmgate how it would route a request; send it nowhere
    Explain(ExplainArgs),
    /// Serve over an embedded simulated fleet, to try it with nothing but curl
    Demo(DemoArgs),
    /// Read a client's key from standard input, print the line for `tenants` in the configuration
    HashKey,
    /// Have a running Warmgate read its configuration again; print what that changed, or what is wrong
    Reload(TargetArgs),
    /// Give a node no new work and let it finish what runs, until `resume`, or a restart without `state_file`
    Drain(NodeArgs),
    /// End a drain
    Resume(NodeArgs),
    /// Watch a running Warmgate: nodes, queues, conversations, first-token times
    Top(TopArgs),
    /// Run the routing core in virtual time over a trace or made-up conversations, policies side by side
    #[command(after_help = SIMULATE_EXAMPLES)]
    Simulate(SimulateArgs),
}

const SIMULATE_EXAMPLES: &str = "\
Examples:
  warmgate simulate --plan perf/plans/toy.yaml
  warmgate simulate --plan perf/plans/slot_bound.yaml --policy fleet --policy round_robin
  warmgate simulate --plan perf/plans/conversation.yaml --traces ../traces --out /tmp/rows

All times are simulated. Rows (JSON lines) and a plot (SVG) go to the folder of --out.";

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Configuration; without it conf/warmgate.yaml, then /etc/warmgate/warmgate.yaml, then defaults
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Take the ports and what was learnt over from the Warmgate that serves, if one does; it then finishes what runs
    /// there and ends. No client is refused
    #[arg(long)]
    pub upgrade: bool,
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Configuration to validate
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
}

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The request's body, JSON as a client would send it
    #[arg(long, value_name = "FILE")]
    pub request: PathBuf,
    /// The path that it would be sent to
    #[arg(long, value_name = "PATH", default_value = "/api/chat")]
    pub path: String,
    #[command(flatten)]
    pub target: TargetArgs,
    /// The whole answer as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Address for clients
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:11435")]
    pub listen: SocketAddr,
    /// Address for the dashboard, metrics, status and receipts
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9435")]
    pub admin: SocketAddr,
}

#[derive(Debug, Args)]
pub struct NodeArgs {
    /// The node as headers and screens name it, or an upstream with all its rows
    #[arg(value_name = "NODE")]
    pub node: String,
    #[command(flatten)]
    pub target: TargetArgs,
}

#[derive(Debug, Args)]
pub struct TopArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Print one view as text, and end
    #[arg(long)]
    pub once: bool,
}

#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// Nodes, traffic and policies; may be repeated, to see several side by side
    #[arg(short, long, value_name = "FILE", required = true)]
    pub plan: Vec<PathBuf>,
    /// Folder of the plan's trace files; without it the plan's own paths count, from its folder
    #[arg(long, value_name = "DIR")]
    pub traces: Option<PathBuf>,
    /// Where to write rows and plot
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Only this policy; may be repeated
    #[arg(long, value_name = "NAME")]
    pub policy: Vec<String>,
    /// Only this seed; may be repeated
    #[arg(long, value_name = "N")]
    pub seed: Vec<u64>,
    /// Times as fast as the traffic was; may be repeated
    #[arg(long, value_name = "X")]
    pub rate: Vec<f64>,
}

/// Runs the command that the arguments of this process name.
pub fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Run(args) => run::run(args),
        Command::Check(args) => check::check(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Demo(args) => demo::demo(args),
        Command::HashKey => hash_key::hash_key(),
        Command::Reload(args) => order::reload(&args),
        Command::Drain(args) => order::drain(&args.target, &args.node),
        Command::Resume(args) => order::resume(&args.target, &args.node),
        Command::Top(args) => top::top(&args),
        Command::Simulate(args) => simulate::simulate(&args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[track_caller]
    fn check(args: &str, expected: Result<&str, i32>) {
        let parsed = Cli::try_parse_from(args.split(' ')).map(|cli| format!("{:?}", cli.command));
        let expected = expected.map(str::to_owned);
        assert_eq!(parsed.map_err(|error| error.exit_code()), expected, "{args}");
    }

    #[test]
    fn arguments() {
        Cli::command().debug_assert();
        check("warmgate run", Ok("Run(RunArgs { config: None, upgrade: false })"));
        check("warmgate run -c a.yaml", Ok("Run(RunArgs { config: Some(\"a.yaml\"), upgrade: false })"));
        check("warmgate run --upgrade", Ok("Run(RunArgs { config: None, upgrade: true })"));
        check("warmgate check --config a.yaml", Ok("Check(CheckArgs { config: \"a.yaml\" })"));
        check("warmgate demo", Ok("Demo(DemoArgs { listen: 127.0.0.1:11435, admin: 127.0.0.1:9435 })"));
        check("warmgate hash-key", Ok("HashKey"));
        let nowhere = "TargetArgs { config: None, admin: None, token: None, ca: None }";
        check("warmgate reload", Ok(&format!("Reload({nowhere})")));
        check("warmgate drain gpus/0", Ok(&format!("Drain(NodeArgs {{ node: \"gpus/0\", target: {nowhere} }})")));
        check(
            "warmgate reload --admin https://gate:1 --token hunter2 --ca ca.crt -c a.yaml",
            Ok("Reload(TargetArgs { config: Some(\"a.yaml\"), \
                admin: Some(UpstreamUrl { tls: true, host: \"gate\", port: 1, path: \"\" }), \
                token: Some((hidden)), ca: Some(\"ca.crt\") })"),
        );
        check("warmgate reload --admin here://gate", Err(2));
        check("warmgate reload --token a\tb", Err(2));
        check("warmgate resume", Err(2));
        check(
            "warmgate explain --request b.json --path /v1/responses",
            Ok(&format!(
                "Explain(ExplainArgs {{ request: \"b.json\", path: \"/v1/responses\", target: {nowhere}, \
                 json: false }})"
            )),
        );
        check("warmgate explain", Err(2));
        check("warmgate top --admin here://gate", Err(2));
        let plan =
            "SimulateArgs { plan: [\"a.yaml\"], traces: None, out: None, policy: [\"fleet\"], seed: [3], rate: [] }";
        check("warmgate simulate -p a.yaml --policy fleet --seed 3", Ok(&format!("Simulate({plan})")));
        check("warmgate simulate", Err(2));
        check("warmgate check", Err(2));
        check("warmgate demo --listen here", Err(2));
        check("warmgate serve", Err(2));
        check("warmgate", Err(2));
        check("warmgate -V", Err(0));
        check("warmgate --help", Err(0));
    }

    #[test]
    fn the_help_of_simulate_has_examples() {
        let help = Cli::try_parse_from(["warmgate", "simulate", "--help"]).map(drop).expect_err("help").to_string();
        assert!(help.contains("Examples:\n  warmgate simulate --plan perf/plans/toy.yaml"), "{help}");
    }
}
