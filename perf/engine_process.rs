//! A simulated engine in a process of its own, which can be killed, stopped, continued and started again
//! on its port.
//!
//! The process is this same program in another role (`role`). It ends when its handle is dropped and,
//! should this process be killed, by the kernel's word to it: also while it is stopped.

use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};

use clap::Parser;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use warmgate::sim::face::{NodeParams, serve};

pub use crate::moss::MODEL;
use crate::moss::Moss;

/// The first argument of a process that is to be an engine.
const ROLE: &str = "engine";

/// Ports are taken from here on, below those that the kernel gives to connections: while an engine is
/// down, nobody else must get its port.
const FIRST_PORT: u16 = 21_000;
const PORTS: u16 = 10_000;

/// How one engine works.
#[derive(Parser, Clone, Debug)]
pub struct EngineParams {
    #[arg(long)]
    pub name: String,
    #[arg(long)]
    pub port: u16,
    #[arg(long)]
    pub slots: u32,
    #[arg(long)]
    pub prefill_tokens_per_s: f64,
    #[arg(long)]
    pub decode_tokens_per_s: f64,
    #[arg(long)]
    pub answer_tokens: u32,
}

pub struct EngineProcess {
    params: EngineParams,
    child: Child,
}

/// Is an engine for the rest of this process, if its arguments say so.
pub async fn role() {
    let mut arguments = std::env::args();
    let program = arguments.next().unwrap_or_default();
    if arguments.next().as_deref() != Some(ROLE) {
        return;
    }
    set_parent_process_death_signal(Some(Signal::KILL)).expect("to end with the run");
    let params = EngineParams::parse_from(std::iter::once(program).chain(arguments));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, params.port)).expect("the port of this engine");
    let _node = serve(listener, node(&params)).expect("a runtime");
    println!("listening");
    std::future::pending().await
}

impl EngineProcess {
    /// Starts it and waits until it listens. To be called from a thread that lasts as long as the run, as
    /// the process ends with it.
    pub fn start(params: EngineParams) -> io::Result<EngineProcess> {
        let child = spawn(&params)?;
        Ok(EngineProcess { params, child })
    }

    pub fn name(&self) -> &str {
        &self.params.name
    }

    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.params.port).into()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Anew, on its port.
    pub fn restart(&mut self) -> io::Result<()> {
        self.child = spawn(&self.params)?;
        Ok(())
    }

    /// It keeps its port and its connections, and does nothing at all.
    pub fn stop(&self) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::STOP)?)
    }

    pub fn go_on(&self) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::CONT)?)
    }
}

impl Drop for EngineProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ports that are free now, as many as asked for.
pub fn free_ports(count: usize) -> Vec<u16> {
    let start = (std::process::id() % u32::from(PORTS)) as u16;
    let ports = (0..PORTS).map(|offset| FIRST_PORT + (start + offset) % PORTS);
    ports.filter(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).take(count).collect()
}

fn spawn(params: &EngineParams) -> io::Result<Child> {
    let mut child = Command::new(std::env::current_exe()?)
        .args([ROLE, "--name", &params.name])
        .args(["--port", &params.port.to_string()])
        .args(["--slots", &params.slots.to_string()])
        .args(["--prefill-tokens-per-s", &params.prefill_tokens_per_s.to_string()])
        .args(["--decode-tokens-per-s", &params.decode_tokens_per_s.to_string()])
        .args(["--answer-tokens", &params.answer_tokens.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    if line.is_empty() { Err(io::Error::other("the engine ended before it listened")) } else { Ok(child) }
}

fn node(params: &EngineParams) -> NodeParams {
    let moss = Moss {
        slots: params.slots,
        prefill_tokens_per_s: params.prefill_tokens_per_s,
        decode_tokens_per_s: params.decode_tokens_per_s,
        conversations_cached: 64,
        context_tokens: 32_768,
        answer_tokens: params.answer_tokens,
    };
    moss.node(&params.name, MODEL)
}
