//! Another configuration while requests run.
//!
//! A change of its files, SIGHUP or the admin port asks for it; one reload at a time. The file is read and
//! checked as a whole, keys and certificates that it names included, and then `Ingress::apply` puts it in
//! force in one step; or it is bad and changes nothing. What came of it is logged, counted and kept for whoever asks.

mod history;
mod places;
mod record;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use pingora_core::server::ShutdownWatch;
use pingora_core::services::background::BackgroundService;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Mutex;

use super::clock::wall_ms;
use super::ingress::Ingress;
use crate::config::{self, Change, Files, Plan};

pub use history::Reloads;
pub use record::{Cause, Outcome, Record, Refused};
use watch::Watch;

/// What another plan changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    pub applied: Vec<Change>,
    /// What is as it was, since only another process can have it.
    pub needs_new_process: Vec<Change>,
}

/// Where a plan comes from.
pub struct Source {
    pub path: PathBuf,
    /// What was read of it for the plan that is in force.
    pub files: Files,
    /// What is done to a plan after it was read.
    pub complete: fn(&mut Plan),
}

pub struct Reloader {
    ingress: Arc<Ingress>,
    /// Held through each reload.
    source: Option<Mutex<Source>>,
}

impl Reloader {
    pub fn new(ingress: Arc<Ingress>, source: Option<Source>) -> Reloader {
        Reloader { ingress, source: source.map(Mutex::new) }
    }

    /// Reads the configuration again and puts it in force if it is good.
    pub async fn reload(&self, cause: Cause) -> Arc<Record> {
        let (at_ms, began) = (wall_ms(), Instant::now());
        let outcome = match &self.source {
            None => Outcome::NoFile,
            Some(source) => match read(&mut *source.lock().await).await {
                Ok(plan) => Outcome::Applied(self.ingress.apply(plan)),
                Err(refused) => Outcome::Refused(refused),
            },
        };
        let record = Arc::new(Record::new(cause, at_ms, began.elapsed(), outcome));
        record.log();
        self.ingress.metrics.count_reload(&record);
        self.ingress.reloads.keep(record.clone());
        record
    }

    /// Comes back when the files have changed since they were read last, and have come to rest.
    async fn files_changed(&self, watch: &mut Watch) {
        let Some(source) = &self.source else { return std::future::pending().await };
        let mut at_rest = false;
        loop {
            let files = source.lock().await.files.clone();
            // First the watch and then the look: what changes after this look stirs the watch.
            watch.follow(&files);
            match (files.have_changed(), at_rest) {
                (true, true) => return,
                // Found by the first look: it may be half written.
                (true, false) => watch.settled().await,
                (false, _) => watch.stirred().await,
            }
            at_rest = true;
        }
    }
}

/// Reads the file and what it names, off the threads that serve.
async fn read(source: &mut Source) -> Result<Plan, Refused> {
    let path = source.path.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let mut files = Files::default();
        let read = config::load_noting(&path, &mut files);
        (read, files)
    });
    let Ok((read, files)) = reading.await else { return Err(Refused::unread()) };
    source.files = files;
    let mut plan = read.map_err(|problems| Refused::by(&problems))?;
    (source.complete)(&mut plan);
    Ok(plan)
}

/// Reloads at SIGHUP and when the files change, for as long as the process runs.
pub struct Attentive(pub Arc<Reloader>);

#[async_trait]
impl BackgroundService for Attentive {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let Ok(mut hangup) = signal(SignalKind::hangup()) else {
            log::error!("SIGHUP cannot be watched; the admin port still reloads");
            return;
        };
        let mut watch = Watch::default();
        loop {
            tokio::select! {
                _ = shutdown.changed() => return,
                _ = hangup.recv() => drop(self.0.reload(Cause::Signal).await),
                () = self.0.files_changed(&mut watch) => drop(self.0.reload(Cause::File).await),
            }
        }
    }
}
