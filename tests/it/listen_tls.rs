//! TLS on our own ports: what is spoken, whose certificate is shown, and who may come in.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::gate::{Gate, Settings};
use crate::http2::Http2;
use crate::patience::within;
use crate::rig::node;
use crate::talk::{Dialect, Talk};
use crate::tls::{Authority, Signed};
use crate::upstream::{Hold, Script};

const H1: &[u8] = b"http/1.1";
const H2: &[u8] = b"h2";

/// A client that trusts the authority, speaks this protocol and shows this certificate.
async fn connect(
    gate: &Gate,
    authority: &Authority,
    protocol: &[u8],
    shown: Option<&Signed>,
) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der.clone()).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let config = config.with_root_certificates(roots);
    let mut config = match shown {
        None => config.with_no_client_auth(),
        Some(signed) => {
            config.with_client_auth_cert(vec![signed.der.clone()], signed.key.clone_key()).expect("a certificate")
        }
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = TcpStream::connect(gate.address()).await?;
    let name = ServerName::try_from("localhost").expect("a name");
    within("a handshake", TlsConnector::from(Arc::new(config)).connect(name, stream)).await
}

/// One that speaks HTTP/2.
pub async fn connect_http2(gate: &Gate, authority: &Authority) -> TlsStream<TcpStream> {
    connect(gate, authority, H2, None).await.expect("a handshake")
}

/// The answer to a GET of `/api/version`, to its end.
async fn version(stream: &mut TlsStream<TcpStream>) -> io::Result<String> {
    stream.write_all(b"GET /api/version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut said = String::new();
    match within("an answer", stream.read_to_string(&mut said)).await {
        // Whoever closes without a word of goodbye has said it all the same.
        Err(error) if said.is_empty() => Err(error),
        _ => Ok(said),
    }
}

fn certificate(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    let (_, connection) = stream.get_ref();
    connection.peer_certificates().expect("a certificate")[0].clone().into_owned()
}

pub fn listen(tls: &str, more: &str) -> String {
    format!("listen: [{{address: \"127.0.0.1:0\", tls: {{{tls}}}}}]\nadmin: {{address: \"127.0.0.1:0\"}}\n{more}")
}

pub fn own(signed: &Signed) -> String {
    format!("cert: \"{}\", key: \"{}\"", signed.cert_file.display(), signed.key_file.display())
}

pub fn upstream(node: &crate::upstream::Upstream) -> String {
    format!("upstreams: [{{name: n1, url: \"{}\", engine: ollama}}]\n", node.url())
}

#[tokio::test]
async fn both_protocols_are_served_over_tls_and_plain_clients_are_not() {
    let (authority, node) = (Authority::new("ours"), node("n1").await);
    let signed = authority.signs("localhost", 2090);
    let gate = Gate::start(&Settings::raw(&listen(&own(&signed), &upstream(&node)))).await;

    let mut stream = connect(&gate, &authority, H1, None).await.expect("a handshake");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(H1));
    let said = version(&mut stream).await.expect("an answer");
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");

    let stream = connect(&gate, &authority, H2, None).await.expect("a handshake");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(H2));
    let mut client = Http2::over(stream).await;
    let talk = Talk::about(Dialect::Ollama, "moss");
    let mut answered = client.post("/api/chat", talk.ask().body()).await.answered().await;
    assert_eq!(answered.status, 200);
    assert!(String::from_utf8_lossy(&answered.whole().await).contains("\"done\":true"));

    let mut plain = gate.connect().await;
    plain.write(b"GET /api/version HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(plain.is_closed().await, "plain HTTP is not served where TLS is");
    let stranger = Authority::new("a stranger");
    assert!(connect(&gate, &stranger, H1, None).await.is_err(), "the client trusts somebody else");
    let counted = async {
        while gate.counter("warmgate_tls_handshakes_failed_total").await < 2.0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within("both to be counted", counted).await;
}

#[tokio::test]
async fn a_certificate_changes_under_running_connections_and_a_bad_one_changes_nothing() {
    let (authority, node) = (Authority::new("ours"), node("n1").await);
    let (first, second) = (authority.signs("localhost", 2090), authority.signs("localhost", 2091));
    let folder = tempfile::tempdir().expect("a folder");
    let place = |signed: &Signed| {
        for (from, to) in [(&signed.cert_file, "tls.crt"), (&signed.key_file, "tls.key")] {
            let beside = folder.path().join("beside");
            std::fs::copy(from, &beside).expect("a copy");
            std::fs::rename(&beside, folder.path().join(to)).expect("in place");
        }
    };
    place(&first);
    let path = |name: &str| folder.path().join(name).display().to_string();
    let files = format!("cert: \"{}\", key: \"{}\"", path("tls.crt"), path("tls.key"));
    let gate = Gate::start(&Settings::raw(&listen(&files, &upstream(&node)))).await;
    let hold = Hold::new();
    let talk = Talk::about(Dialect::Ollama, "moss");
    node.next(
        Script::ndjson().chunk(Dialect::Ollama.frame("one")).hold(&hold).chunk(Dialect::Ollama.last_frame()).finish(),
    );
    let stream = connect(&gate, &authority, H2, None).await.expect("a handshake");
    assert_eq!(certificate(&stream), first.der);
    let mut client = Http2::over(stream).await;
    let mut running = client.post("/api/chat", talk.ask().body()).await.answered().await;
    assert!(running.piece().await.is_some());

    place(&second);
    shows(&gate, &authority, &second.der).await;
    hold.open();
    assert!(String::from_utf8_lossy(&running.whole().await).contains("\"done\":true"), "the stream goes on");

    std::fs::write(path("tls.key"), "no key").expect("written");
    let kept = async {
        while !gate.log().contains("tls.key: holds no private key") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within("a line about the bad key", kept).await;
    shows(&gate, &authority, &second.der).await;
    place(&first);
    shows(&gate, &authority, &first.der).await;
}

/// Returns once new connections are shown that certificate.
async fn shows(gate: &Gate, authority: &Authority, expected: &CertificateDer<'static>) {
    let seen = async {
        while certificate(&connect(gate, authority, H1, None).await.expect("a handshake")) != *expected {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within("the other certificate", seen).await;
}

#[tokio::test]
async fn with_client_ca_only_clients_with_a_certificate_come_in() {
    let (authority, clients, node) = (Authority::new("ours"), Authority::new("of clients"), node("n1").await);
    let tls = format!("{}, client_ca: \"{}\"", own(&authority.signs("localhost", 2090)), clients.file().display());
    let gate = Gate::start(&Settings::raw(&listen(&tls, &upstream(&node)))).await;

    let mut known = connect(&gate, &authority, H1, Some(&clients.signs("somebody", 2090))).await.expect("a handshake");
    assert!(version(&mut known).await.expect("an answer").starts_with("HTTP/1.1 200"));
    for shown in [None, Some(clients.signs("somebody", 2020)), Some(authority.signs("somebody else", 2090))] {
        // With TLS 1.3 the client is done before the server has looked.
        let refused = match connect(&gate, &authority, H1, shown.as_ref()).await {
            Err(_) => true,
            Ok(mut stream) => version(&mut stream).await.is_err(),
        };
        assert!(refused, "{:?}", shown.map(|signed| signed.cert_file));
    }
}

#[tokio::test]
async fn a_handshake_that_does_not_come_has_the_head_s_deadline() {
    let (authority, node) = (Authority::new("ours"), node("n1").await);
    let more = upstream(&node) + "limits: {header_read: 300ms}\n";
    let gate = Gate::start(&Settings::raw(&listen(&own(&authority.signs("localhost", 2090)), &more))).await;

    let mut mute = gate.connect().await;
    assert!(mute.is_closed().await);
    let mut half = gate.connect().await;
    half.write(&[0x16, 0x03, 0x01, 0x02]).await;
    assert!(half.is_closed().await);
    let mut stream = connect(&gate, &authority, H1, None).await.expect("a handshake");
    let mut rest = Vec::new();
    let _ = within("a close", stream.read_to_end(&mut rest)).await;
    assert_eq!(gate.counter("warmgate_tls_handshakes_failed_total").await, 2.0);
}

#[tokio::test]
async fn bad_files_are_a_problem_of_the_configuration() {
    let authority = Authority::new("ours");
    let (one, other) = (authority.signs("localhost", 2090), authority.signs("localhost", 2091));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("warmgate.yaml");
    let mixed = format!("cert: \"{}\", key: \"{}\"", one.cert_file.display(), other.key_file.display());
    std::fs::write(&file, listen(&mixed, "")).expect("a file");
    for command in ["check", "run"] {
        let (code, said) = told(command, &file).await;
        assert_eq!(code, Some(2), "{command}: {said}");
        assert!(said.contains("listen[0].tls.key: does not belong to `cert`"), "{command}: {said}");
    }
}

/// What a command says of a configuration, and its code.
pub async fn told(command: &str, file: &Path) -> (Option<i32>, String) {
    let mut program = tokio::process::Command::new(env!("CARGO_BIN_EXE_warmgate"));
    let output = program.arg(command).arg("-c").arg(file).kill_on_drop(true).output();
    let output = within("the program to end", output).await.expect("output");
    (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[tokio::test]
async fn bytes_over_tls_are_the_node_s() {
    let (authority, node) = (Authority::new("ours"), node("n1").await);
    let gate = Gate::start(&Settings::raw(&listen(&own(&authority.signs("localhost", 2090)), &upstream(&node)))).await;
    let talk = Talk::about(Dialect::Ollama, "moss").with_picture(3 << 20);
    let stream = connect(&gate, &authority, H2, None).await.expect("a handshake");
    let mut client = Http2::over(stream).await;
    let request = talk.ask();
    let body: &Bytes = request.body();
    let mut answered = client.post("/api/chat", body).await.answered().await;
    answered.whole().await;
    let record = node.request(0).await;
    assert_eq!(record.body, *body);
    assert_eq!(record.head.get("x-forwarded-proto"), Some("https"));
}
