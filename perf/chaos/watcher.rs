//! What `warmgate` says of itself while the run goes on, and what it uses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::Arguments;
use crate::client::{Conn, Request};
use crate::conversation::Crowd;
use crate::disturber::State;
use crate::rig::Rig;
use crate::usage::{self, Cores};

const SAMPLE_EVERY: Duration = Duration::from_millis(500);

/// What is left over is looked at until nothing is, for so long.
const LEFT_FOR: Duration = Duration::from_secs(3);

pub struct Watcher {
    admin: SocketAddr,
    gate_pid: u32,
    began: Instant,
    progress: Duration,
    /// Of `warmgate`, the engines and this process, when the run began.
    cpu_before: [Duration; 3],
    crowd: Arc<Crowd>,
    samples: Mutex<Vec<Sample>>,
    engines: Mutex<Vec<Engine>>,
    passages: Mutex<Vec<Passage>>,
}

#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub at: Duration,
    pub resident_kib: u64,
    pub in_flight: u64,
    pub waiting: u64,
}

struct Engine {
    name: String,
    pid: u32,
    /// Of the processes that were killed, as far as it was seen.
    cpu_before: Duration,
    cpu: Duration,
    state: State,
    /// When it was hurt, and not yet seen to be taken out.
    hurt_at: Option<Duration>,
    standing: String,
}

/// `warmgate` came to another opinion of a node.
#[derive(Clone, Debug, Serialize)]
pub struct Passage {
    pub at_s: f64,
    pub engine: String,
    /// What the engine is in truth.
    pub truth: String,
    pub from: String,
    pub to: String,
    /// Since it was killed or stopped, the first time that it is out.
    pub noticed_after_s: Option<f64>,
}

/// What is booked and waits although all clients are gone.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Left {
    pub in_flight: u64,
    pub in_flight_of_nodes: u64,
    pub running_of_models: u64,
    pub waiting_of_models: u64,
    pub waiting: u64,
}

impl Left {
    pub fn nothing(&self) -> bool {
        self.in_flight + self.in_flight_of_nodes + self.running_of_models + self.waiting_of_models + self.waiting == 0
    }
}

impl Watcher {
    pub fn new(rig: &Rig, arguments: &Arguments, crowd: Arc<Crowd>) -> Watcher {
        let engine = |engine: &crate::engine_process::EngineProcess| Engine {
            name: engine.name().to_owned(),
            pid: engine.pid(),
            cpu_before: Duration::ZERO,
            cpu: Duration::ZERO,
            state: State::Well,
            hurt_at: None,
            standing: "up".into(),
        };
        let gate_pid = rig.gate.process.id().expect("a running process");
        let engines = rig.engines.iter().map(|engine| usage::cpu(engine.pid())).sum();
        Watcher {
            cpu_before: [usage::cpu(gate_pid), engines, usage::cpu(std::process::id())],
            admin: rig.gate.admin,
            gate_pid,
            began: rig.began,
            progress: Duration::from_secs(arguments.progress.max(1)),
            crowd,
            samples: Mutex::default(),
            engines: Mutex::new(rig.engines.iter().map(engine).collect()),
            passages: Mutex::default(),
        }
    }

    /// Samples and prints for as long as it is polled.
    pub async fn watch(self: Arc<Self>) {
        let mut ticks = interval(SAMPLE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut printed = Instant::now();
        loop {
            ticks.tick().await;
            let Ok(status) = timeout(Duration::from_secs(5), self.status()).await else {
                eprintln!("{:>7.1} s  /fleet/status does not answer", self.began.elapsed().as_secs_f64());
                continue;
            };
            self.sample(&status);
            if printed.elapsed() >= self.progress {
                printed = Instant::now();
                self.print();
            }
        }
    }

    /// An engine is something else from now on, in a process of that id.
    pub fn told(&self, index: usize, pid: u32, state: State) {
        let mut engines = self.engines.lock();
        let engine = &mut engines[index];
        if engine.pid != pid {
            engine.cpu_before += engine.cpu;
            (engine.pid, engine.cpu) = (pid, Duration::ZERO);
        }
        engine.state = state;
        engine.hurt_at = matches!(state, State::Killed | State::Stopped).then(|| self.began.elapsed());
    }

    pub async fn what_is_left(&self) -> Left {
        let began = Instant::now();
        loop {
            let left = left(&self.status().await);
            if left.nothing() || began.elapsed() >= LEFT_FOR {
                return left;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    pub fn samples(&self) -> Vec<Sample> {
        self.samples.lock().clone()
    }

    pub fn passages(&self) -> Vec<Passage> {
        self.passages.lock().clone()
    }

    pub fn cores(&self) -> Cores {
        let run_s = self.began.elapsed().as_secs_f64();
        let [gate_before, engines_before, own_before] = self.cpu_before;
        let engines: Duration = self.engines.lock().iter().map(|engine| engine.cpu_before + engine.cpu).sum();
        let share = |time: Duration| time.as_secs_f64() / run_s;
        Cores {
            warmgate: share(usage::cpu(self.gate_pid) - gate_before),
            engines: share(engines.saturating_sub(engines_before)),
            load_generator: share(usage::cpu(std::process::id()) - own_before),
        }
    }

    async fn status(&self) -> Value {
        let conn = Conn::open(self.admin).await;
        conn.exchange(&Request::get_as("localhost", "/fleet/status")).await.json().await
    }

    fn sample(&self, status: &Value) {
        let left = left(status);
        let at = self.began.elapsed();
        let resident_kib = usage::resident_kib(self.gate_pid);
        self.samples.lock().push(Sample { at, resident_kib, in_flight: left.in_flight, waiting: left.waiting });
        for engine in self.engines.lock().iter_mut() {
            engine.cpu = engine.cpu.max(usage::cpu(engine.pid));
            let Some(node) = nodes(status).find(|node| node["name"] == engine.name.as_str()) else { continue };
            let standing = standing(node);
            if standing == engine.standing {
                continue;
            }
            let is_out = !standing.contains("up") && !standing.contains("slow_start");
            let hurt_at = if is_out { engine.hurt_at.take() } else { None };
            self.passages.lock().push(Passage {
                at_s: at.as_secs_f64(),
                engine: engine.name.clone(),
                truth: engine.state.name(),
                from: std::mem::replace(&mut engine.standing, standing.clone()),
                to: standing,
                noticed_after_s: hurt_at.map(|hurt_at| (at - hurt_at).as_secs_f64()),
            });
        }
    }

    fn print(&self) {
        let Some(last) = self.samples.lock().last().copied() else { return };
        let tally = self.crowd.tally();
        let engines = self.engines.lock();
        let engines: Vec<String> = engines
            .iter()
            .map(|engine| format!("{} {} ({})", engine.name, engine.state.name(), engine.standing))
            .collect();
        println!(
            "{:>7.1} s  {} requests, {} open, {} failed, {} cut; booked {}, queue {}; {:.1} MiB; {}",
            last.at.as_secs_f64(),
            tally.requests,
            tally.open,
            tally.failed,
            tally.cut,
            last.in_flight,
            last.waiting,
            last.resident_kib as f64 / 1024.0,
            engines.join(", ")
        );
    }
}

fn nodes(status: &Value) -> impl Iterator<Item = &Value> {
    status["nodes"].as_array().into_iter().flatten()
}

/// Of the node, and where that differs of its model.
fn standing(node: &Value) -> String {
    let state = |of: &Value| of["standing"]["state"].as_str().unwrap_or("unknown").to_owned();
    let (here, model) = (state(node), state(&node["models"][0]));
    match (here.as_str(), model.as_str()) {
        ("up", "up" | "unknown") => here,
        ("up", _) => format!("model {model}"),
        _ => here,
    }
}

fn left(status: &Value) -> Left {
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let models = |key: &str| {
        let models = nodes(status).flat_map(|node| node["models"].as_array().into_iter().flatten());
        models.map(|model| number(&model[key])).sum()
    };
    Left {
        in_flight: number(&status["in_flight"]),
        in_flight_of_nodes: nodes(status).map(|node| number(&node["in_flight"])).sum(),
        running_of_models: models("running"),
        waiting_of_models: models("waiting_here"),
        waiting: number(&status["queue"]["waiting"]),
    }
}
