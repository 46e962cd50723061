//! Stopping: the first signal lets running requests finish, the second cuts them, the third waits for nobody.
//!
//! A successor that has taken over the listeners is like a first signal. Pingora sleeps its whole grace
//! period, however idle it is; we leave as soon as the last request is over. What still runs when the grace is
//! over is told that it is cut.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use async_trait::async_trait;
use pingora_core::server::{ExecutionPhase, ShutdownSignal, ShutdownSignalWatch};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, broadcast};

use super::address::Addresses;
use super::departure::Stage;
use super::ingress::Ingress;
use super::outlet;

/// SIGTERM and SIGINT drain and exit, and so does a hand-over. SIGHUP is `reload`'s.
pub struct Signals {
    pub ingress: Arc<Ingress>,
    pub addresses: Addresses,
    /// Told when a successor has taken over.
    pub taken_over: Arc<Notify>,
}

#[async_trait]
impl ShutdownSignalWatch for Signals {
    async fn recv(&self) -> ShutdownSignal {
        let signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::quit()];
        let [Ok(mut term), Ok(mut int), Ok(mut quit)] = signals.map(signal) else {
            log::error!("signals cannot be watched; only SIGKILL will stop this process");
            return std::future::pending().await;
        };
        let has_successor = loop {
            tokio::select! {
                _ = term.recv() => break false,
                _ = int.recv() => break false,
                () = self.taken_over.notified() => break true,
                _ = quit.recv() => log::warn!(
                    "SIGQUIT: no new process has asked for the ports, so this one goes on; \
                     start it with `warmgate run --upgrade`"
                ),
            }
        };
        if has_successor {
            log::warn!("a new process has taken over the ports; requests that run here may finish");
            self.ingress.departure.reach(Stage::HandedOver);
        } else {
            log::warn!("stopping: running requests may finish; a second signal ends them");
            self.ingress.departure.reach(Stage::Stopping);
        }
        self.addresses.close();
        tokio::spawn(heed_more(self.ingress.clone(), term, int, has_successor));
        ShutdownSignal::GracefulTerminate
    }
}

/// A hand-over counts as no signal: whoever stops all there is means this one to stop as well.
async fn heed_more(ingress: Arc<Ingress>, mut term: Signal, mut int: Signal, has_successor: bool) {
    let mut next = async || {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    };
    for _ in 0..=u8::from(has_successor) {
        next().await;
    }
    ingress.departure.hurry();
    // `Leaving` sees to the rest. Should it be stuck, nobody waits for it.
    let _ = tokio::time::timeout(CUTTING_MAX + LEAVING_MAX, next()).await;
    outlet::stderr().finish(outlet::AT_THE_END_MAX);
    process::exit(EXIT_HURRIED);
}

/// What a process that stops waits for, and what it does last.
pub struct Leaving {
    pub ingress: Arc<Ingress>,
    /// Connections of clients that are open.
    pub connections: Arc<AtomicUsize>,
    pub at_last: Box<dyn Fn() + Send>,
}

/// How often the count of running requests is looked at while stopping.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// For the answers that are cut to be told so.
const CUTTING_MAX: Duration = Duration::from_secs(2);

/// For what comes after that, before a process that was told twice to stop ends whatever it is at.
const LEAVING_MAX: Duration = Duration::from_secs(3);

/// Of a process that was told twice to stop.
const EXIT_HURRIED: i32 = 1;

/// For the last spans to reach their collector.
const TELLING_MAX: Duration = Duration::from_secs(2);

/// Pingora's own grace: two years, longer than any that may be configured. It would keep to what was configured at
/// the start; ours is the one in force when it comes to it.
pub const PINGORA_GRACE_S: u64 = 2 * 365 * 24 * 3600;

/// Ends the process once it is stopping and no request is under way, or its grace is over.
pub fn leave_when_idle(mut phases: broadcast::Receiver<ExecutionPhase>, leaving: Leaving) -> io::Result<()> {
    let watch = move || {
        while let Ok(phase) = phases.blocking_recv() {
            if matches!(phase, ExecutionPhase::ShutdownGracePeriod) {
                leaving.wait();
                (leaving.at_last)();
                process::exit(if leaving.ingress.departure.is_hurried() { EXIT_HURRIED } else { 0 });
            }
        }
    };
    thread::Builder::new().name("leave".into()).spawn(watch).map(drop)
}

impl Leaving {
    fn wait(&self) {
        let began = Instant::now();
        let departure = &self.ingress.departure;
        let linger = departure.linger();
        // A client who was let in just now is not counted yet.
        thread::sleep(LOOK_EVERY);
        let is_over =
            || self.runs() == 0 && (began.elapsed() >= linger || self.connections.load(Ordering::Relaxed) == 0);
        let is_late = || departure.is_hurried() || began.elapsed() >= self.ingress.plan().shutdown.grace.0;
        if !wait_until(is_over, is_late) && self.runs() > 0 {
            match departure.is_hurried() {
                true => log::warn!("a second signal: {} requests are cut", self.runs()),
                false => {
                    let grace = self.ingress.plan().shutdown.grace;
                    log::warn!("the grace of {grace} is over: {} requests are cut", self.runs());
                }
            }
            departure.reach(Stage::Cutting);
            let cutting = Instant::now();
            wait_until(|| self.runs() == 0, || cutting.elapsed() >= CUTTING_MAX);
        }
        let told = Instant::now();
        let is_late = || departure.is_hurried() || told.elapsed() >= TELLING_MAX;
        wait_until(|| self.ingress.spans.are_gone(), is_late);
        // The last answer's end may still be on its way to the socket.
        thread::sleep(LOOK_EVERY);
    }

    fn runs(&self) -> usize {
        self.ingress.active.load(Ordering::Relaxed)
    }
}

/// Whether it came to be so in time.
fn wait_until(is_so: impl Fn() -> bool, is_late: impl Fn() -> bool) -> bool {
    loop {
        if is_so() {
            return true;
        }
        if is_late() {
            return false;
        }
        thread::sleep(LOOK_EVERY);
    }
}
