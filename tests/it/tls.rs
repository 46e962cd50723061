//! Connections to upstreams that are secured, well and badly.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::gate::{Gate, Settings};
use crate::rig::{finished, node};
use crate::talk::{Dialect, Talk};
use crate::upstream::Upstream;

/// An authority and what it signs, in files.
pub struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
    pub der: CertificateDer<'static>,
}

/// A certificate, its key, and the files of both.
pub struct Signed {
    pub der: CertificateDer<'static>,
    pub key: PrivateKeyDer<'static>,
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let folder = tempfile::tempdir().expect("a folder");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let cert = params.self_signed(&key).expect("a certificate");
        std::fs::write(folder.path().join("ca"), cert.pem()).expect("a file");
        Authority { folder, issuer: Issuer::new(params, key), der: cert.der().clone() }
    }

    pub fn file(&self) -> PathBuf {
        self.folder.path().join("ca")
    }

    pub fn signs(&self, name: &str, until_year: i32) -> Signed {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.not_after = date_time_ymd(until_year, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate");
        let file = |ending: &str, text: String| {
            let path = self.folder.path().join(format!("{name}.{until_year}.{ending}"));
            std::fs::write(&path, text).expect("a file");
            path
        };
        let (cert_file, key_file) = (file("crt", cert.pem()), file("key", key.serialize_pem()));
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        Signed { der: cert.der().clone(), key, cert_file, key_file }
    }
}

/// TLS in front of a scripted node; the port it listens on. With an authority only for clients that show a
/// certificate of its.
pub async fn front(node: &Upstream, signed: Signed, clients: Option<&Authority>) -> u16 {
    let acceptor = acceptor(signed, clients);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let (port, behind) = (listener.local_addr().expect("an address").port(), node.address());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            stream.set_nodelay(true).expect("TCP_NODELAY");
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut node = TcpStream::connect(behind).await.expect("the node");
                node.set_nodelay(true).expect("TCP_NODELAY");
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut node).await;
            });
        }
    });
    port
}

/// The server's side of TLS, with this certificate.
pub fn acceptor(signed: Signed, clients: Option<&Authority>) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider.clone());
    let config = config.with_safe_default_protocol_versions().expect("versions");
    let config = match clients {
        None => config.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.der.clone()).expect("an authority");
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            config.with_client_cert_verifier(verifier.expect("a verifier"))
        }
    };
    let config = config.with_single_cert(vec![signed.der], signed.key).expect("a certificate and its key");
    TlsAcceptor::from(Arc::new(config))
}

/// A server of plain HTTP, which takes a handshake for a bad request; its port.
async fn without_tls() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await;
        }
    });
    port
}

fn keys(name: &str, url: &str, tls: &str) -> String {
    format!("name: {name}, url: \"{url}\", engine: ollama{tls}")
}

fn ca(file: &Path) -> String {
    format!(", tls: {{ca: \"{}\"}}", file.display())
}

async fn problem(gate: &Gate, name: &str) -> String {
    field(gate, name, "problem").await.as_str().unwrap_or_default().to_owned()
}

async fn field(gate: &Gate, name: &str, key: &str) -> Value {
    let status = gate.status().await;
    let node = status["nodes"].as_array().expect("nodes").iter().find(|node| node["name"] == name).cloned();
    node.unwrap_or_else(|| panic!("no {name} in {status:#}"))[key].clone()
}

#[tokio::test]
async fn sec_10_only_servers_that_are_who_they_say_get_traffic() {
    let (authority, stranger) = (Authority::new("ours"), Authority::new("a stranger"));
    let names = ["plain", "private", "renamed", "expired", "unknown", "wants"];
    let mut behind = Vec::new();
    for name in names {
        behind.push(node(name).await);
    }
    let [plain, private, renamed, expired, unknown, wants] = &behind[..] else { panic!("six nodes") };
    let mine = ca(&authority.file());
    let at = |port: u16| format!("https://localhost:{port}");
    let settings = Settings::default()
        .upstream(&keys("plain", &plain.url(), ""))
        .upstream(&keys("private", &at(front(private, authority.signs("localhost", 2090), None).await), &mine))
        .upstream(&keys("renamed", &at(front(renamed, authority.signs("other.test", 2090), None).await), &mine))
        .upstream(&keys("expired", &at(front(expired, authority.signs("localhost", 2020), None).await), &mine))
        .upstream(&keys("unknown", &at(front(unknown, stranger.signs("localhost", 2090), None).await), &mine))
        .upstream(&keys("bare", &at(without_tls().await), &mine))
        .upstream(&keys(
            "wants",
            &format!("http://localhost:{}", front(wants, authority.signs("localhost", 2090), None).await),
            "",
        ));
    let gate = Gate::start(&settings).await;
    let mut served = std::collections::BTreeSet::new();
    for n in 0..24 {
        let reply = finished(&gate, &Talk::about(Dialect::Ollama, &format!("moss {n}"))).await;
        assert_eq!(reply.status, 200);
        served.insert(reply.node().to_owned());
    }

    assert_eq!(served.iter().map(String::as_str).collect::<Vec<_>>(), ["plain", "private"]);
    for node in &behind[2..] {
        assert_eq!(node.count(), 0, "traffic for {}", node.name());
    }
    for (name, expected) in [
        ("plain", ""),
        ("private", ""),
        ("renamed", "tls error: its certificate is for other.test; see `url` or `tls.sni`"),
        ("expired", "tls error: its certificate has expired"),
        ("unknown", "tls error: its certificate is signed by nobody who is trusted; see `tls.ca`"),
        ("bare", "tls error: it does not speak TLS; write http in `url`"),
        ("wants", "tls error: it speaks TLS; write https in `url`"),
    ] {
        assert_eq!(problem(&gate, name).await, expected, "{name}");
    }
}

#[tokio::test]
async fn sec_10_a_certificate_that_is_its_own_authority_is_refused_in_words() {
    let own = node("own").await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ca");
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let cert = params.self_signed(&key).expect("a certificate");
    std::fs::write(&file, cert.pem()).expect("a file");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let signed = Signed { der: cert.der().clone(), key, cert_file: file.clone(), key_file: file.clone() };
    let url = format!("https://localhost:{}", front(&own, signed, None).await);

    let gate = Gate::start_not_ready(&Settings::default().upstream(&keys("own", &url, &ca(&file)))).await;

    let told = "tls error: its certificate is an authority's own and not one that an authority signed; sign one with \
                it for this server, or write `tls.insecure: true`";
    assert_eq!(problem(&gate, "own").await, told);
    assert_eq!(own.count(), 0);
}

#[tokio::test]
async fn sec_10_another_name_an_address_our_certificate_or_no_check_at_all() {
    let authority = Authority::new("ours");
    let (named, numbered, mutual, unchecked) =
        (node("named").await, node("numbered").await, node("mutual").await, node("unchecked").await);
    let ours = authority.signs("warmgate.test", 2090);
    let file = authority.file().display().to_string();
    let mutual_port = front(&mutual, authority.signs("localhost", 2090), Some(&authority)).await;
    let own = format!(", cert: \"{}\", key: \"{}\"", ours.cert_file.display(), ours.key_file.display());
    let settings = Settings::default()
        .upstream(&keys(
            "named",
            &format!("https://localhost:{}", front(&named, authority.signs("n1.test", 2090), None).await),
            &format!(", tls: {{ca: \"{file}\", sni: n1.test}}"),
        ))
        .upstream(&keys(
            "numbered",
            &format!("https://127.0.0.1:{}", front(&numbered, authority.signs("127.0.0.1", 2090), None).await),
            &ca(&authority.file()),
        ))
        .upstream(&keys(
            "mutual",
            &format!("https://localhost:{mutual_port}"),
            &format!(", tls: {{ca: \"{file}\"{own}}}"),
        ))
        .upstream(&keys(
            "unchecked",
            &format!("https://127.0.0.1:{}", front(&unchecked, authority.signs("other.test", 2020), None).await),
            ", tls: {insecure: true}",
        ));
    let gate = Gate::start(&settings).await;
    let mut served = std::collections::BTreeSet::new();
    for n in 0..40 {
        let reply = finished(&gate, &Talk::about(Dialect::Ollama, &format!("moss {n}"))).await;
        assert_eq!(reply.status, 200);
        served.insert(reply.node().to_owned());
    }

    for name in ["named", "numbered", "mutual", "unchecked"] {
        assert_eq!(problem(&gate, name).await, "", "{name}");
        assert!(served.contains(name), "{name} served nothing: {served:?}");
        let warned = field(&gate, name, "warning").await.as_str().is_some_and(|text| text.contains("not checked"));
        assert_eq!(warned, name == "unchecked", "{name}");
    }
    let again = format!("https://localhost:{mutual_port}");
    let gate =
        Gate::start_not_ready(&Settings::default().upstream(&keys("mutual", &again, &ca(&authority.file())))).await;
    let refused = "tls error: it refuses our certificate, or wants one; see `tls.cert`";
    assert_eq!(problem(&gate, "mutual").await, refused);
}
