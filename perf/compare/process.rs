//! Processes of the run: started on the core they are given, ended by their own ids.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::usage;

/// The proxy that is measured has one core, load and upstreams the other.
#[derive(Clone, Copy)]
pub struct Cores {
    pub proxy: Option<usize>,
    pub load: Option<usize>,
}

impl Cores {
    pub fn split() -> Cores {
        let several = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
        Cores { proxy: several.then_some(0), load: several.then_some(1) }
    }
}

/// Ports are taken from here on, below those that the kernel gives to connections.
static NEXT_PORT: AtomicU16 = AtomicU16::new(23_000);

/// The first of that many free ports in a row.
pub fn free_ports(count: u16) -> u16 {
    loop {
        let first = NEXT_PORT.fetch_add(count, Ordering::Relaxed);
        assert!(first < 32_000, "too few free ports");
        if (first..first + count).all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()) {
            return first;
        }
    }
}

pub fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// A process and all that it starts.
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it on that core; it ends with this program. Its words go to a file.
    pub fn start(command: Command, core: Option<usize>, log: PathBuf) -> io::Result<Process> {
        let mut pinned = pinned(command, core);
        let errors = File::create(&log)?;
        pinned.stdin(Stdio::null()).stdout(errors.try_clone()?).stderr(errors);
        Ok(Process { child: pinned.spawn()?, log })
    }

    /// Why it ended, if it has.
    pub fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(format!("it ended ({status}): {}", last_line(&self.log)))
    }

    /// Processor time so far.
    pub fn cpu(&self) -> Duration {
        self.family().into_iter().map(usage::cpu).sum()
    }

    pub fn resident_kib(&self) -> u64 {
        self.family().into_iter().map(usage::resident_kib).sum()
    }

    fn family(&self) -> BTreeSet<u32> {
        let mut family = BTreeSet::from([self.child.id()]);
        let mut news = vec![self.child.id()];
        while let Some(pid) = news.pop() {
            news.extend(children(pid).into_iter().filter(|child| family.insert(*child)));
        }
        family
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        for pid in self.family().into_iter().filter(|pid| *pid != self.child.id()) {
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The same command, on that core, to end with this program.
pub fn pinned(command: Command, core: Option<usize>) -> Command {
    let mut pinned = Command::new("setpriv");
    pinned.args(["--pdeathsig", "KILL"]);
    if let Some(core) = core {
        pinned.args(["taskset", "-c", &core.to_string()]);
    }
    pinned.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => pinned.env(name, value),
            None => pinned.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        pinned.current_dir(folder);
    }
    pinned
}

/// The last words in a file.
pub fn last_line(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing was said").trim().to_owned()
}

fn children(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}
