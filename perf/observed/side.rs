//! One of the two that are compared: the whole program, observed or not, in a process of its own.

use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::Serialize;
use warmgate::cli::logging;
use warmgate::config;
use warmgate::edge::server::{Beside, serve};

use crate::process::{Cores, Process, free_ports, loopback};
use crate::work::{self, CONVERSATIONS, Loop};

/// The first argument of a process that is one of them; its configuration and `true` or `false` follow.
const ROLE: &str = "side";

/// Is the program for the rest of this process, if its arguments say so.
pub fn role() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, file, observes] = &arguments[..]
        && role == ROLE
    {
        let plan = config::load(file.as_ref()).expect("the configuration of a side");
        logging::start();
        let beside = Beside { unobserved: observes == "false", ..Beside::default() };
        serve(plan, beside).expect("to serve");
        std::process::exit(0);
    }
}

pub struct Side {
    address: SocketAddr,
    admin: SocketAddr,
    process: Process,
}

/// The load on a side in one round.
pub struct Load {
    pub body: PathBuf,
    pub connections: usize,
    pub duration: Duration,
    pub cores: Cores,
}

/// What came of it.
#[derive(Clone, Copy, Default, Serialize)]
pub struct Taken {
    /// Requests a second.
    pub rate: f64,
    /// Processor time of a request.
    pub cpu_us: f64,
    pub p99_us: f64,
    pub failed: u64,
}

impl fmt::Display for Taken {
    fn fmt(&self, form: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(form, "{:>7.0}/s {:>6.1} us", self.rate, self.cpu_us)
    }
}

impl Side {
    pub async fn start(observes: bool, upstreams: &[u16], cores: Cores, folder: &Path) -> Side {
        let name = if observes { "on" } else { "off" };
        let [port, admin] = [free_ports(1), free_ports(1)];
        let access = if observes { "json" } else { "off" };
        let servers = upstreams.iter().enumerate();
        let servers = servers
            .map(|(n, port)| format!("  - {{name: n{n}, url: \"http://127.0.0.1:{port}\", engine: openai}}\n"))
            .collect::<String>();
        let yaml = format!(
            "listen: [{{address: \"127.0.0.1:{port}\"}}]\nadmin: {{address: \"127.0.0.1:{admin}\"}}\n\
             log: {{access: \"{access}\"}}\nserver: {{threads: 1}}\nupstreams:\n{servers}"
        );
        let file = folder.join(format!("{name}.yaml"));
        std::fs::write(&file, yaml).expect("a configuration file");
        let mut command = Command::new(std::env::current_exe().expect("our own path"));
        command.arg(ROLE).arg(&file).arg(observes.to_string());
        let process = Process::start(command, cores.proxy, folder.join(format!("{name}.log"))).expect("a side");
        let mut side = Side { address: loopback(port), admin: loopback(admin), process };
        while !work::ask(side.address, "perf-whole").await.is_ok_and(|answer| answer.status == 200) {
            if let Some(why) = side.process.ended() {
                panic!("{name}: {why}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        side
    }

    pub fn take(&self, load: &Load) -> Taken {
        let before = self.process.cpu();
        let closed = Loop {
            connections: load.connections,
            duration: load.duration,
            body: &load.body,
            conversations: CONVERSATIONS,
            first: 0,
        };
        let closed = closed.run(self.address, load.cores.load).expect("a closed loop");
        let used = self.process.cpu() - before;
        Taken {
            rate: closed.requests as f64 / closed.duration_s,
            cpu_us: used.as_secs_f64() * 1e6 / closed.requests.max(1) as f64,
            p99_us: closed.p99_us,
            failed: closed.not_2xx + closed.broken,
        }
    }

    /// A collector comes that often and reads all that is counted, until this is dropped.
    pub fn collected_every(&self, every: Duration) -> Collector {
        let (stop, admin) = (Arc::new(AtomicBool::new(false)), self.admin);
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                collect(admin).expect("what is counted");
                thread::sleep(every);
            }
        });
        Collector { stop, thread: Some(thread) }
    }
}

pub struct Collector {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a collector that had its answers");
        }
    }
}

fn collect(admin: SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(admin)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let counted = answer.contains("\nwarmgate_requests_total{");
    if counted { Ok(()) } else { Err(std::io::Error::other(answer)) }
}
