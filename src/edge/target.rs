//! Where an upstream lives, ready to be talked to.
//!
//! One rule joins its base path with a request's path. A URL may be written with or without a
//! trailing `/v1`, because every path that is joined carries its own. With TLS there is always a name
//! or an address to check the certificate against: without one Pingora would switch the check off.
//! Connections are kept apart by what secures them and by whose they are, so that none is used again
//! under other terms, or for another server that came to the same address.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderValue;
use pingora_core::protocols::tls::CaType;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::utils::tls::{CertKey, WrappedX509, parse_x509};
use xxhash_rust::xxh3::Xxh3Default;

use crate::config::{Pem, Tls, UpstreamUrl};
use crate::routing::fleet::UpstreamId;

/// An upstream's address, ready to be used.
#[derive(Clone)]
pub struct Target {
    url: UpstreamUrl,
    /// The value of the `Host` header.
    authority: String,
    /// The same, ready to be sent; `None`: no header can carry it.
    host: Option<HeaderValue>,
    /// Without a trailing slash and without a trailing `/v1`; empty for the root.
    base_path: String,
    bearer: Option<String>,
    /// The client's own keys go on to it.
    pub forwards_keys: bool,
    secured: Secured,
    /// Connections are shared only within one of these.
    pool: u64,
}

/// How its connections are secured.
#[derive(Clone, Default)]
struct Secured {
    ca: Option<Arc<CaType>>,
    own: Option<Arc<CertKey>>,
    /// What the certificate must be for; `None`: the URL's host.
    name: Option<String>,
    unchecked: bool,
}

impl Target {
    pub fn of(url: &UpstreamUrl) -> Target {
        let base = url.path.strip_suffix("/v1").unwrap_or(&url.path);
        let authority = authority(url);
        Target {
            url: url.clone(),
            host: HeaderValue::from_str(&authority).ok(),
            authority,
            base_path: base.trim_end_matches('/').to_string(),
            bearer: None,
            forwards_keys: false,
            secured: Secured::default(),
            pool: 0,
        }
    }

    /// For that row of the fleet and those that share its connections.
    pub fn of_row(self, row: UpstreamId, tls: Option<&Tls>) -> Target {
        self.pooled(Some(row), tls)
    }

    /// For no row: a server that is asked for other things than answers.
    pub fn with_tls(self, tls: Option<&Tls>) -> Target {
        self.pooled(None, tls)
    }

    fn pooled(mut self, row: Option<UpstreamId>, tls: Option<&Tls>) -> Target {
        let mut pool = Xxh3Default::new();
        row.hash(&mut pool);
        if let Some(tls) = tls {
            let ders = [&tls.ca, &tls.cert].map(|pem| pem.as_ref().map(|pem| &pem.ders));
            (ders, &tls.sni, tls.insecure).hash(&mut pool);
            self.secured = Secured::by(tls);
        }
        self.pool = pool.finish();
        self
    }

    /// Adds the key that is sent as `Authorization: Bearer`.
    pub fn with_bearer(mut self, key: Option<String>) -> Target {
        self.bearer = key;
        self
    }

    /// The path on this upstream of a request for `path_and_query`, which begins with a slash and
    /// carries its `/v1` where it has one.
    pub fn join(&self, path_and_query: &str) -> String {
        format!("{}{path_and_query}", self.base_path)
    }

    /// Its paths are those that are asked for.
    pub fn is_root(&self) -> bool {
        self.base_path.is_empty()
    }

    /// The value of the `Host` header: without the port where that is the scheme's own.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    pub fn host(&self) -> Option<HeaderValue> {
        self.host.clone()
    }

    /// The value of the `Authorization` header, if one is sent.
    pub fn authorization(&self) -> Option<String> {
        self.bearer.as_ref().map(|key| format!("Bearer {key}"))
    }

    pub fn url(&self) -> &UpstreamUrl {
        &self.url
    }

    /// The peer at one of the addresses that the URL leads to.
    pub fn peer(&self, address: SocketAddr) -> HttpPeer {
        let name = if self.url.tls { self.secured.name.as_ref().unwrap_or(&self.url.host).as_str() } else { "" };
        let mut peer = HttpPeer::new(address, self.url.tls, name.to_string());
        peer.group_key = self.pool;
        peer.client_cert_key = self.secured.own.clone();
        peer.options.ca = self.secured.ca.clone();
        peer.options.verify_cert = !self.secured.unchecked;
        peer.options.verify_hostname = !self.secured.unchecked;
        peer
    }

    /// A peer to find out whether TLS is spoken at an address where nobody expected it.
    pub fn tls_peer(&self, address: SocketAddr) -> HttpPeer {
        let mut peer = HttpPeer::new(address, true, self.url.host.clone());
        peer.group_key = self.pool;
        peer.options.verify_cert = false;
        peer.options.verify_hostname = false;
        peer
    }
}

fn authority(url: &UpstreamUrl) -> String {
    let authority = url.authority();
    let implied = if url.tls { ":443" } else { ":80" };
    authority.strip_suffix(implied).map(str::to_string).unwrap_or(authority)
}

impl Secured {
    fn by(tls: &Tls) -> Secured {
        let own = tls.cert.as_ref().zip(tls.key.as_ref());
        let own = own.and_then(|(cert, key)| Some(CertKey::new(cert.ders.clone(), key.ders.first()?.clone())));
        Secured {
            ca: tls.ca.as_ref().map(authorities),
            own: own.map(Arc::new),
            name: tls.sni.clone(),
            unchecked: tls.insecure,
        }
    }
}

/// In Pingora's form. It panics on a certificate that cannot be parsed; `config` has parsed these.
fn authorities(pem: &Pem) -> Arc<CaType> {
    pem.ders.iter().map(|der| WrappedX509::new(der.clone(), parse_x509)).collect()
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.url.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.base_path)
    }
}

/// As displayed: the key never appears.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self})")
    }
}

#[cfg(test)]
mod tests {
    use pingora_core::upstreams::peer::Peer;

    use super::*;

    fn target(url: &str) -> Target {
        Target::of(&url.parse().unwrap())
    }

    #[track_caller]
    fn check_join(url: &str, path: &str, expected: &str) {
        assert_eq!(target(url).join(path), expected);
    }

    #[test]
    fn ops_06_base_paths_join_by_one_rule() {
        for url in ["http://n1", "http://n1/", "http://n1/v1", "http://n1/v1/", "http://n1//"] {
            check_join(url, "/v1/chat/completions", "/v1/chat/completions");
            check_join(url, "/api/chat", "/api/chat");
            check_join(url, "/v1/models?x=1", "/v1/models?x=1");
            check_join(url, "/", "/");
        }
        for url in ["http://n1/team/llm", "http://n1/team/llm/", "http://n1/team/llm/v1"] {
            check_join(url, "/v1/chat/completions", "/team/llm/v1/chat/completions");
            check_join(url, "/api/chat", "/team/llm/api/chat");
            check_join(url, "/v1/models?x=1", "/team/llm/v1/models?x=1");
        }
        check_join("http://n1/xv1", "/v1/models", "/xv1/v1/models");
    }

    #[track_caller]
    fn check_authority(url: &str, expected: &str) {
        assert_eq!(target(url).authority(), expected);
    }

    #[test]
    fn authorities_leave_default_ports_out() {
        check_authority("http://Studio.Local", "studio.local");
        check_authority("http://n1:80", "n1");
        check_authority("http://n1:11434", "n1:11434");
        check_authority("https://n1:443/v1", "n1");
        check_authority("https://n1:80", "n1:80");
        check_authority("http://10.0.0.5:11434", "10.0.0.5:11434");
        check_authority("http://[::1]:11434", "[::1]:11434");
        check_authority("http://[0:0:0:0:0:0:0:1]", "[::1]");
    }

    #[test]
    fn tls_always_has_a_name_to_check() {
        let address: SocketAddr = "10.0.0.5:443".parse().unwrap();
        assert_eq!(target("https://n1.test").peer(address).sni, "n1.test");
        assert_eq!(target("https://10.0.0.5").peer(address).sni, "10.0.0.5");
        let named = Tls { sni: Some("n2.test".into()), ..Tls::default() };
        assert_eq!(target("https://n1.test").of_row(UpstreamId(0), Some(&named)).peer(address).sni, "n2.test");
        assert_eq!(target("http://n1.test").peer(address).sni, "");
    }

    #[test]
    fn sec_10_connections_are_shared_only_on_the_same_terms() {
        let address: SocketAddr = "10.0.0.5:443".parse().unwrap();
        let key =
            |row, tls: Option<&Tls>| target("https://n1.test").of_row(UpstreamId(row), tls).peer(address).reuse_hash();
        let insecure = Tls { insecure: true, ..Tls::default() };
        let named = Tls { sni: Some("n2.test".into()), ..Tls::default() };
        let all = [key(0, None), key(0, Some(&insecure)), key(0, Some(&named)), key(1, None)];
        assert_eq!(std::collections::HashSet::from(all).len(), all.len(), "{all:?}");
        assert_eq!(key(0, Some(&insecure)), key(0, Some(&insecure)));
    }

    #[test]
    fn the_key_is_sent_and_never_shown() {
        let target = target("http://n1/v1").with_bearer(Some("s3cret".into()));
        assert_eq!(target.authorization().as_deref(), Some("Bearer s3cret"));
        assert_eq!(format!("{target:?} {target}"), "Target(http://n1) http://n1");
    }
}
