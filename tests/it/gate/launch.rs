//! Starting the program and reading what it says of itself.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::patience::within;

/// What the system gives the process.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Open files that it may have; `None`: what the test has.
    pub files: Option<u32>,
    /// What it logs, as `RUST_LOG` says it.
    pub log: Option<String>,
    /// Arguments besides the configuration.
    pub arguments: Vec<&'static str>,
    /// Files that are beside it, each with the variable that leads there.
    pub files_beside: Vec<FileBeside>,
    /// It runs in a pod of Kubernetes.
    pub pod: Option<Pod>,
}

/// What a process finds in a pod: its service account, and where the API server is.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "made with the feature `kube`")]
pub struct Pod {
    /// The folder with `token`, `ca.crt` and `namespace`.
    pub account: PathBuf,
    pub api: SocketAddr,
    /// What makes a mount namespace: `-m`, or another way to it.
    pub unshare: &'static str,
}

#[derive(Clone, Debug)]
pub struct FileBeside {
    pub name: &'static str,
    pub text: String,
    pub variable: &'static str,
}

/// The program, running, and what it said when it started.
pub struct Launched {
    pub process: Child,
    pub directory: Arc<TempDir>,
    /// Where clients connect.
    pub address: SocketAddr,
    pub admin: SocketAddr,
    /// `ready`, or `not ready: …`.
    pub state: String,
}

/// Starts it with this configuration, in a directory of its own.
#[allow(dead_code, reason = "a load run starts it as well, and without surroundings")]
pub async fn launch(program: &Path, yaml: &str) -> Launched {
    launch_in(&Surroundings::default(), program, yaml).await
}

/// The same in surroundings of the test's choice.
pub async fn launch_in(surroundings: &Surroundings, program: &Path, yaml: &str) -> Launched {
    launch_beside(surroundings, program, yaml, Arc::new(tempfile::tempdir().expect("a directory"))).await
}

/// The same in a directory where another has run, or still runs.
pub async fn launch_beside(
    surroundings: &Surroundings,
    program: &Path,
    yaml: &str,
    directory: Arc<TempDir>,
) -> Launched {
    let mut process = spawn(surroundings, program, yaml, directory.path());
    let stdout = process.stdout.take().expect("piped output");
    let mut output = Output { lines: BufReader::new(stdout).lines(), directory: &directory };
    let address = output.address("warmgate: listening on ").await;
    let admin = output.address("warmgate: admin on ").await;
    let state = output.rest_of_line("warmgate: ").await;
    drain(output.lines);
    Launched { process, directory, address, admin, state }
}

impl Launched {
    /// Whether it still runs.
    pub fn lives(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// All that it logged so far.
    pub fn log(&self) -> String {
        log(&self.directory)
    }
}

fn log(directory: &TempDir) -> String {
    std::fs::read_to_string(directory.path().join("stderr")).unwrap_or_default()
}

struct Output<'a> {
    lines: Lines<BufReader<ChildStdout>>,
    directory: &'a TempDir,
}

impl Output<'_> {
    async fn address(&mut self, start: &str) -> SocketAddr {
        let rest = self.rest_of_line(start).await;
        let place = rest.split_once("://").map_or(rest.as_str(), |(_, place)| place);
        place.trim_end_matches('/').parse().unwrap_or_else(|e| panic!("{start}{rest}: {e}"))
    }

    /// What follows on the next line that begins so.
    async fn rest_of_line(&mut self, start: &str) -> String {
        loop {
            let line = within(start, self.lines.next_line()).await;
            let Some(line) = line.expect("readable output") else {
                let log = log(self.directory);
                panic!("warmgate ended before it said {start:?}; its log:\n{log}");
            };
            if let Some(rest) = line.strip_prefix(start) {
                return rest.to_owned();
            }
        }
    }
}

/// Reads on, so that the program never waits for room to write.
fn drain(mut lines: Lines<BufReader<ChildStdout>>) {
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
}

impl Pod {
    /// The program in a mount namespace of its own, where the account's files are in their place.
    fn command(&self, program: &Path) -> Command {
        const IN_PLACE: &str = "mount -t tmpfs tmpfs /var/run && mkdir -p /var/run/secrets/kubernetes.io \
            && ln -s \"$ACCOUNT\" /var/run/secrets/kubernetes.io/serviceaccount && exec \"$0\" \"$@\"";
        let mut command = Command::new("unshare");
        command
            .args([self.unshare, "sh", "-c", IN_PLACE])
            .arg(program)
            .env("ACCOUNT", &self.account)
            .env_remove("KUBECONFIG")
            .env("KUBERNETES_SERVICE_HOST", self.api.ip().to_string())
            .env("KUBERNETES_SERVICE_PORT", self.api.port().to_string());
        command
    }
}

fn spawn(surroundings: &Surroundings, program: &Path, yaml: &str, directory: &Path) -> Child {
    let file = directory.join("warmgate.yaml");
    std::fs::write(&file, yaml).expect("the configuration file");
    let errors = std::fs::OpenOptions::new().create(true).append(true).open(directory.join("stderr"));
    let errors = errors.expect("a log file");
    let mut command = match surroundings.files {
        None => Command::new(program),
        Some(files) => {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\"")]).arg(program);
            shell
        }
    };
    if let Some(pod) = &surroundings.pod {
        command = pod.command(program);
    }
    if let Some(filter) = &surroundings.log {
        command.env("RUST_LOG", filter);
    }
    for FileBeside { name, text, variable } in &surroundings.files_beside {
        std::fs::write(directory.join(name), text).expect("a file beside the configuration");
        command.env(variable, directory.join(name));
    }
    command
        .args(["run", "-c"])
        .arg(file)
        .args(&surroundings.arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors)
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|e| panic!("cannot start {}: {e}", program.display()))
}
