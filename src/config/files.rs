//! The files that a configuration was read from, and what stood in them then.
//!
//! The configuration itself, the keys and certificates that it names, and the folders whose files are all read. Of each only a hash is kept, of
//! just those bytes that were used, so that a change between two readings is never missed and one that
//! changes nothing is never taken for one.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    read: BTreeMap<PathBuf, Content>,
    /// Folders, with the names that were in them; `None`: it could not be read.
    listed: BTreeMap<PathBuf, Option<BTreeSet<OsString>>>,
}

/// Of a file as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Content {
    bytes_max: u64,
    /// `None`: it could not be read.
    hash: Option<u64>,
}

impl Files {
    /// Reads a file and keeps it in mind. One that is larger than `bytes_max` is read for a byte more than that.
    pub fn read(&mut self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        let read = bytes_of(path, bytes_max);
        let hash = read.as_ref().ok().map(|bytes| xxh3_64(bytes));
        self.read.insert(path.to_owned(), Content { bytes_max, hash });
        read
    }

    /// The first names in a folder, at most so many, which are kept in mind.
    pub fn list(&mut self, folder: &Path, names_max: usize) -> io::Result<BTreeSet<OsString>> {
        let names = names_in(folder, names_max);
        self.listed.insert(folder.to_owned(), names.as_ref().ok().cloned());
        names
    }

    /// Whether anything would be read now that was not read then.
    pub fn have_changed(&self) -> bool {
        let other_bytes = self.read.iter().any(|(path, content)| {
            let now = bytes_of(path, content.bytes_max).ok();
            now.map(|bytes| xxh3_64(&bytes)) != content.hash
        });
        let names_max = |before: &Option<BTreeSet<OsString>>| before.as_ref().map_or(0, BTreeSet::len) + 1;
        other_bytes || self.listed.iter().any(|(folder, before)| names_in(folder, names_max(before)).ok() != *before)
    }

    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.read.keys().map(PathBuf::as_path)
    }

    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.listed.keys().map(PathBuf::as_path)
    }
}

fn names_in(folder: &Path, names_max: usize) -> io::Result<BTreeSet<OsString>> {
    fs::read_dir(folder)?.take(names_max).map(|entry| Ok(entry?.file_name())).collect()
}

/// The first bytes of a file that is one, and one more than `bytes_max` if there are so many.
pub fn bytes_of(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    is_regular(path)?;
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What is no file must not be opened: a pipe waits for somebody to write, a device may have no end.
pub fn is_regular(path: &Path) -> io::Result<()> {
    let kind = fs::metadata(path)?.file_type();
    let what = match kind {
        _ if kind.is_file() => return Ok(()),
        _ if kind.is_dir() => "a folder",
        _ if kind.is_fifo() => "a named pipe",
        _ if kind.is_socket() => "a socket",
        _ => "a device",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}; name a regular file, or remove it")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_what_would_be_read_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let [there, missing] = ["there", "missing"].map(|name| folder.path().join(name));
        fs::write(&there, "one").unwrap();
        let mut files = Files::default();
        assert_eq!(files.read(&there, 8).unwrap(), b"one");
        assert!(files.read(&missing, 8).is_err());
        assert!(!files.have_changed());

        fs::write(&there, "two").unwrap();
        assert!(files.have_changed());
        fs::write(&there, "one").unwrap();
        assert!(!files.have_changed(), "written again as it was");
        fs::write(&missing, "").unwrap();
        assert!(files.have_changed(), "it is there now, and empty");
        fs::remove_file(&missing).unwrap();
        fs::remove_file(&there).unwrap();
        assert!(files.have_changed());
    }

    #[test]
    fn a_file_that_comes_into_a_listed_folder_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
        fs::write(&one, "").unwrap();
        let mut files = Files::default();
        assert_eq!(files.list(folder.path(), 8).unwrap().len(), 1);
        assert!(!files.have_changed());
        fs::write(&two, "").unwrap();
        assert!(files.have_changed());
        fs::remove_file(&one).unwrap();
        assert!(files.have_changed(), "as many as before, and others");
    }

    #[test]
    fn what_is_no_file_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
        let socket = folder.path().join("socket");
        let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let zeros = Path::new("/dev/zero");
        for (path, what) in
            [(folder.path(), "a folder"), (&pipe, "a named pipe"), (&socket, "a socket"), (zeros, "a device")]
        {
            let why = Files::default().read(path, 8).unwrap_err().to_string();
            assert_eq!(why, format!("it is {what}; name a regular file, or remove it"));
        }
    }

    #[test]
    fn no_more_is_read_than_shows_that_it_is_too_much() {
        let folder = tempfile::tempdir().unwrap();
        let large = folder.path().join("large");
        fs::write(&large, "123456789").unwrap();
        assert_eq!(Files::default().read(&large, 4).unwrap(), b"12345");
    }
}
