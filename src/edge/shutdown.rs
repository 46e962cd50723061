//! Stopping: the first signal lets running requests finish, the second does not.
//!
//! Pingora sleeps its whole grace period, however idle it is; we leave as soon as the last request is
//! over.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use pingora_core::server::{ExecutionPhase, ShutdownSignal, ShutdownSignalWatch};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::broadcast;

use super::ingress::Ingress;

/// SIGTERM and SIGINT drain and exit. SIGQUIT, which would hand over a process that does not mind it, is
/// minded and does nothing yet. SIGHUP is `reload`'s.
pub struct Signals;

#[async_trait]
impl ShutdownSignalWatch for Signals {
    async fn recv(&self) -> ShutdownSignal {
        let signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::quit()];
        let [Ok(mut term), Ok(mut int), Ok(mut quit)] = signals.map(signal) else {
            log::error!("signals cannot be watched; only SIGKILL will stop this process");
            return std::future::pending().await;
        };
        loop {
            tokio::select! {
                _ = term.recv() => break,
                _ = int.recv() => break,
                _ = quit.recv() => log::warn!("SIGQUIT: there is no handing over yet; SIGTERM stops"),
            }
        }
        log::warn!("stopping: running requests may finish; a second signal ends them");
        tokio::spawn(exit_at_second(term, int));
        ShutdownSignal::GracefulTerminate
    }
}

async fn exit_at_second(mut term: Signal, mut int: Signal) {
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    process::exit(1);
}

/// How often the count of running requests is looked at while stopping.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Two years, more than the configuration allows; Pingora would keep to what was configured at the start.
pub const GRACE_MAX_S: u64 = 2 * 365 * 24 * 3600;

/// Ends the process once it is stopping, and no request is under way or the grace that is configured is over.
pub fn leave_when_idle(mut phases: broadcast::Receiver<ExecutionPhase>, ingress: Arc<Ingress>) -> io::Result<()> {
    let watch = move || {
        while let Ok(phase) = phases.blocking_recv() {
            if matches!(phase, ExecutionPhase::ShutdownGracePeriod) {
                let began = Instant::now();
                let over = || began.elapsed() >= ingress.plan().shutdown.grace.0;
                while ingress.active.load(Ordering::Relaxed) > 0 && !over() {
                    thread::sleep(LOOK_EVERY);
                }
                // The last answer's end may still be on its way to the socket.
                thread::sleep(LOOK_EVERY);
                process::exit(0);
            }
        }
    };
    thread::Builder::new().name("leave".into()).spawn(watch).map(drop)
}
