//! The address of an upstream: `http://10.0.0.5:11434`, `https://models.example.org/gpu1`.
//!
//! It names a place and nothing else. Credentials, query and fragment are refused, since they would
//! reach logs and screens.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use http::Uri;
use serde::{Serialize, Serializer};

use super::problem::Report;
use super::read::{Read, Spot, expected};

/// Two are equal when they lead to the same place: host names in lower case, the port always set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UpstreamUrl {
    /// `https`.
    pub tls: bool,
    /// A host name, or an IP address; IPv6 without brackets.
    pub host: String,
    pub port: u16,
    /// Goes in front of every request's path: empty, or `/` and more without a `/` at the end.
    pub path: String,
}

impl UpstreamUrl {
    /// The host as an IP address, if it is one; else it is a name to be resolved.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// `host:port`, with brackets around IPv6: what a `Host` header or a socket address shows.
    pub fn authority(&self) -> String {
        match self.host.parse::<Ipv6Addr>() {
            Ok(ip) => format!("[{ip}]:{}", self.port),
            Err(_) => format!("{}:{}", self.host, self.port),
        }
    }
}

impl FromStr for UpstreamUrl {
    /// What is wrong; never quotes credentials.
    type Err = &'static str;

    fn from_str(text: &str) -> Result<UpstreamUrl, &'static str> {
        let (scheme, _) = text.split_once("://").ok_or("a URL starts with http:// or https://")?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err("only http and https are spoken"),
        };
        if text.contains('#') {
            return Err("a URL of an upstream has no fragment (#)");
        }
        let uri: Uri = text.parse().map_err(|_| "not a URL")?;
        let authority = uri.authority().ok_or("the host is missing")?.as_str();
        if authority.contains('@') {
            return Err("credentials do not belong in the URL; use api_key");
        }
        if uri.query().is_some() {
            return Err("a URL of an upstream has no query (?)");
        }
        let host = host(uri.host().unwrap_or_default())?;
        let port = port(authority, if tls { 443 } else { 80 })?;
        let path = uri.path().trim_end_matches('/').to_owned();
        Ok(UpstreamUrl { tls, host, port, path })
    }
}

fn host(written: &str) -> Result<String, &'static str> {
    if let Some(inner) = written.strip_prefix('[') {
        let ip = inner.strip_suffix(']').and_then(|inner| inner.parse::<Ipv6Addr>().ok());
        return ip.map(|ip| ip.to_string()).ok_or("not an IPv6 address between the brackets");
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    match written {
        "" => Err("the host is missing"),
        host if host.bytes().all(allowed) => Ok(host.to_ascii_lowercase()),
        _ => Err("the host holds characters that no host name has"),
    }
}

fn port(authority: &str, default: u16) -> Result<u16, &'static str> {
    let after_host = authority.rfind(']').map_or(authority, |end| &authority[end..]);
    match after_host.split_once(':') {
        None => Ok(default),
        Some((_, digits)) => digits.parse().ok().filter(|port| *port > 0).ok_or("the port is not from 1 to 65535"),
    }
}

impl fmt::Display for UpstreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

impl Serialize for UpstreamUrl {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl Read for UpstreamUrl {
    fn read(at: Spot, report: &mut Report) -> Option<UpstreamUrl> {
        let Some(text) = at.node.scalar() else {
            expected("a URL", at.node, at.path, report);
            return None;
        };
        let hint = "write it like http://10.0.0.5:11434 or https://models.example.org";
        text.parse().map_err(|why| report.add(at.path, why, hint)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let url = text.parse::<UpstreamUrl>().ok().map(|url| url.to_string());
        assert_eq!(url.as_deref(), expected, "{text}");
    }

    #[test]
    fn places() {
        check("http://10.0.0.5:11434", Some("http://10.0.0.5:11434"));
        check("http://10.0.0.5:11434/", Some("http://10.0.0.5:11434"));
        check("HTTP://Studio.local", Some("http://studio.local:80"));
        check("https://models.example.org/gpu1/", Some("https://models.example.org:443/gpu1"));
        check("http://[::1]:11434", Some("http://[::1]:11434"));
        check("http://[0:0::1]/a/b", Some("http://[::1]:80/a/b"));
        check("http://studio:8000/v1/", Some("http://studio:8000/v1"));
        check("https://[::1]:8443", Some("https://[::1]:8443"));
        check("https://openrouter.ai/api", Some("https://openrouter.ai:443/api"));
    }

    #[test]
    fn refusals() {
        for text in [
            "",
            "studio:11434",
            "//studio",
            "ftp://studio",
            "http://",
            "http://:11434",
            "http://studio:",
            "http://studio:0",
            "http://studio:70000",
            "http://studio:11434?x=1",
            "http://studio/#x",
            "http://user@studio",
            "http://user:pass@studio",
            "http://stu dio",
            "http://stüdio",
            "http://[::1",
            "http://[studio]",
        ] {
            check(text, None);
        }
    }
}
