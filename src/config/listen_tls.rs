//! TLS on a port of our own: the certificate that is shown, and whose certificates clients must show.
//!
//! The plan names the files and does not hold them: they are renewed while the process runs, and whoever
//! listens loads them again. They are looked at here all the same, so that a bad one is a problem of the
//! configuration.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::file;
use super::files::Files;
use super::problem::Report;
use super::tls::{Pem, authorities, belong_together, certificates, private_key};

/// Two of them are equal if they name the same files, whatever these hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListenTls {
    /// The certificate and those above it, in this order.
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Who must have signed the certificate that a client has to show; `None`: clients show none.
    pub client_ca: Option<PathBuf>,
}

/// What the files hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    pub cert: Pem,
    pub key: Pem,
    pub client_ca: Option<Pem>,
}

/// Which file is wrong, by its key, and what is wrong with it.
#[derive(Debug, PartialEq, Eq)]
pub struct BadFile {
    pub key: &'static str,
    pub why: String,
}

impl ListenTls {
    /// Looks at the files; what is wrong is reported under `path`.
    pub fn of(written: file::ListenTls, path: &str, folder: &Path, report: &mut Report) -> Option<ListenTls> {
        let missing = [("cert", &written.cert, "server.crt"), ("key", &written.key, "server.key")];
        for (key, _, like) in missing.iter().filter(|(_, value, _)| value.is_none()) {
            report.add_missing(&format!("{path}.{key}"), &format!("a file in PEM form, like {like}"));
        }
        let (cert, key) = (folder.join(written.cert?), folder.join(written.key?));
        let tls = ListenTls { cert, key, client_ca: written.client_ca.map(|file| folder.join(file)) };
        for BadFile { key, why } in tls.load().err().unwrap_or_default() {
            let hint = match key {
                "key" => "it must be the one that `cert` was made for, in PEM form",
                _ => "it must be a file in PEM form",
            };
            report.add(format!("{path}.{key}"), why, hint);
        }
        Some(tls)
    }

    /// Reads the files as they are now, and looks at them as closely as TLS will.
    pub fn load(&self) -> Result<Credentials, Vec<BadFile>> {
        // Who serves with them looks at them again by itself (`edge::securing`).
        let mut files = Files::default();
        let mut bad = Vec::new();
        let mut note = |key, read: Result<Pem, String>| read.map_err(|why| bad.push(BadFile { key, why })).ok();
        let cert = note("cert", Pem::fetch(&self.cert, certificates, &mut files));
        let key = note("key", Pem::fetch(&self.key, private_key, &mut files));
        let client_ca =
            self.client_ca.as_ref().map(|file| note("client_ca", Pem::fetch(file, authorities, &mut files)));
        let (Some(cert), Some(key)) = (cert, key) else { return Err(bad) };
        if let Err(why) = belong_together(&cert, &key) {
            bad.push(BadFile { key: "key", why: why.into() });
        }
        if bad.is_empty() { Ok(Credentials { cert, key, client_ca: client_ca.flatten() }) } else { Err(bad) }
    }

    /// All files there are.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.cert, &self.key].into_iter().chain(&self.client_ca)
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::super::tls::tests::folder;

    #[track_caller]
    fn check(tls: &str, expected: &[&str]) {
        let folder = folder();
        let text = format!("listen:\n  - address: 127.0.0.1:1\n    tls: {tls}\n");
        let origin = folder.path().join("x.yaml");
        let shown = parse(&text, &origin).map_or_else(|problems| problems.to_string(), |_| String::new());
        let shown = shown.replace(&format!("{}:3: listen[0].tls", origin.display()), "");
        assert_eq!(shown.lines().collect::<Vec<_>>(), expected, "{tls}");
    }

    #[test]
    fn files_are_looked_at_before_they_are_used() {
        let key_hint = "it must be the one that `cert` was made for, in PEM form";
        check("{cert: good.crt, key: good.key, client_ca: good.crt}", &[]);
        check("{cert: good.crt}", &[".key: missing; a file in PEM form, like server.key"]);
        check(
            "{}",
            &[
                ".cert: missing; a file in PEM form, like server.crt",
                ".key: missing; a file in PEM form, like server.key",
            ],
        );
        check("{cert: good.crt, key: other.key}", &[&format!(".key: does not belong to `cert`; {key_hint}")]);
        check(
            "{cert: text, key: none, client_ca: bad.crt}",
            &[
                ".cert: holds no certificate; it must be a file in PEM form",
                &format!(".key: cannot be read: No such file or directory (os error 2); {key_hint}"),
                ".client_ca: holds a certificate that cannot be read; it must be a file in PEM form",
            ],
        );
    }
}
