//! How connections to an upstream are secured: whose certificate is believed, and which is shown.
//!
//! The files are read once, when the configuration is, and looked at as closely as TLS will look at
//! them, so that a bad one is a problem with its key and not a connection that fails later. A private
//! key is used and never shown.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use serde::{Serialize, Serializer};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::file;
use super::files::Files;
use super::problem::Report;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tls {
    /// Who may have signed its certificate, at least one; `None`: whom this machine trusts.
    pub ca: Option<Pem>,
    /// The certificate we show and those above it, in this order; `None`: none.
    pub cert: Option<Pem>,
    /// The key of `cert`; there exactly if that is.
    pub key: Option<Pem>,
    /// The name or address its certificate must be for; `None`: that of the URL.
    pub sni: Option<String>,
    /// Its certificate is not checked at all.
    pub insecure: bool,
}

/// What stood in a file, at least one piece, each in DER.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem {
    path: PathBuf,
    pub ders: Vec<Vec<u8>>,
}

/// What a file is to hold: its pieces in DER, or what is wrong.
pub type Form = fn(&[u8]) -> Result<Vec<Vec<u8>>, String>;

/// The bundles that systems ship have a quarter of it; what is larger was named by mistake.
const PEM_BYTES_MAX: u64 = 1 << 20;

impl Tls {
    /// Reads the files; what is wrong is reported under `path`.
    pub fn of(written: file::Tls, path: &str, folder: &Path, report: &mut Report) -> Tls {
        let mut fetch = |key: &str, file: Option<String>, read: Form| {
            let fetched = Pem::fetch(&folder.join(file?), read, &mut report.files);
            fetched.map_err(|why| report.add(format!("{path}.{key}"), why, "it must be a file in PEM form")).ok()
        };
        let (has_cert, has_key) = (written.cert.is_some(), written.key.is_some());
        let tls = Tls {
            ca: fetch("ca", written.ca, authorities),
            cert: fetch("cert", written.cert, certificates),
            key: fetch("key", written.key, private_key),
            sni: written.sni,
            insecure: written.insecure.unwrap_or(false),
        };
        if has_cert != has_key {
            let (there, missing) = if has_cert { ("cert", "key") } else { ("key", "cert") };
            report.add(format!("{path}.{there}"), format!("needs {missing}"), "one is of no use without the other");
        }
        tls.check(path, report);
        tls
    }

    /// Believes whom that file names, and nobody else.
    pub fn with_authorities(path: &Path, files: &mut Files) -> Result<Tls, String> {
        let ca = Pem::fetch(path, authorities, files)?;
        Ok(Tls { ca: Some(ca), ..Tls::default() })
    }

    fn check(&self, path: &str, report: &mut Report) {
        if let (Some(cert), Some(key)) = (&self.cert, &self.key)
            && let Err(why) = belong_together(cert, key)
        {
            report.add(format!("{path}.key"), why, "it must be the one that `cert` was made for");
        }
        if self.sni.as_ref().is_some_and(|name| ServerName::try_from(name.as_str()).is_err()) {
            report.add(
                format!("{path}.sni"),
                "is neither a host name nor an address",
                "write it like gpu1.example.org",
            );
        }
        if self.insecure && self.ca.is_some() {
            report.add(format!("{path}.insecure"), "checks nothing, not even against `ca`", "leave one of them out");
        }
    }
}

impl Pem {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Certificates, written as they are in files.
    pub fn to_text(&self) -> Vec<u8> {
        let piece = |der: &Vec<u8>| {
            let begin = "-----BEGIN CERTIFICATE-----";
            format!("{begin}\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(der))
        };
        self.ders.iter().map(piece).collect::<String>().into_bytes()
    }

    pub fn fetch(path: &Path, read: Form, files: &mut Files) -> Result<Pem, String> {
        let text = text_of(path, files).map_err(|error| format!("cannot be read: {error}"))?;
        Ok(Pem { path: path.to_owned(), ders: read(&text)? })
    }
}

fn text_of(path: &Path, files: &mut Files) -> io::Result<Vec<u8>> {
    let text = files.read(path, PEM_BYTES_MAX)?;
    if text.len() as u64 > PEM_BYTES_MAX {
        return Err(io::Error::other("larger than any certificate (1 MiB)"));
    }
    Ok(text)
}

pub fn certificates(text: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let found = found.map_err(|_| "is not PEM")?;
    if found.is_empty() {
        return Err("holds no certificate".into());
    }
    // The same parser as Pingora's, which does not survive what this one refuses.
    let sound = |der: &CertificateDer| X509Certificate::from_der(der).is_ok_and(|(rest, _)| rest.is_empty());
    if !found.iter().all(sound) {
        return Err("holds a certificate that cannot be read".into());
    }
    Ok(found.iter().map(|der| der.to_vec()).collect())
}

pub fn authorities(text: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let found = certificates(text)?;
    let mut store = RootCertStore::empty();
    for der in &found {
        store.add(der.clone().into()).map_err(|why| format!("holds a certificate that cannot sign others: {why}"))?;
    }
    Ok(found)
}

pub fn private_key(text: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let der = PrivateKeyDer::from_pem_slice(text).map_err(|_| "holds no private key")?;
    let der = der.secret_der().to_vec();
    // Pingora has only the bytes and finds out anew what kind of key they are.
    match PrivateKeyDer::try_from(der.clone()).map(|key| ring::sign::any_supported_type(&key)) {
        Ok(Ok(_)) => Ok(vec![der]),
        _ => Err("holds a private key of a kind that is not supported".into()),
    }
}

pub fn belong_together(cert: &Pem, key: &Pem) -> Result<(), &'static str> {
    let chain = cert.ders.iter().map(|der| CertificateDer::from(der.clone())).collect();
    let key = key.ders.first().and_then(|der| PrivateKeyDer::try_from(der.clone()).ok()).ok_or("cannot be read")?;
    match CertifiedKey::from_der(chain, key, &ring::default_provider()) {
        Ok(_) => Ok(()),
        Err(_) => Err("does not belong to `cert`"),
    }
}

/// Where it is, never what it holds.
impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Pem({})", self.path.display())
    }
}

impl Serialize for Pem {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.path.display())
    }
}

#[cfg(test)]
pub mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::super::parse;

    /// A folder with a certificate and its key, another key, and files that are neither.
    pub fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let key = KeyPair::generate().unwrap();
        let cert = CertificateParams::new(vec!["n1.test".into()]).unwrap().self_signed(&key).unwrap();
        write("good.crt", &cert.pem());
        write("good.key", &key.serialize_pem());
        write("other.key", &KeyPair::generate().unwrap().serialize_pem());
        write("text", "hello");
        write("bad.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        write("torn.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n");
        write("bad.key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
        folder
    }

    #[track_caller]
    fn check(tls: &str, expected: &[&str]) {
        let folder = folder();
        let text = format!("upstreams:\n  - name: a\n    url: https://n1.test\n    tls: {tls}\n");
        let origin = folder.path().join("x.yaml");
        let shown = parse(&text, &origin).map_or_else(|problems| problems.to_string(), |_| String::new());
        let shown = shown.replace(&format!("{}:4: upstreams[0].tls", origin.display()), "");
        assert_eq!(shown.lines().collect::<Vec<_>>(), expected, "{tls}");
    }

    #[test]
    fn good_files_are_taken() {
        check("{ca: good.crt, cert: good.crt, key: good.key, sni: n2.test}", &[]);
        check("{insecure: true, sni: 10.0.0.5}", &[]);
        check("{}", &[]);
    }

    #[test]
    fn sec_10_a_bad_file_is_a_problem_with_its_key_and_line() {
        let hint = "it must be a file in PEM form";
        check("{ca: text}", &[&format!(".ca: holds no certificate; {hint}")]);
        check("{ca: bad.crt}", &[&format!(".ca: holds a certificate that cannot be read; {hint}")]);
        check("{ca: torn.crt}", &[&format!(".ca: is not PEM; {hint}")]);
        check("{ca: none}", &[&format!(".ca: cannot be read: No such file or directory (os error 2); {hint}")]);
        check(
            "{cert: good.crt, key: bad.key}",
            &[&format!(".key: holds a private key of a kind that is not supported; {hint}")],
        );
        check("{cert: good.crt, key: good.crt}", &[&format!(".key: holds no private key; {hint}")]);
        check("{cert: good.crt}", &[".cert: needs key; one is of no use without the other"]);
        check("{key: good.key}", &[".key: needs cert; one is of no use without the other"]);
        check(
            "{cert: good.crt, key: other.key}",
            &[".key: does not belong to `cert`; it must be the one that `cert` was made for"],
        );
        check("{sni: 'a b'}", &[".sni: is neither a host name nor an address; write it like gpu1.example.org"]);
        check(
            "{insecure: true, ca: good.crt}",
            &[".insecure: checks nothing, not even against `ca`; leave one of them out"],
        );
    }

    #[test]
    fn a_key_is_never_shown() {
        let folder = folder();
        let text = "upstreams: [{name: a, url: 'https://n1.test', tls: {cert: good.crt, key: good.key}}]";
        let plan = parse(text, &folder.path().join("x.yaml")).unwrap();
        let key = plan.upstreams[0].tls.as_ref().unwrap().key.as_ref().unwrap().ders[0].clone();
        for shown in [format!("{plan:?}"), serde_json::to_string(&plan).unwrap()] {
            assert!(shown.contains("good.key") && !shown.contains(&format!("{}, {}", key[10], key[11])), "{shown}");
        }
    }
}
