//! Processes of the run: started on the core they are given, stopped while it is another's turn, ended as groups.
//!
//! Each has a process group of its own, so that what it starts ends with it. What a run leaves that was killed itself
//! is ended by the next.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, kill_process_group, setrlimit};

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
        pinned.stdin(Stdio::null()).stdout(errors.try_clone()?).stderr(errors).process_group(0);
        Ok(Process { child: pinned.spawn()?, log })
    }

    /// It gets no time until it goes on. What was sent to it waits.
    pub fn pause(&self) {
        signal(self.child.id(), Signal::STOP);
    }

    pub fn go_on(&self) {
        signal(self.child.id(), Signal::CONT);
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
        signal(self.child.id(), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// To all of a group. Its leader was not waited for yet, so its number is nobody else's.
fn signal(group: u32, signal: Signal) {
    if let Some(group) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, signal);
    }
}

/// That this is the only run in its folder, for as long as it lives.
pub struct Alone {
    _lock: File,
}

impl Alone {
    /// Ends what an earlier run has left: whatever still writes into the folder.
    pub fn in_folder(folder: &Path) -> io::Result<Alone> {
        let lock = File::create(folder.join("lock"))?;
        lock.try_lock().map_err(|_| io::Error::other(format!("another run uses {}", folder.display())))?;
        let folder = folder.canonicalize()?;
        let pids = std::fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        for pid in pids.filter(|pid| writes_into(*pid, &folder)) {
            eprintln!("an earlier run has left process {pid}; it is ended");
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        Ok(Alone { _lock: lock })
    }
}

fn writes_into(pid: i32, folder: &Path) -> bool {
    let outputs = [1, 2].map(|number| std::fs::read_link(format!("/proc/{pid}/fd/{number}")));
    outputs.iter().flatten().any(|file| file.starts_with(folder))
}

/// As many open files as are allowed: tells how many there were and are, for us and all we start.
pub fn raise_open_files(wanted: u64) -> (u64, u64) {
    let before = getrlimit(Resource::Nofile);
    let (had, most) = (before.current.unwrap_or(u64::MAX), before.maximum.unwrap_or(u64::MAX));
    let tries = [
        Rlimit { current: Some(wanted), maximum: Some(most.max(wanted)) },
        Rlimit { current: before.maximum, ..before },
    ];
    if had < wanted {
        let _ = tries.into_iter().find(|limit| setrlimit(Resource::Nofile, *limit).is_ok());
    }
    (had, getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
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
