//! Who is measured, and how each is set up: over the same upstreams, on one thread where that can be said,
//! without logs of requests, passing streams on at once.

use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::process::{Cores, Process, free_ports, last_line, loopback};
use crate::program::program;
use crate::work::{self, Answer};

/// In the order of the table.
pub const NAMES: [&str; 8] =
    ["direct", "nginx", "haproxy", "bare", "warmgate", "sglang-router", "litellm", "ollama-herd"];

/// For the slowest to start.
const START_MAX: Duration = Duration::from_secs(120);

/// For one that was stopped to find its upstreams well again.
const AWAKE_MAX: Duration = Duration::from_secs(30);

pub struct Contestant {
    pub name: &'static str,
    /// What runs, or why nothing does.
    pub running: Result<Running, String>,
}

pub struct Running {
    pub address: SocketAddr,
    pub version: String,
    /// `None`: the upstream itself.
    pub process: Option<Process>,
}

/// What all are given.
pub struct Setting {
    /// Ports of the upstreams.
    pub upstreams: Vec<u16>,
    pub cores: Cores,
    /// For configurations, logs and environments.
    pub folder: PathBuf,
    /// Streams that a proxy has to be able to hold.
    pub streams: usize,
}

impl Setting {
    /// The same with other upstreams.
    pub fn over(&self, upstreams: Vec<u16>) -> Setting {
        Setting { upstreams, cores: self.cores, folder: self.folder.clone(), streams: self.streams }
    }
}

/// How a contestant is started.
struct Setup {
    command: Command,
    version: Command,
}

impl Contestant {
    /// Starts it and waits until it answers.
    pub async fn start(name: &'static str, setting: &Setting) -> Contestant {
        eprintln!("starting {name} …");
        let running = start(name, setting).await;
        if let Err(reason) = &running {
            eprintln!("{name} is left out: {reason}");
        }
        Contestant { name, running }
    }

    /// It gets no processor time until its next turn.
    pub fn pause(&self) {
        if let Some(process) = self.running.as_ref().ok().and_then(|running| running.process.as_ref()) {
            process.pause();
        }
    }

    /// Its turn: it goes on and answers again.
    pub async fn go_on(&self) -> Result<&Running, String> {
        let running = self.running.as_ref().map_err(String::clone)?;
        let Some(process) = &running.process else { return Ok(running) };
        process.go_on();
        let began = Instant::now();
        loop {
            match work::ask(running.address, "perf-whole").await {
                Ok(Answer { status: 200, .. }) => return Ok(running),
                _ if began.elapsed() > AWAKE_MAX => {
                    return Err(format!("no good answer within {AWAKE_MAX:?} of its turn"));
                }
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Ends it, and with it all its connections.
    pub fn end(&mut self) {
        if let Ok(running) = &mut self.running {
            running.process = None;
        }
    }
}

async fn start(name: &str, setting: &Setting) -> Result<Running, String> {
    if name == "direct" {
        let first = setting.upstreams.first().ok_or("no upstreams")?;
        return Ok(Running { address: loopback(*first), version: String::new(), process: None });
    }
    install(name, &setting.folder)?;
    let port = free_ports(1);
    let folder = setting.folder.join(format!("{name}-{port}"));
    std::fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let setup = setup(name, port, setting, &folder).map_err(|e| e.to_string())?;
    let version = version(setup.version);
    let mut process =
        Process::start(setup.command, setting.cores.proxy, folder.join("log")).map_err(|e| e.to_string())?;
    let address = loopback(port);
    let began = Instant::now();
    loop {
        if let Some(why) = process.ended() {
            return Err(why);
        }
        match work::ask(address, "perf-whole").await {
            Ok(Answer { status: 200, .. }) => return Ok(Running { address, version, process: Some(process) }),
            last if began.elapsed() > START_MAX => {
                let last = last.map_or_else(|e| e.to_string(), |answer| format!("{}: {}", answer.status, answer.body));
                return Err(format!("no good answer within {START_MAX:?}: {last}; {}", last_line(&folder.join("log"))));
            }
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Puts in place what comes from elsewhere.
pub fn install(name: &str, folder: &Path) -> Result<(), String> {
    if matches!(name, "bare" | "warmgate") {
        return Ok(());
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("perf/compare/rivals");
    let output = Command::new(script).arg(name).arg(folder).output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
    if output.status.success() { Ok(()) } else { Err(format!("cannot be installed: {said}")) }
}

fn version(mut command: Command) -> String {
    let Ok(output) = command.output() else { return "unknown".into() };
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).lines().next().unwrap_or_default().trim().to_owned()
}

fn setup(name: &str, port: u16, setting: &Setting, folder: &Path) -> io::Result<Setup> {
    let upstreams = &setting.upstreams;
    let in_environment = |environment: &str, program: &str| setting.folder.join(environment).join("bin").join(program);
    let keep = |file: &str, text: String| {
        let path = folder.join(file);
        std::fs::write(&path, text).map(|()| path)
    };
    match name {
        "nginx" => {
            let mut command = Command::new("nginx");
            command.arg("-p").arg(folder).arg("-c").arg(keep("nginx.conf", nginx(port, setting, folder))?);
            Ok(Setup { command, version: told_by("nginx", &["-v"]) })
        }
        "haproxy" => {
            let mut command = Command::new("haproxy");
            command.arg("-db").arg("-f").arg(keep("haproxy.cfg", haproxy(port, setting))?);
            Ok(Setup { command, version: told_by("haproxy", &["-v"]) })
        }
        "bare" => {
            let mut command = Command::new(beside("examples/bare"));
            command.args(["--port", &port.to_string()]).args(upstreams.iter().map(u16::to_string));
            Ok(Setup { command, version: told_by("echo", &["pingora 0.9.1"]) })
        }
        "warmgate" => {
            let mut command = Command::new(program());
            command.args(["run", "-c"]).arg(keep("warmgate.yaml", warmgate(port, upstreams))?).current_dir(folder);
            let mut version = Command::new(program());
            version.arg("-V");
            Ok(Setup { command, version })
        }
        "sglang-router" => {
            let mut command = Command::new(in_environment("sglang-router", "sglang-router"));
            command.args(["launch", "--host", "127.0.0.1", "--port", &port.to_string()]);
            command.args(["--policy", "cache_aware", "--log-level", "error", "--max-concurrent-requests", "-1"]);
            command.args(["--prometheus-port", &free_ports(1).to_string(), "--worker-urls"]);
            command.args(upstreams.iter().map(|port| format!("http://127.0.0.1:{port}")));
            Ok(Setup { command, version: packaged(&in_environment("sglang-router", "python"), "sglang-router") })
        }
        "litellm" => {
            let mut command = Command::new(in_environment("litellm", "litellm"));
            command.arg("--config").arg(keep("litellm.yaml", litellm(upstreams))?);
            command.args(["--host", "127.0.0.1", "--port", &port.to_string(), "--num_workers", "1"]);
            command.envs([
                ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
                ("LITELLM_TELEMETRY", "False"),
                ("LITELLM_LOG", "ERROR"),
            ]);
            Ok(Setup { command, version: packaged(&in_environment("litellm", "python"), "litellm") })
        }
        "ollama-herd" => {
            let python = in_environment("ollama-herd", "python");
            let mut command = Command::new(&python);
            command
                .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("perf/compare/herd.py"))
                .arg(port.to_string())
                .arg(folder);
            command.args(upstreams.iter().map(u16::to_string));
            Ok(Setup { command, version: packaged(&python, "ollama-herd") })
        }
        _ => Err(io::Error::other(format!("nobody is called {name}; there are {}", NAMES.join(", ")))),
    }
}

/// Of pools, checks and the like.
const OTHER_CONNECTIONS: usize = 300;

fn told_by(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

fn packaged(python: &Path, package: &str) -> Command {
    let mut command = Command::new(python);
    command.args(["-c", &format!("from importlib.metadata import version; print(version('{package}'))")]);
    command
}

/// Another build of this profile.
fn beside(name: &str) -> PathBuf {
    program().parent().map_or_else(PathBuf::new, |folder| folder.join(name))
}

fn nginx(port: u16, setting: &Setting, folder: &Path) -> String {
    let (folder, connections) = (folder.display(), 2 * setting.streams + OTHER_CONNECTIONS);
    let servers = servers(&setting.upstreams, |port, _| format!("server 127.0.0.1:{port};"));
    format!(
        "daemon off; user root; worker_processes 1; pid {folder}/pid; error_log {folder}/error;\n\
         events {{ worker_connections {connections}; }}\n\
         http {{\n\
         access_log off; client_max_body_size 64m; client_body_buffer_size 1m; keepalive_requests 100000000;\n\
         client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};\n\
         uwsgi_temp_path {folder}; scgi_temp_path {folder};\n\
         upstream engines {{ {servers} keepalive 256; keepalive_requests 100000000; }}\n\
         server {{ listen 127.0.0.1:{port} backlog=4096; location / {{\n\
         proxy_pass http://engines; proxy_http_version 1.1; proxy_set_header Connection \"\";\n\
         proxy_buffering off; proxy_read_timeout 900s; }} }} }}\n"
    )
}

fn haproxy(port: u16, setting: &Setting) -> String {
    let connections = setting.streams + OTHER_CONNECTIONS / 4;
    let servers = servers(&setting.upstreams, |port, n| format!("    server s{n} 127.0.0.1:{port}\n"));
    format!(
        "global\n    nbthread 1\n    maxconn {connections}\n\
         defaults\n    mode http\n    timeout connect 2s\n    timeout client 900s\n    timeout server 900s\n    \
         option http-no-delay\n    http-reuse always\n\
         frontend clients\n    bind 127.0.0.1:{port} backlog 4096\n    default_backend engines\n\
         backend engines\n    balance roundrobin\n{servers}"
    )
}

fn warmgate(port: u16, upstreams: &[u16]) -> String {
    let servers =
        servers(upstreams, |port, n| format!("  - {{name: n{n}, url: \"http://127.0.0.1:{port}\", engine: openai}}\n"));
    format!(
        "listen: [{{address: \"127.0.0.1:{port}\"}}]\nadmin: {{address: \"127.0.0.1:{}\"}}\n\
         log: {{access: \"off\"}}\nserver: {{threads: 1}}\nupstreams:\n{servers}",
        free_ports(1)
    )
}

fn litellm(upstreams: &[u16]) -> String {
    let mut text = String::from("model_list:\n");
    for model in ["perf-whole", "perf-stream", "perf-idle"] {
        for port in upstreams {
            let _ = writeln!(
                text,
                "  - {{model_name: {model}, litellm_params: {{model: openai/{model}, api_base: \"http://127.0.0.1:{port}/v1\", \
                 api_key: none}}}}"
            );
        }
    }
    text + "general_settings: {dangerously_permit_weak_or_unset_master_key: true}\nlitellm_settings: {telemetry: false, drop_params: true}\n"
}

fn servers(upstreams: &[u16], line: impl Fn(u16, usize) -> String) -> String {
    upstreams.iter().enumerate().map(|(n, port)| line(*port, n)).collect()
}
