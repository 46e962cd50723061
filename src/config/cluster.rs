//! Other replicas of the same Warmgate, and the Redis or Valkey over which they agree.
//!
//! The URL may hold a password: it is kept as a secret, and what is shown of it is its hosts alone.

use std::fmt;
use std::path::Path;

use percent_encoding::percent_decode_str;
use serde::{Serialize, Serializer};

use super::file;
use super::node::Node;
use super::problem::Report;
use super::read::{Read, Spot};
use super::secret::{Secret, Source};
use super::tls::{Pem, authorities};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cluster {
    pub redis: RedisUrl,
    /// In front of every key and channel: replicas with the same one are one cluster.
    pub prefix: String,
    /// Who may have signed the certificates of Redis; `None`: whom this machine trusts.
    pub ca: Option<Pem>,
}

/// Where the shared memory is.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    pub form: RedisForm,
    pub tls: bool,
    /// At least one; sentinels, or nodes to begin with.
    pub hosts: Vec<(String, u16)>,
    pub user: Option<String>,
    pub password: Option<String>,
    /// Zero with Redis Cluster.
    pub database: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisForm {
    Single,
    /// The name under which the sentinels know the master.
    Sentinel(String),
    Cluster,
}

/// As written: the URL itself, or where it is.
#[derive(Clone)]
pub enum RedisSource {
    Url(String),
    Elsewhere(Source),
}

const HOSTS_MAX: usize = 64;
const PREFIX_BYTES_MAX: usize = 64;
const PREFIX: &str = "warmgate";
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

const FORM: &str = "write redis://HOST:6379, rediss:// for TLS, redis+sentinel://HOST,HOST/MASTER or \
                    redis+cluster://HOST,HOST; with a password {env: NAME} or {file: PATH}";

impl Cluster {
    /// `None` without a URL, which is reported.
    pub fn of(written: file::Cluster, folder: &Path, report: &mut Report) -> Option<Cluster> {
        let prefix = written.prefix.unwrap_or_else(|| PREFIX.to_owned());
        let plain = |byte: u8| byte.is_ascii_graphic() && !b"{}*".contains(&byte);
        if prefix.is_empty() || prefix.len() > PREFIX_BYTES_MAX || !prefix.bytes().all(plain) {
            let what = format!("must be 1 to {PREFIX_BYTES_MAX} visible characters without braces and *");
            report.add("cluster.prefix", what, "");
        }
        let text = match written.redis {
            None => {
                report.add_missing("cluster.redis", FORM);
                return None;
            }
            Some(RedisSource::Url(text)) => text,
            Some(RedisSource::Elsewhere(source)) => {
                let fetched = Secret::fetch(&source, folder, &mut report.files);
                fetched.map_err(|why| report.add("cluster.redis", why, "")).ok()?.expose().to_owned()
            }
        };
        let redis = RedisUrl::of(&text).map_err(|why| report.add("cluster.redis", why, FORM)).ok()?;
        let ca = written.ca.and_then(|file| {
            let fetched = Pem::fetch(&folder.join(file), authorities, &mut report.files);
            fetched.map_err(|why| report.add("cluster.ca", why, "it must be a file in PEM form")).ok()
        });
        if ca.is_some() && !redis.tls {
            report.add("cluster.ca", "is of no use without TLS", "write rediss:// in `redis`");
        }
        Some(Cluster { redis, prefix, ca })
    }

    /// For people.
    pub fn summary(&self) -> String {
        let what = match &self.redis.form {
            RedisForm::Single => "Redis".to_owned(),
            RedisForm::Sentinel(master) => format!("the master {master} of the sentinels"),
            RedisForm::Cluster => "Redis Cluster".to_owned(),
        };
        let open = if self.redis.tls { "" } else { ", without TLS" };
        format!("over {what} at {}{open}; keys begin with {}", self.redis.places(), self.prefix)
    }
}

impl RedisUrl {
    /// The error quotes nothing of it.
    fn of(text: &str) -> Result<RedisUrl, &'static str> {
        let (scheme, rest) = text.split_once("://").ok_or("not a URL")?;
        let (base, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        let tls = match base.to_ascii_lowercase().as_str() {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            _ => return Err("only redis, rediss, valkey and valkeys are spoken"),
        };
        if rest.contains(['?', '#']) || !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a URL of Redis has no query and no fragment");
        }
        let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, hosts) =
            place.rsplit_once('@').map_or((None, place), |(before, after)| (Some(before), after));
        let default_port = if kind == "sentinel" { SENTINEL_PORT } else { PORT };
        let hosts = hosts.split(',').map(|host| host_of(host, default_port)).collect::<Result<Vec<_>, _>>()?;
        if hosts.len() > HOSTS_MAX {
            return Err("it has more than 64 hosts");
        }
        let (user, password) = credentials.map_or(Ok((None, None)), credentials_of)?;
        let mut segments = path.split('/').filter(|segment| !segment.is_empty());
        let form = match kind {
            "" if hosts.len() > 1 => return Err("several hosts are sentinels or a cluster: say which"),
            "" => RedisForm::Single,
            "sentinel" => RedisForm::Sentinel(segments.next().ok_or("the name of the master is missing")?.to_owned()),
            "cluster" => RedisForm::Cluster,
            _ => return Err("after the + stands sentinel or cluster"),
        };
        let database = segments.next().map_or(Ok(0), str::parse).map_err(|_| "the database is not a number")?;
        if segments.next().is_some() || database < 0 || (form == RedisForm::Cluster && database != 0) {
            return Err("its path is the number of a database, none with a cluster");
        }
        Ok(RedisUrl { form, tls, hosts, user, password, database })
    }

    /// Its hosts, without anything secret.
    pub fn places(&self) -> String {
        let place = |(host, port): &(String, u16)| {
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
        };
        self.hosts.iter().map(place).collect::<Vec<_>>().join(",")
    }
}

fn credentials_of(text: &str) -> Result<(Option<String>, Option<String>), &'static str> {
    let decoded = |part: &str| {
        let text = percent_decode_str(part).decode_utf8().map_err(|_| "its credentials are not UTF-8")?;
        Ok::<_, &'static str>(Some(text.into_owned()).filter(|text| !text.is_empty()))
    };
    let (user, password) = text.split_once(':').ok_or("credentials are USER:PASSWORD@ or :PASSWORD@")?;
    Ok((decoded(user)?, decoded(password)?))
}

fn host_of(text: &str, default_port: u16) -> Result<(String, u16), &'static str> {
    let (host, port) = match text.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() || !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte)) {
        return Err("a host is missing, or holds characters that no host name has");
    }
    let port = port.map_or(Ok(default_port), str::parse).ok().filter(|port| *port > 0);
    Ok((host.to_ascii_lowercase(), port.ok_or("a port is not from 1 to 65535")?))
}

impl Read for RedisSource {
    fn read(at: Spot, report: &mut Report) -> Option<RedisSource> {
        match at.node {
            Node::Text(text) => Some(RedisSource::Url(text.clone())),
            _ => Source::read(at, report).map(RedisSource::Elsewhere),
        }
    }
}

impl fmt::Debug for RedisSource {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            RedisSource::Url(_) => f.write_str("Url(hidden)"),
            RedisSource::Elsewhere(source) => source.fmt(f),
        }
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let secret = if self.password.is_some() { "(hidden)@" } else { "" };
        let (kind, master) = match &self.form {
            RedisForm::Single => ("", String::new()),
            RedisForm::Sentinel(master) => ("+sentinel", format!("/{master}")),
            RedisForm::Cluster => ("+cluster", String::new()),
        };
        let database = if self.database > 0 { format!("/{}", self.database) } else { String::new() };
        write!(f, "{scheme}{kind}://{secret}{}{master}{database}", self.places())
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for RedisUrl {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let read = RedisUrl::of(text);
        let shown = read.map_or_else(|why| why.to_owned(), |url| format!("{url} {:?} {:?}", url.user, url.password));
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn the_three_forms_with_and_without_tls() {
        check("redis://r1", "redis://r1:6379 None None");
        check("rediss://R1:7000/3", "rediss://r1:7000/3 None None");
        check("valkey://[::1]:1", "redis://[::1]:1 None None");
        check("redis://:p%40ss@h", "redis://(hidden)@h:6379 None Some(\"p@ss\")");
        check("redis://me:pw@h", "redis://(hidden)@h:6379 Some(\"me\") Some(\"pw\")");
        check("redis+sentinel://a,b:1/main/2", "redis+sentinel://a:26379,b:1/main/2 None None");
        check("rediss+cluster://a,b", "rediss+cluster://a:6379,b:6379 None None");
    }

    #[test]
    fn what_is_wrong_is_said_without_quoting_it() {
        check("redis:hunter2", "not a URL");
        check("http://h", "only redis, rediss, valkey and valkeys are spoken");
        check("redis://a,b", "several hosts are sentinels or a cluster: say which");
        check("redis+sentinel://a", "the name of the master is missing");
        check("redis+other://a", "after the + stands sentinel or cluster");
        check("redis://h:0", "a port is not from 1 to 65535");
        check("redis://", "a host is missing, or holds characters that no host name has");
        check("redis://h/x", "the database is not a number");
        check("redis+cluster://h/1", "its path is the number of a database, none with a cluster");
        check("redis://hunter2@h", "credentials are USER:PASSWORD@ or :PASSWORD@");
        check("redis://h?db=1", "a URL of Redis has no query and no fragment");
    }
}
