//! What was learnt, written down for the next process: as a file, and as bytes for a successor.
//!
//! A head with the version, the time and a checksum, then the core's snapshot with the nodes' names, and the names
//! that an operator drains: these do not age, and hold until somebody resumes them. It is a
//! help and never a need: what cannot be read is left alone with a line in the log, and written anew. The
//! file comes into place whole, and only its owner can read it. It is written now and then, at an orderly end, and when
//! an operator drains something or lets it in again, before he is answered. What stands in its place and is no file
//! is never opened nor replaced.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{mem, process};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

use super::clock::wall_ms;
use super::ingress::Ingress;
use crate::config::{bytes_of, is_regular};
use crate::routing::fleet::UpstreamId;
use crate::routing::snapshot::{Restored, Snapshot};

/// Far above what a snapshot's own limits allow.
pub const STATE_BYTES_MAX: usize = 64 << 20;

const MAGIC: &[u8; 8] = b"WARMGATE";

/// Of the form below and of what the core's hashes mean: another number, another meaning.
const VERSION: u16 = 2;

/// The same without what is drained.
const VERSION_WITHOUT_DRAINS: u16 = 1;

const HEAD_BYTES: usize = MAGIC.len() + mem::size_of::<u16>() + 2 * mem::size_of::<u64>();

/// Between two writes of what has changed.
const SAVE_EVERY: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
struct State {
    /// What the snapshot's ids stand for.
    nodes: Vec<(UpstreamId, String)>,
    snapshot: Snapshot,
    /// Names of rows, sites and upstreams that operators drain.
    drained: Vec<String>,
}

/// What was written under `VERSION_WITHOUT_DRAINS`.
#[derive(Serialize, Deserialize)]
struct StateWithoutDrains {
    nodes: Vec<(UpstreamId, String)>,
    snapshot: Snapshot,
}

/// What another process knew and is known again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recalled {
    learnt: Restored,
    drained: usize,
    /// What was learnt is not believed any more.
    is_too_old: bool,
}

#[derive(Debug, Error)]
pub enum StateError {
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("is not a state file, or a broken one")]
    Broken,
    #[error("was written by another version")]
    OtherVersion,
}

/// What is known now.
pub fn encode(ingress: &Ingress) -> Vec<u8> {
    let nodes = ingress.roster.nodes().iter().map(|node| (node.id, node.name.clone())).collect();
    let snapshot = ingress.fleet.with(|fleet, now| fleet.snapshot(now));
    let drained = ingress.roster.drained();
    let state = postcard::to_allocvec(&State { nodes, snapshot, drained }).unwrap_or_default();
    seal(&state, wall_ms())
}

/// Takes over what another process knew, for the nodes that are known by name.
pub fn recall(ingress: &Ingress, bytes: &[u8]) -> Result<Recalled, StateError> {
    let (state, saved_ms) = open(bytes)?;
    let away = Duration::from_millis(wall_ms().saturating_sub(saved_ms));
    let State { nodes, snapshot, drained } = state;
    let drained = ingress.roster.recall_drained(&drained);
    if away >= ingress.plan().affinity.ttl.0 {
        return Ok(Recalled { drained, is_too_old: true, ..Recalled::default() });
    }
    let here = ingress.roster.nodes();
    let known = |then: UpstreamId| {
        let (_, name) = nodes.iter().find(|(id, _)| *id == then)?;
        here.iter().find(|node| node.name == *name).map(|node| node.id)
    };
    // Looked up once for each node and not for each of many pins.
    let ids: std::collections::HashMap<UpstreamId, Option<UpstreamId>> =
        nodes.iter().map(|(id, _)| (*id, known(*id))).collect();
    let known = |then: UpstreamId| ids.get(&then).copied().flatten();
    let learnt = ingress.fleet.with(|fleet, now| fleet.restore(&snapshot, known, away, now));
    Ok(Recalled { learnt, drained, is_too_old: false })
}

/// Takes over what the file holds, if there is one.
pub fn load(ingress: &Ingress) {
    let Some(path) = &ingress.plan().state_file else { return };
    let shown = path.display();
    match read(path).map_err(StateError::from).and_then(|bytes| recall(ingress, &bytes)) {
        Ok(recalled) => tell(&format!("state file {shown}"), recalled),
        Err(StateError::Io(error)) if error.kind() == io::ErrorKind::NotFound => log::info!("{shown}: not there yet"),
        Err(why) => log::warn!("state file {shown} {why}; all begins anew"),
    }
}

/// Says in the log what is known again.
pub fn tell(from: &str, recalled: Recalled) {
    let Recalled { learnt: Restored { pins, paces }, drained, is_too_old } = recalled;
    if is_too_old {
        log::warn!("{from}: what was learnt is older than `affinity.ttl` and begins anew");
    } else {
        log::info!("{from}: {pins} pins and the speeds of {paces} models are known again");
    }
    if drained > 0 {
        log::warn!("{from}: {drained} drained by an operator still drain; `warmgate resume NODE` ends it");
    }
}

/// Writes the file, if one is configured and no successor has it.
pub fn save(ingress: &Ingress) -> io::Result<()> {
    let Some(path) = &ingress.plan().state_file else { return Ok(()) };
    let _one_at_a_time = ingress.state_writes.lock();
    if ingress.departure.has_successor() {
        return Ok(());
    }
    write(path, &encode(ingress)).inspect_err(|why| {
        log::error!("state file {} cannot be written: {why}", path.display());
    })
}

/// The same on a thread that may block. It goes on if nobody waits for it.
pub async fn save_apart(ingress: Arc<Ingress>) -> io::Result<()> {
    tokio::task::spawn_blocking(move || save(&ingress)).await.unwrap_or_else(|died| Err(io::Error::other(died)))
}

/// Writes the file now and then, where anything has changed.
pub async fn keep(ingress: Arc<Ingress>) {
    let mut written = None;
    loop {
        tokio::time::sleep(SAVE_EVERY).await;
        let now = (ingress.fleet.with(|fleet, _| fleet.sessions.written()), ingress.roster.drained());
        if written.as_ref() != Some(&now) {
            written = Some(now);
            let _ = save_apart(ingress.clone()).await;
        }
    }
}

fn seal(state: &[u8], saved_ms: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + state.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_be_bytes());
    bytes.extend_from_slice(&saved_ms.to_be_bytes());
    bytes.extend_from_slice(&xxh3_64(state).to_be_bytes());
    bytes.extend_from_slice(state);
    bytes
}

/// What was sealed, and when.
fn open(bytes: &[u8]) -> Result<(State, u64), StateError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(StateError::Broken)?;
    let (version, rest) = rest.split_first_chunk().ok_or(StateError::Broken)?;
    let version = u16::from_be_bytes(*version);
    if ![VERSION, VERSION_WITHOUT_DRAINS].contains(&version) {
        return Err(StateError::OtherVersion);
    }
    let (saved_ms, rest) = rest.split_first_chunk().ok_or(StateError::Broken)?;
    let (checksum, state) = rest.split_first_chunk().ok_or(StateError::Broken)?;
    if u64::from_be_bytes(*checksum) != xxh3_64(state) {
        return Err(StateError::Broken);
    }
    Ok((read_state(state, version).map_err(|_| StateError::Broken)?, u64::from_be_bytes(*saved_ms)))
}

fn read_state(bytes: &[u8], version: u16) -> postcard::Result<State> {
    if version == VERSION {
        return postcard::from_bytes(bytes);
    }
    let StateWithoutDrains { nodes, snapshot } = postcard::from_bytes(bytes)?;
    Ok(State { nodes, snapshot, drained: Vec::new() })
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = bytes_of(path, STATE_BYTES_MAX as u64)?;
    if bytes.len() > STATE_BYTES_MAX {
        return Err(io::Error::other("it is far too large"));
    }
    Ok(bytes)
}

/// Whether there is a file, or room for one.
pub fn check_place(path: &Path) -> io::Result<()> {
    match is_regular(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        told => told,
    }
}

/// Writes another file first and moves it into place. Only the owner can read it.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    check_place(path)?;
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}", process::id()));
    let temporary = PathBuf::from(temporary);
    let _ = fs::remove_file(&temporary);
    let written = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        // Else the new name may be lost with the power.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    };
    written().inspect_err(|_| drop(fs::remove_file(&temporary)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], expected: &str) {
        let opened = open(bytes).map(|(state, saved)| format!("{:?} {saved}", state.drained));
        assert_eq!(opened.unwrap_or_else(|why| why.to_string()), expected, "{bytes:?}");
    }

    #[test]
    fn only_whole_files_of_this_version_are_opened() {
        let state = State { nodes: Vec::new(), snapshot: Snapshot::default(), drained: vec!["n1".into()] };
        let good = seal(&postcard::to_allocvec(&state).unwrap(), 77);
        let broken = "is not a state file, or a broken one";
        check(&good, "[\"n1\"] 77");
        check(&seal(&[1, 2, 3], 77), broken);
        let before_drains = StateWithoutDrains { nodes: Vec::new(), snapshot: Snapshot::default() };
        let mut older = seal(&postcard::to_allocvec(&before_drains).unwrap(), 77);
        older[MAGIC.len() + 1] = VERSION_WITHOUT_DRAINS as u8;
        check(&older, "[] 77");
        for cut in 0..good.len() {
            assert!(open(&good[..cut]).is_err(), "{cut}");
        }
        check(b"", broken);
        check(b"something else", broken);
        let turned =
            |at: usize| good.iter().enumerate().map(|(i, b)| if i == at { b ^ 1 } else { *b }).collect::<Vec<_>>();
        check(&turned(9), "was written by another version");
        check(&turned(good.len() - 1), broken);
        check(&turned(20), broken);
    }

    #[test]
    fn bytes_from_outside_never_end_the_process() {
        for seed in 0..2000u64 {
            let noise: Vec<u8> = (0..seed % 97).map(|n| xxh3_64(&(seed * 131 + n).to_be_bytes()) as u8).collect();
            let _ = postcard::from_bytes::<State>(&noise).map(|state| state.nodes.len());
        }
    }

    #[test]
    fn the_file_is_its_owner_s_and_replaced_whole() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        for bytes in [&b"first"[..], b"second"] {
            write(&path, bytes).unwrap();
            assert_eq!(read(&path).unwrap(), bytes);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        assert!(write(&folder.path().join("none/state"), b"x").is_err());
        let inner = folder.path().join("folder");
        fs::create_dir(&inner).unwrap();
        assert!(write(&inner, b"x").unwrap_err().to_string().contains("it is a folder"));
    }
}
