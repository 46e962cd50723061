//! A value that is used and never shown.
//!
//! The configuration names where a secret is, not what it is; it is fetched once, when the file is
//! loaded. No message quotes what stands at a secret's key, since the usual mistake is to write the
//! secret itself there.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::files::Files;
use super::node::Node;
use super::problem::Report;
use super::read::{Read, Spot};

/// A key or token: visible ASCII, at least one character, fit for a header.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// Where a secret is, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The environment variable of that name.
    Env(String),
    /// The file, relative to the folder of the configuration; line ends after it do not count.
    File(PathBuf),
}

/// Keys are a line; what is larger was named by mistake, and must not fill the memory.
const SECRET_BYTES_MAX: u64 = 16 << 10;

const FORM: &str = "write {env: NAME} or {file: PATH}";

impl Secret {
    /// Fetches it, and notes the file. The error quotes neither the secret nor the place.
    pub fn fetch(source: &Source, folder: &Path, files: &mut Files) -> Result<Secret, String> {
        let text = match source {
            Source::Env(name) => std::env::var(name).map_err(|_| "the environment variable is not set".to_owned())?,
            Source::File(path) => {
                let bytes = files.read(&folder.join(path), SECRET_BYTES_MAX);
                let bytes = bytes.map_err(|error| format!("the file cannot be read: {error}"))?;
                String::from_utf8(bytes).map_err(|_| "the file cannot be read: it is not UTF-8")?
            }
        };
        Secret::of(text.trim_end_matches(['\r', '\n']))
    }

    fn of(text: &str) -> Result<Secret, String> {
        if text.is_empty() {
            return Err("the secret is empty".into());
        }
        if text.len() as u64 > SECRET_BYTES_MAX {
            return Err("the secret is longer than 16 KiB".into());
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("the secret holds characters that no header can carry".into());
        }
        Ok(Secret(text.to_owned()))
    }

    /// The value itself, for the one place that sends or compares it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// For the command line, where a secret may stand itself.
impl FromStr for Secret {
    type Err = String;

    fn from_str(text: &str) -> Result<Secret, String> {
        Secret::of(text)
    }
}

impl Read for Source {
    fn read(at: Spot, report: &mut Report) -> Option<Source> {
        let source = match at.node {
            Node::Map(pairs) => match pairs.as_slice() {
                [(key, Node::Text(name))] if key == "env" && is_variable(name) => Some(Source::Env(name.clone())),
                [(key, Node::Text(path))] if key == "file" && !path.is_empty() => Some(Source::File(path.into())),
                _ => None,
            },
            _ => None,
        };
        if source.is_none() {
            report.add(at.path, "expected the place of a secret, never the secret itself", FORM);
        }
        source
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

const HIDDEN: &str = "(hidden)";

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(HIDDEN)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::node;

    #[track_caller]
    fn check(text: &str, expected: Option<Source>) {
        let mut report = Report::default();
        let node = node::parse(text).unwrap();
        assert_eq!(Source::read(Spot { path: "api_key", node: &node }, &mut report), expected, "{text}");
        let problems = report.into_problems(Path::new("x"), text);
        assert_eq!(problems.is_none(), expected.is_some(), "{text}");
        let shown = problems.map(|problems| problems.to_string()).unwrap_or_default();
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn only_a_place_is_accepted() {
        check("{env: STUDIO_KEY}", Some(Source::Env("STUDIO_KEY".into())));
        check("{file: keys/studio}", Some(Source::File("keys/studio".into())));
        check("hunter2", None);
        check("{hunter2}", None);
        check("{hunter2: hunter2}", None);
        check("{env: hunter2-hunter2}", None);
        check("{env: A, env: B}", None);
        check("{env: A, file: hunter2}", None);
        check("{env: }", None);
        check("[hunter2]", None);
    }

    #[test]
    fn a_file_beside_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let fetch = |content: &[u8]| {
            fs::write(folder.path().join("key"), content).unwrap();
            let source = Source::File("key".into());
            Secret::fetch(&source, folder.path(), &mut Files::default()).map(|secret| secret.expose().to_owned())
        };
        assert_eq!(fetch(b"hunter2\r\n").as_deref(), Ok("hunter2"));
        for refused in [&b""[..], b"\n", b"a b", b"a\nb", b"\xff", &[b'x'; 20_000]] {
            assert!(fetch(refused).is_err_and(|why| !why.contains("a b")));
        }
        assert!(Secret::fetch(&Source::File("none".into()), folder.path(), &mut Files::default()).is_err());
    }

    #[test]
    fn every_way_of_showing_it_hides_it() {
        let secret = Secret::of("hunter2").unwrap();
        for shown in [format!("{secret}"), format!("{secret:#?}"), serde_json::to_string(&secret).unwrap()] {
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }
}
