//! TLS with clients: the handshake, under the certificate that the files hold now.
//!
//! Pingora would make the handshake before it shows us the connection, with a limit of its own and the
//! certificate of the start. Here it is a part of a visit, so that a client who dawdles counts and has the same
//! deadline as one who dawdles over a head. Certificates are changed under running connections, which keep
//! theirs; files that cannot be used change nothing.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use pingora_core::listeners::tls::Acceptor;
use pingora_core::protocols::Stream;
use pingora_core::protocols::l4::stream::Stream as L4Stream;
use pingora_core::{Error, ErrorType, Result};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::config::{Credentials, ListenTls};

/// What secures the connections to one address.
pub struct Securing {
    files: ListenTls,
    acceptor: ArcSwap<Acceptor>,
    known: Mutex<Known>,
}

/// What was seen of the files last.
struct Known {
    prints: Vec<Print>,
    credentials: Credentials,
}

/// What tells one state of a file from another without reading it; `None`: it is not there.
type Print = Option<(SystemTime, u64, PathBuf)>;

/// Spoken over TLS, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

impl Securing {
    pub fn open(files: &ListenTls) -> Result<Securing, String> {
        let prints = prints(files);
        let credentials = load(files)?;
        let acceptor = acceptor(&credentials)?;
        let known = Mutex::new(Known { prints, credentials });
        Ok(Securing { files: files.clone(), acceptor: ArcSwap::from_pointee(acceptor), known })
    }

    /// Makes the handshake.
    pub async fn secure(&self, stream: Stream) -> Result<Stream> {
        let Ok(stream) = stream.into_any().downcast::<L4Stream>() else {
            return Error::e_explain(ErrorType::InternalError, "not a connection of the network");
        };
        let acceptor = self.acceptor.load_full();
        Ok(Box::new(acceptor.tls_handshake(*stream).await?))
    }

    /// Takes what the files hold if they have changed and can be used.
    pub fn look_again(&self) {
        let mut known = self.known.lock();
        let prints = prints(&self.files);
        if prints == known.prints {
            return;
        }
        known.prints = prints;
        let shown = self.files.cert.display();
        let changed = load(&self.files).and_then(|credentials| {
            if credentials == known.credentials {
                return Ok(false);
            }
            self.acceptor.store(Arc::new(acceptor(&credentials)?));
            known.credentials = credentials;
            Ok(true)
        });
        match changed {
            Ok(true) => log::info!("{shown}: new connections get the certificate that it holds now"),
            Ok(false) => {}
            Err(why) => log::error!("{why}; new connections still get the certificate from before"),
        }
    }
}

/// The addresses that are secured; where a connection came in decides.
#[derive(Clone, Default)]
pub struct Secured(Vec<(SocketAddr, Arc<Securing>)>);

impl Secured {
    pub fn add(&mut self, address: SocketAddr, securing: Arc<Securing>) {
        self.0.push((address, securing));
    }

    /// What secures this connection; `None`: nothing does.
    pub fn of(&self, stream: &Stream) -> Option<&Arc<Securing>> {
        if self.0.is_empty() {
            return None;
        }
        let local = *stream.get_socket_digest()?.local_addr()?.as_inet()?;
        self.at(local)
    }

    /// Plain clients of an address that only looks secured are worse than none: no doubt is left to `of`.
    pub fn at(&self, local: SocketAddr) -> Option<&Arc<Securing>> {
        let (ip, port) = (local.ip().to_canonical(), local.port());
        let matches = |address: &SocketAddr| {
            address.port() == port && (address.ip().is_unspecified() || address.ip().to_canonical() == ip)
        };
        self.0.iter().find(|(address, _)| matches(address)).map(|(_, securing)| securing)
    }
}

/// Follows the files, for ever.
pub async fn keep_current(secured: Vec<Arc<Securing>>) {
    if secured.is_empty() {
        std::future::pending::<()>().await;
    }
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let secured = secured.clone();
        let _ = tokio::task::spawn_blocking(move || secured.iter().for_each(|securing| securing.look_again())).await;
    }
}

fn prints(files: &ListenTls) -> Vec<Print> {
    let print = |file: &PathBuf| {
        let metadata = std::fs::metadata(file).ok()?;
        // Where secrets are mounted, the files are links that are turned round.
        Some((metadata.modified().ok()?, metadata.len(), std::fs::canonicalize(file).ok()?))
    };
    files.files().map(print).collect()
}

fn load(files: &ListenTls) -> Result<Credentials, String> {
    files.load().map_err(|bad| {
        let of = |key: &str| match (key, &files.client_ca) {
            ("cert", _) => files.cert.display().to_string(),
            ("client_ca", Some(file)) => file.display().to_string(),
            _ => files.key.display().to_string(),
        };
        bad.iter().map(|file| format!("{}: {}", of(file.key), file.why)).collect::<Vec<_>>().join("; ")
    })
}

fn acceptor(credentials: &Credentials) -> Result<Acceptor, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().map_err(|why| why.to_string())?;
    let builder = match &credentials.client_ca {
        None => builder.with_no_client_auth(),
        Some(authorities) => {
            let mut roots = RootCertStore::empty();
            for der in &authorities.ders {
                roots.add(der.clone().into()).map_err(|why| why.to_string())?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|why| why.to_string())?)
        }
    };
    let chain = credentials.cert.ders.iter().map(|der| CertificateDer::from(der.clone())).collect();
    let key = credentials.key.ders.first().and_then(|der| PrivateKeyDer::try_from(der.clone()).ok());
    let key = key.ok_or("the key cannot be read")?;
    let mut config = builder.with_single_cert(chain, key).map_err(|why| why.to_string())?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    Ok(Acceptor::from_server_config(Arc::new(config)))
}
