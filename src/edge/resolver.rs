//! From host names to addresses.
//!
//! The one way to an address, for discovery and for questions alike, so that both go to the same place.
//! Whoever mounts Warmgate may bring another than the system's.

use std::io;
use std::net::SocketAddr;

use async_trait::async_trait;

use crate::config::UpstreamUrl;

#[async_trait]
pub trait Resolver: Send + Sync {
    /// The addresses of a host now; none is no error here.
    async fn lookup(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// Asks the operating system.
pub struct SystemResolver;

#[async_trait]
impl Resolver for SystemResolver {
    async fn lookup(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((host, port)).await?.collect())
    }
}

/// The addresses that a URL leads to now, at least one.
pub async fn addresses(resolver: &dyn Resolver, url: &UpstreamUrl) -> io::Result<Vec<SocketAddr>> {
    if let Some(ip) = url.ip() {
        return Ok(vec![SocketAddr::new(ip, url.port)]);
    }
    let found = resolver.lookup(&url.host, url.port).await?;
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_and_addresses_resolve() {
        let resolve = async |url: &str| addresses(&SystemResolver, &url.parse().unwrap()).await;
        assert_eq!(resolve("http://[::1]:7").await.unwrap(), ["[::1]:7".parse().unwrap()]);
        let local = resolve("http://localhost:11434").await.unwrap();
        assert!(local.iter().all(|a| a.ip().is_loopback() && a.port() == 11434), "{local:?}");
        assert!(resolve("http://nowhere.invalid").await.is_err());
    }
}
