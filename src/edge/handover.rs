//! Handing the ports to a successor, so that a new binary takes over and nobody is refused.
//!
//! A process that serves listens on a socket in the file system. A successor (`run --upgrade`) asks there for
//! the listening sockets, comes up beside the old process, asks for what was learnt, and says when it serves;
//! only then does the old one stop. A successor that fails on the way has changed nothing. Pingora's own way
//! ends the old process whether or not somebody took the sockets, and lets everybody write to its socket; this
//! one is for the same user only, at both ends, and for one successor at a time.

mod place;
mod wire;

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, process, thread};

use tokio::sync::Notify;

use super::address::{Addresses, Inherited};
use super::ingress::Ingress;
use super::state_file;
use wire::Word;

pub use place::place;

/// The running process, as its successor sees it.
pub struct Predecessor {
    stream: UnixStream,
}

impl Predecessor {
    /// `None`: nobody is there to be taken over from.
    pub fn find(path: &Path) -> io::Result<Option<Predecessor>> {
        let stream = match UnixStream::connect(path) {
            Ok(stream) => stream,
            Err(error) if is_nobody(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        check_file(path)?;
        wire::is_same_user(&stream)?;
        wire::be_patient(&stream)?;
        wire::greet(&stream)?;
        Ok(Some(Predecessor { stream }))
    }

    /// Its listening sockets.
    pub fn sockets(&mut self) -> io::Result<Inherited> {
        wire::say(&self.stream, Word::Sockets)?;
        wire::take_sockets(&self.stream)
    }

    /// What it has learnt, as a state file has it.
    pub fn state(&mut self) -> io::Result<Vec<u8>> {
        wire::say(&self.stream, Word::State)?;
        wire::take_frame(&self.stream, state_file::STATE_BYTES_MAX)
    }

    /// From now on it serves nobody new.
    pub fn relieve(self) -> io::Result<()> {
        wire::say(&self.stream, Word::Taken)?;
        wire::take_frame(&self.stream, 0).map(drop)
    }
}

/// What is needed to be succeeded.
pub struct Offer {
    pub ingress: Arc<Ingress>,
    pub addresses: Addresses,
    pub taken_over: Arc<Notify>,
}

impl Offer {
    /// Waits for a successor at `path`, on a thread of its own.
    pub fn make(self, path: &Path) -> io::Result<()> {
        let listener = listen(path)?;
        let wait = move || {
            for stream in listener.incoming().flatten() {
                match self.succeed(&stream) {
                    Ok(true) => {
                        self.taken_over.notify_one();
                        return;
                    }
                    Ok(false) => {}
                    Err(error) => log::warn!("a new process that asked for the ports did not take over: {error}"),
                }
            }
        };
        thread::Builder::new().name("handover".into()).spawn(wait).map(drop)
    }

    /// Whether it has taken over.
    fn succeed(&self, stream: &UnixStream) -> io::Result<bool> {
        wire::is_same_user(stream)?;
        wire::be_patient(stream)?;
        if !wire::is_greeted(stream)? {
            return Ok(false);
        }
        log::info!("a new process asks for the ports");
        loop {
            match wire::hear(stream)? {
                Word::Sockets => self.addresses.with(|addresses| wire::give_sockets(stream, addresses))?,
                Word::State => wire::give_frame(stream, &state_file::encode(&self.ingress))?,
                Word::Taken => {
                    wire::give_frame(stream, b"")?;
                    return Ok(true);
                }
            }
        }
    }
}

/// Whether a process serves behind that path.
pub fn is_there(path: &Path) -> bool {
    UnixStream::connect(path).is_ok()
}

fn is_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// Listens under another name first and moves that into place: the path always leads to a whole socket, and
/// it is taken from a predecessor in one step.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}", process::id()));
    let temporary = PathBuf::from(temporary);
    let _ = fs::remove_file(&temporary);
    let listener = UnixListener::bind(&temporary)?;
    let placed = fs::set_permissions(&temporary, fs::Permissions::from_mode(0o600));
    placed.and_then(|()| fs::rename(&temporary, path)).inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    Ok(listener)
}

/// Nobody else may have put it there, or be able to listen in.
fn check_file(path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    let is_ours = metadata.uid() == rustix::process::geteuid().as_raw();
    if metadata.file_type().is_socket() && is_ours && metadata.mode() & 0o077 == 0 {
        return Ok(());
    }
    let shown = path.display();
    Err(io::Error::other(format!("{shown} is not a socket that only this user can use (0600)")))
}
