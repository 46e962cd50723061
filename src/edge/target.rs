//! Where an upstream lives, ready to be talked to.
//!
//! One rule joins its base path with a request's path. A URL may be written with or without a
//! trailing `/v1`, because every path that is joined carries its own. With TLS there is always a name
//! to check the certificate against: without one Pingora would switch the check off, so `UpstreamUrl`
//! refuses such a URL.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use pingora_core::upstreams::peer::HttpPeer;

use crate::config::UpstreamUrl;

/// An upstream's address, ready to be used.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    url: UpstreamUrl,
    /// Without a trailing slash and without a trailing `/v1`; empty for the root.
    base_path: String,
    bearer: Option<String>,
}

impl Target {
    pub fn of(url: &UpstreamUrl) -> Target {
        let base = url.path.strip_suffix("/v1").unwrap_or(&url.path);
        Target { url: url.clone(), base_path: base.trim_end_matches('/').to_string(), bearer: None }
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

    /// The value of the `Host` header: without the port where that is the scheme's own.
    pub fn authority(&self) -> String {
        let authority = self.url.authority();
        let implied = if self.url.tls { ":443" } else { ":80" };
        authority.strip_suffix(implied).map(str::to_string).unwrap_or(authority)
    }

    /// The value of the `Authorization` header, if one is sent.
    pub fn authorization(&self) -> Option<String> {
        self.bearer.as_ref().map(|key| format!("Bearer {key}"))
    }

    /// The addresses behind the name now, at least one.
    pub async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        if let Some(ip) = self.url.ip() {
            return Ok(vec![SocketAddr::new(ip, self.url.port)]);
        }
        let found: Vec<_> = tokio::net::lookup_host((self.url.host.as_str(), self.url.port)).await?.collect();
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        }
        Ok(found)
    }

    /// The peer at one of the resolved addresses.
    pub fn peer(&self, address: SocketAddr) -> HttpPeer {
        let sni = if self.url.tls { self.url.host.clone() } else { String::new() };
        HttpPeer::new(address, self.url.tls, sni)
    }
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
    use super::*;

    fn target(url: &str) -> Target {
        Target::of(&url.parse().unwrap())
    }

    #[track_caller]
    fn check_join(url: &str, path: &str, expected: &str) {
        assert_eq!(target(url).join(path), expected);
    }

    #[test]
    fn base_paths_join_by_one_rule() {
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
        assert!("https://10.0.0.5".parse::<UpstreamUrl>().is_err());
        assert_eq!(target("http://n1.test").peer(address).sni, "");
    }

    #[test]
    fn the_key_is_sent_and_never_shown() {
        let target = target("http://n1/v1").with_bearer(Some("s3cret".into()));
        assert_eq!(target.authorization().as_deref(), Some("Bearer s3cret"));
        assert_eq!(format!("{target:?} {target}"), "Target(http://n1) http://n1");
    }

    #[tokio::test]
    async fn names_and_addresses_resolve() {
        let resolve = async |url: &str| target(url).resolve().await;
        assert_eq!(resolve("http://[::1]:7").await.unwrap(), ["[::1]:7".parse().unwrap()]);
        let local = resolve("http://localhost:11434").await.unwrap();
        assert!(local.iter().all(|a| a.ip().is_loopback() && a.port() == 11434), "{local:?}");
        assert!(resolve("http://nowhere.invalid").await.is_err());
    }
}
