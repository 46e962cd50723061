//! The real `warmgate` program, started over scripted upstreams with a configuration of its own.
//!
//! It listens on ports that the system chooses and is ready when it says so. What it logs goes to a
//! file in a directory of the test's own; a test that fails prints it. Dropping a gate kills it.

mod launch;
mod settings;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::client::{Conn, Reply, Request};
use crate::exposition::Exposition;
use crate::patience::{within, within_time};

use launch::Launched;
#[cfg(feature = "kube")]
pub use launch::Pod;
pub use settings::Settings;

/// How long it may take until a client that left is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(3);

/// For access lines to be written.
const WRITTEN: Duration = Duration::from_secs(30);

/// A running Warmgate.
pub struct Gate(Launched);

impl Gate {
    /// Starts it and waits until it says that some upstream can serve.
    pub async fn start(settings: &Settings) -> Gate {
        let gate = Gate::launch(settings).await;
        assert_eq!(gate.0.state, "ready", "what it said of itself at its start");
        gate
    }

    /// Starts it over upstreams none of which can serve.
    pub async fn start_not_ready(settings: &Settings) -> Gate {
        let gate = Gate::launch(settings).await;
        let state = &gate.0.state;
        assert!(state.starts_with("not ready: "), "it said {state:?}");
        gate
    }

    /// Starts it, whether some upstream can serve already or not.
    #[allow(dead_code, reason = "used with the feature `kube`")]
    pub async fn start_in_any_state(settings: &Settings) -> Gate {
        Gate::launch(settings).await
    }

    async fn launch(settings: &Settings) -> Gate {
        let program = Path::new(env!("CARGO_BIN_EXE_warmgate"));
        Gate(launch::launch_in(&settings.surroundings, program, &settings.yaml()).await)
    }

    /// Another process that takes over from this one, with the same configuration.
    pub async fn succeed(&self, settings: &Settings) -> Gate {
        self.follow(settings, &["--upgrade"]).await
    }

    /// Another process in the same directory.
    pub async fn follow(&self, settings: &Settings, arguments: &[&'static str]) -> Gate {
        let program = Path::new(env!("CARGO_BIN_EXE_warmgate"));
        let mut surroundings = settings.surroundings.clone();
        surroundings.arguments = arguments.to_vec();
        let directory = self.0.directory.clone();
        Gate(launch::launch_beside(&surroundings, program, &settings.yaml(), directory).await)
    }

    pub fn directory(&self) -> &Path {
        self.0.directory.path()
    }

    pub fn signal(&self, signal: Signal) {
        let id = self.0.process.id().expect("a running process");
        let pid = Pid::from_raw(i32::try_from(id).expect("an id")).expect("an id");
        kill_process(pid, signal).expect("a process to signal");
    }

    /// How it ended, once it has.
    pub async fn ended(&mut self) -> Option<i32> {
        within("the process to end", self.0.process.wait()).await.expect("an end").code()
    }

    /// A new connection to the client port.
    pub async fn connect(&self) -> Conn {
        Conn::open(self.0.address).await
    }

    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    pub fn admin_address(&self) -> SocketAddr {
        self.0.admin
    }

    /// Sends a request on a new connection and reads the head of its answer.
    pub async fn send(&self, request: &Request) -> Reply {
        self.connect().await.exchange(request).await
    }

    pub async fn post(&self, path: &str, body: impl Into<Bytes>) -> Reply {
        self.send(&Request::post(path, body)).await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send(&Request::get(path)).await
    }

    /// A path of the admin port, as JSON.
    pub async fn admin(&self, path: &str) -> Value {
        let request = Request::get_as("localhost", path);
        let mut reply = Conn::open(self.0.admin).await.exchange(&request).await;
        assert_eq!(reply.status, 200, "status of {path} on the admin port");
        reply.json().await
    }

    /// All that is counted, in Prometheus' text form.
    pub async fn metrics(&self) -> String {
        let request = Request::get_as("localhost", "/metrics");
        let text = Conn::open(self.0.admin).await.exchange(&request).await.whole().await;
        String::from_utf8(text.into()).expect("text")
    }

    /// Bytes of memory that the process holds, as Linux tells it.
    pub fn memory_bytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.0.process.id().expect("a running process"));
        let status = std::fs::read_to_string(path).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        let kib: u64 = line.trim_end_matches(" kB").trim().parse().expect("a number");
        kib * 1024
    }

    /// Files and connections that the process has open.
    pub fn open_files(&self) -> usize {
        let id = self.0.process.id().expect("a running process");
        std::fs::read_dir(format!("/proc/{id}/fd")).expect("its files").count()
    }

    /// Seconds of processor time that it has used.
    pub fn cpu_seconds(&self) -> f64 {
        let id = self.0.process.id().expect("a running process");
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).expect("its times");
        let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
        let ticks: u64 = fields[11..13].iter().map(|ticks| ticks.parse::<u64>().expect("a number")).sum();
        ticks as f64 / 100.0
    }

    /// Why the request of that id went where it went.
    pub async fn receipt(&self, request_id: &str) -> Value {
        self.admin(&format!("/fleet/receipts/{request_id}")).await
    }

    pub async fn status(&self) -> Value {
        self.admin("/fleet/status").await
    }

    /// How many leases there are, over all nodes and models.
    pub async fn in_flight(&self) -> u64 {
        in_flight(&self.status().await)
    }

    /// Returns when no lease is left anywhere; that it happens, and soon, is the assertion.
    pub async fn idle(&self) {
        let forgotten = async {
            while self.in_flight().await > 0 {
                // There is no event to await from outside; the pause keeps this from spinning.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        within_time(FORGOTTEN, "in-flight counts to return to 0", forgotten).await;
    }

    /// A counter of `/metrics`, with its labels; zero while it has never been counted.
    pub async fn counter(&self, name: &str) -> f64 {
        let request = Request::get_as("localhost", "/metrics");
        let mut reply = Conn::open(self.0.admin).await.exchange(&request).await;
        let text = String::from_utf8_lossy(&reply.whole().await).into_owned();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.unwrap_or(0.0)
    }

    /// The sum of all samples of that name with these labels.
    pub async fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        Exposition::parse(&self.metrics().await).expect("what a collector can read").sum(name, labels)
    }

    /// All that it logged so far.
    pub fn log(&self) -> String {
        self.0.log()
    }

    /// All that it logged, once there are so many access lines among it: they are written a moment late.
    pub async fn log_of(&self, requests: usize) -> String {
        let written = async {
            while self.log().matches("\"outcome\":").count() < requests {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        within_time(WRITTEN, "an access line for each request", written).await;
        self.log()
    }

    /// Memory of the process now, bytes.
    pub fn resident_bytes(&self) -> u64 {
        let id = self.0.process.id().expect("a running process");
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("its status");
        let kib: Option<u64> =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
        1024 * kib.unwrap_or_else(|| panic!("no VmRSS in {status}"))
    }

    /// What `path` on the admin port says, as text.
    pub async fn admin_text(&self, path: &str) -> String {
        let request = Request::get_as("localhost", path);
        let mut reply = Conn::open(self.0.admin).await.exchange(&request).await;
        String::from_utf8_lossy(&reply.whole().await).into_owned()
    }

    /// The node's part of the status, once it is as wanted; that it comes to be so is the assertion.
    pub async fn node_once(&self, node: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        within(what, async {
            loop {
                let status = self.status().await;
                let mut nodes = status["nodes"].as_array().into_iter().flatten();
                if let Some(found) = nodes.find(|entry| entry["name"] == node && wanted(entry)) {
                    return found.clone();
                }
                // There is no event to await from outside; the pause keeps this from spinning.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
    }

    /// A list, once it is as wanted.
    pub async fn list_once(&self, path: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        within(what, async {
            loop {
                let list = self.get(path).await.json().await;
                if wanted(&list) {
                    return list;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
    }

    /// Returns when so many requests wait in its queue.
    pub async fn waiting(&self, count: u64) {
        let seen = async {
            while self.status().await["queue"]["waiting"] != count {
                // There is no event to await from outside; the pause keeps this from spinning.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        within_time(Duration::from_secs(10), &format!("{count} to wait in the queue"), seen).await;
    }

    /// The file of its configuration.
    pub fn config(&self) -> std::path::PathBuf {
        self.0.directory.path().join("warmgate.yaml")
    }

    /// Writes another configuration in place of the one that is there.
    pub fn write(&self, settings: &Settings) {
        std::fs::write(self.config(), settings.yaml()).expect("the configuration file");
    }

    /// Has it do something over the admin port.
    pub async fn order(&self, path: &str) -> Reply {
        let request = Request::post(path, "").replacing("Host", "localhost");
        Conn::open(self.0.admin).await.exchange(&request).await
    }

    /// Has it read its configuration again, which must be good, and gives what came of it.
    pub async fn reload(&self) -> Value {
        let mut reply = self.order("/fleet/reload").await;
        let told = reply.json().await;
        assert_eq!(reply.status, 200, "{told:#}");
        told
    }

    /// All reloads, the latest first, once there are so many.
    pub async fn reloads(&self, count: usize) -> Vec<Value> {
        within(&format!("{count} reloads"), async {
            loop {
                let reloads = self.admin("/fleet/reloads").await["reloads"].as_array().cloned().unwrap_or_default();
                if reloads.len() >= count {
                    return reloads;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
    }

    /// Whether the process still runs.
    pub fn lives(&mut self) -> bool {
        self.0.lives()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.0.log();
            eprintln!("--- the gate's log ---\n{log}--- end of log ---");
        }
    }
}

/// The sum of the nodes' `in_flight` in a status.
fn in_flight(status: &Value) -> u64 {
    let nodes = status["nodes"].as_array();
    let nodes = nodes.unwrap_or_else(|| panic!("no nodes in {status:#}"));
    let counts = nodes.iter().map(|node| {
        let count = node["in_flight"].as_u64();
        count.unwrap_or_else(|| panic!("no in_flight in {node:#}"))
    });
    counts.sum()
}
