//! Stopping: the first signal lets running requests finish, the second does not.
//!
//! Pingora sleeps its whole grace period, however idle it is; we leave as soon as the last request is
//! over.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::server::{ExecutionPhase, ShutdownSignal, ShutdownSignalWatch};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::broadcast;

/// SIGTERM and SIGINT drain and exit. SIGHUP and SIGQUIT, which would end or hand over a process that
/// does not mind them, are minded and do nothing yet.
pub struct Signals;

#[async_trait]
impl ShutdownSignalWatch for Signals {
    async fn recv(&self) -> ShutdownSignal {
        let signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()];
        let [Ok(mut term), Ok(mut int), Ok(mut hangup), Ok(mut quit)] = signals.map(signal) else {
            log::error!("signals cannot be watched; only SIGKILL will stop this process");
            return std::future::pending().await;
        };
        loop {
            tokio::select! {
                _ = term.recv() => break,
                _ = int.recv() => break,
                _ = hangup.recv() => log::warn!("SIGHUP: the configuration is read at the start only; restart to change it"),
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

/// Ends the process once it is stopping and no request is under way.
pub fn leave_when_idle(mut phases: broadcast::Receiver<ExecutionPhase>, active: Arc<AtomicUsize>) -> io::Result<()> {
    let watch = move || {
        while let Ok(phase) = phases.blocking_recv() {
            if matches!(phase, ExecutionPhase::ShutdownGracePeriod) {
                while active.load(Ordering::Relaxed) > 0 {
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
