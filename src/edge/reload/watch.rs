//! Notices that the files of a configuration may have changed, once they have come to rest.
//!
//! The kernel tells of every name that changes in the folders on the way to the files. A change is over when
//! nothing has stirred for a while, so that a file written in pieces is read once and whole. Where the kernel
//! tells nothing (network file systems, no watches left), a look now and then does instead.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use super::places;
use crate::config::Files;

/// A change is over when nothing has stirred for so long.
const SETTLED: Duration = Duration::from_millis(500);

/// A file that is never left alone is looked at all the same.
const SETTLED_MAX: Duration = Duration::from_secs(10);

/// Without a word from the kernel.
const LOOK_EVERY: Duration = Duration::from_secs(30);

#[derive(Default)]
pub struct Watch {
    watcher: Option<RecommendedWatcher>,
    folders: HashSet<PathBuf>,
    seen: Arc<Seen>,
}

/// What the kernel's words go to.
#[derive(Default)]
struct Seen {
    /// Names that matter, in whatever folder: other files are there too, and are written all the time.
    names: Mutex<HashSet<OsString>>,
    /// Folders in which every name matters.
    whole: Mutex<HashSet<PathBuf>>,
    stirred: Notify,
}

impl Watch {
    /// Watches the way to these files, as it is now.
    pub fn follow(&mut self, files: &Files) {
        let names: Vec<PathBuf> = files.paths().chain(files.folders()).flat_map(places::leading_to).collect();
        let whole: HashSet<PathBuf> = files.folders().filter_map(|folder| folder.canonicalize().ok()).collect();
        *self.seen.whole.lock() = whole.clone();
        *self.seen.names.lock() = names.iter().filter_map(|path| path.file_name()).map(OsString::from).collect();
        let folders = names.iter().filter_map(|path| path.parent()).map(PathBuf::from).chain(whole).collect();
        let before = std::mem::replace(&mut self.folders, folders);
        if self.watcher.is_none() {
            self.watcher = watcher(self.seen.clone());
        }
        let Some(watcher) = &mut self.watcher else { return };
        for gone in before.difference(&self.folders) {
            // An error: the folder is gone, and with it the watch.
            let _ = watcher.unwatch(gone);
        }
        for folder in &self.folders {
            // Each anew, since another folder may stand under that name by now.
            if before.contains(folder) {
                let _ = watcher.unwatch(folder);
            }
            if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
                log::debug!("{} is not watched: {error}", folder.display());
            }
        }
    }

    /// Comes back when a change may be over, or when it is time to look.
    pub async fn stirred(&self) {
        tokio::select! {
            () = self.seen.stirred.notified() => self.settled().await,
            () = sleep(LOOK_EVERY) => {}
        }
    }

    /// Comes back when nothing has stirred for a while.
    pub async fn settled(&self) {
        let last = Instant::now() + SETTLED_MAX;
        while timeout_at(last.min(Instant::now() + SETTLED), self.seen.stirred.notified()).await.is_ok() {}
    }
}

fn watcher(seen: Arc<Seen>) -> Option<RecommendedWatcher> {
    let made = notify::recommended_watcher(move |event: notify::Result<Event>| {
        if event.is_ok_and(|event| seen.concerns(&event)) {
            seen.stirred.notify_one();
        }
    });
    made.inspect_err(|error| {
        log::warn!("the configuration's files cannot be watched ({error}) and are looked at every {LOOK_EVERY:?}");
    })
    .ok()
}

impl Seen {
    fn concerns(&self, event: &Event) -> bool {
        // Our own reading is an access too.
        let is_read = matches!(event.kind, EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write));
        let (names, whole) = (self.names.lock(), self.whole.lock());
        let named = |path: &PathBuf| {
            let in_whole = path.parent().is_some_and(|folder| whole.contains(folder));
            in_whole || path.file_name().is_some_and(|name| names.contains(name))
        };
        !is_read && (event.paths.is_empty() || event.paths.iter().any(named))
    }
}
