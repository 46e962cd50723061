//! What befalls the engines: a function of the seed.
//!
//! After a pause one engine that is well is killed, stopped or slowed; a killed one is started again on its
//! port, a stopped one goes on after a minute. One engine is always left well: neither down nor slow.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep_until};

use crate::client::{Conn, Request};
use crate::dice::Dice;
use crate::engine_process::EngineProcess;
use crate::rig::Rig;
use crate::watcher::Watcher;

/// Between two disturbances.
const PAUSE_S: (f64, f64) = (3.0, 12.0);
/// From a kill to the start.
const DOWN_S: (f64, f64) = (1.0, 15.0);
const STOPPED: Duration = Duration::from_secs(60);
const SLOW_S: (f64, f64) = (10.0, 40.0);
const TIMES_SLOWER: (f64, f64) = (2.0, 4.0);

/// Apart from those of conversations, which count up from 0.
const STREAM: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum State {
    Well,
    Killed,
    Stopped,
    Slow { times: f64 },
}

/// What was done to an engine.
#[derive(Clone, Debug)]
pub struct Event {
    pub at: Duration,
    pub engine: String,
    /// What it is from then on.
    pub state: State,
}

pub struct Disturber {
    dice: Dice,
    watcher: Arc<Watcher>,
    /// What each engine is, and until when.
    engines: Vec<(State, Instant)>,
    events: Vec<Event>,
}

impl State {
    pub fn name(self) -> String {
        match self {
            State::Well => "well".into(),
            State::Killed => "killed".into(),
            State::Stopped => "stopped".into(),
            State::Slow { times } => format!("{times:.1} times slower"),
        }
    }
}

impl Disturber {
    pub fn new(seed: u64, watcher: Arc<Watcher>) -> Disturber {
        Disturber { dice: Dice::new(seed, STREAM), watcher, engines: Vec::new(), events: Vec::new() }
    }

    pub fn events(&self) -> &[Event] {
        &self.events
    }

    pub async fn disturb(&mut self, rig: &mut Rig, length: Duration) {
        let end = Instant::now() + length;
        self.engines = vec![(State::Well, end); rig.engines.len()];
        let mut next = Instant::now() + self.draw(PAUSE_S);
        while Instant::now() < end {
            let due = self.engines.iter().filter(|(state, _)| *state != State::Well).map(|(_, until)| *until);
            sleep_until(due.fold(next.min(end), Instant::min)).await;
            self.mend_those_due(rig).await;
            if next <= Instant::now() {
                self.hurt_one(rig).await;
                next = Instant::now() + self.draw(PAUSE_S);
            }
        }
    }

    /// All are well again.
    pub async fn restore(&mut self, rig: &mut Rig) {
        for index in 0..self.engines.len() {
            self.mend(rig, index).await;
        }
    }

    async fn mend_those_due(&mut self, rig: &mut Rig) {
        for index in 0..self.engines.len() {
            if self.engines[index].1 <= Instant::now() {
                self.mend(rig, index).await;
            }
        }
    }

    async fn hurt_one(&mut self, rig: &mut Rig) {
        let well: Vec<usize> = (0..self.engines.len()).filter(|index| self.engines[*index].0 == State::Well).collect();
        if well.len() < 2 {
            return;
        }
        let index = well[self.dice.below(well.len())];
        let (state, length) = match self.dice.below(3) {
            0 => (State::Killed, self.draw(DOWN_S)),
            1 => (State::Stopped, STOPPED),
            _ => {
                let times = self.dice.between(TIMES_SLOWER.0, TIMES_SLOWER.1);
                (State::Slow { times }, self.draw(SLOW_S))
            }
        };
        let engine = &mut rig.engines[index];
        match state {
            State::Killed => engine.kill().expect("to kill an engine"),
            State::Stopped => engine.stop().expect("to stop an engine"),
            State::Slow { times } => behave(engine, &json!({"behave": "crawl", "times": times})).await,
            State::Well => {}
        }
        self.engines[index] = (state, Instant::now() + length);
        self.note(rig, index);
    }

    async fn mend(&mut self, rig: &mut Rig, index: usize) {
        let engine = &mut rig.engines[index];
        match self.engines[index].0 {
            State::Well => return,
            State::Killed => engine.restart().expect("to start an engine again"),
            State::Stopped => engine.go_on().expect("to continue an engine"),
            State::Slow { .. } => behave(engine, &json!({"behave": "none"})).await,
        }
        self.engines[index].0 = State::Well;
        self.note(rig, index);
    }

    fn note(&mut self, rig: &Rig, index: usize) {
        let event = Event {
            at: rig.began.elapsed(),
            engine: rig.engines[index].name().to_owned(),
            state: self.engines[index].0,
        };
        eprintln!("{:>7.1} s  {} {}", event.at.as_secs_f64(), event.engine, event.state.name());
        self.watcher.told(index, rig.engines[index].pid(), event.state);
        self.events.push(event);
    }

    fn draw(&mut self, (least, most): (f64, f64)) -> Duration {
        Duration::from_secs_f64(self.dice.between(least, most))
    }
}

async fn behave(engine: &EngineProcess, order: &serde_json::Value) {
    let conn = Conn::open(engine.address()).await;
    let reply = conn.exchange(&Request::post("/sim/behave", order.to_string())).await;
    assert!(reply.status < 300, "an engine that does not obey");
}
