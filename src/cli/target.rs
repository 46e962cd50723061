//! Which running Warmgate a command speaks to, and as whom.
//!
//! It is named by its configuration, by `--admin`, or it is the one that everybody gets. The token goes to that
//! one only, and over TLS only to one whose certificate holds.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::config::{self, Files, Plan, Secret, Tls, UpstreamUrl};
use crate::edge::admin::TOKEN_WANTED;
use crate::edge::fetch::reason::{TlsFault, for_names};
use crate::edge::fetch::{FetchError, Fetched, Fetcher};
use crate::edge::refusal::Refusal;
use crate::edge::target::Target;

/// Where the token is when it is not an argument, which everybody on a machine can read.
const TOKEN_VARIABLE: &str = "WARMGATE_ADMIN_TOKEN";

#[derive(Clone, Debug, Default, Args)]
pub struct TargetArgs {
    /// Configuration of the running Warmgate, for its admin address and its token
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Admin address of the running Warmgate: host:port or a URL; without it the configured one, else 127.0.0.1:9435
    #[arg(long, value_name = "ADDR", value_parser = place)]
    pub admin: Option<UpstreamUrl>,
    /// Its admin token; better put it into WARMGATE_ADMIN_TOKEN, since others see arguments
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<Secret>,
    /// Who may have signed its certificate, a PEM file; without it whom this machine trusts
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
}

const NAMES: &str = "--admin names its admin port, usually 9435";

/// A running Warmgate's admin port.
pub struct Admin {
    pub target: Target,
    url: UpstreamUrl,
    has_ca: bool,
    fetcher: Fetcher,
}

impl TargetArgs {
    /// What is wrong is with the arguments, or with the files that they name.
    pub fn admin(&self) -> Result<Admin, String> {
        let plan = match &self.config {
            Some(path) => config::load(path).map_err(|problems| problems.to_string())?,
            None => Plan::default(),
        };
        let url = match &self.admin {
            Some(url) => url.clone(),
            None => configured(&plan)?,
        };
        let tls = self.ca.as_ref().map(|path| {
            Tls::with_authorities(path, &mut Files::default()).map_err(|why| format!("--ca {}: {why}", path.display()))
        });
        let target = Target::of(&url).with_tls(tls.transpose()?.as_ref()).with_bearer(self.bearer(plan.admin.token)?);
        Ok(Admin { target, url, has_ca: self.ca.is_some(), fetcher: Fetcher::new() })
    }

    fn bearer(&self, configured: Option<Secret>) -> Result<Option<String>, String> {
        let expose = |secret: Secret| secret.expose().to_owned();
        match (&self.token, std::env::var(TOKEN_VARIABLE)) {
            (Some(token), _) => Ok(Some(expose(token.clone()))),
            (None, Ok(text)) if !text.is_empty() => {
                text.parse().map(|secret| Some(expose(secret))).map_err(|why| format!("{TOKEN_VARIABLE}: {why}"))
            }
            _ => Ok(configured.map(expose)),
        }
    }
}

impl Admin {
    pub async fn get(&self, path: &str, limit: Duration) -> Result<Fetched, FetchError> {
        self.fetcher.get(&self.target, path, limit).await
    }

    /// Where the connection turns out to be stale it is asked twice; what is asked here may be.
    pub async fn post(&self, path: &str, json: &[u8], limit: Duration) -> Result<Fetched, FetchError> {
        self.fetcher.post(&self.target, path, json, limit).await
    }

    /// The same for a command that has nothing else to do meanwhile.
    pub fn post_alone(&self, path: &str, json: &[u8], limit: Duration) -> Result<Fetched, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        runtime.block_on(self.post(path, json, limit)).map_err(|error| self.silence(&error))
    }

    /// For people, when it does not answer.
    pub fn silence(&self, error: &FetchError) -> String {
        match error {
            FetchError::Tls(fault) => format!("no secured connection to a Warmgate at {self}: {}", self.help(fault)),
            _ => format!("no answer from a Warmgate at {self} ({error}); --admin names its admin address"),
        }
    }

    /// What is wrong and which option helps; those of a configuration are none here.
    fn help(&self, fault: &TlsFault) -> String {
        match fault {
            TlsFault::OtherName(names) => {
                format!("its certificate is for {}; name it so in --admin", for_names(names))
            }
            TlsFault::UnknownIssuer if self.has_ca => {
                "its certificate is signed by nobody whom the file of --ca holds".into()
            }
            TlsFault::UnknownIssuer => "its certificate is signed by nobody whom this machine trusts; --ca FILE names \
                                        who signed it"
                .into(),
            TlsFault::Authority => "its certificate is an authority's own and not one that an authority signed; sign \
                                    one with it for this server, and name the authority with --ca FILE"
                .into(),
            TlsFault::WantsOurs => "it wants a certificate of its clients, which this command has not".into(),
            TlsFault::NoTls => "it speaks plain HTTP and no TLS; write http:// in --admin".into(),
            TlsFault::OnlyTls => "it speaks TLS; write https in --admin".into(),
            TlsFault::Expired | TlsFault::NotYetValid | TlsFault::TimedOut | TlsFault::Closed | TlsFault::Other(_) => {
                fault.to_string()
            }
        }
    }

    /// For people, where this is the answer of a port that wants to know who is there, or of one that is none for this.
    pub fn turned_away(&self, answer: &Fetched) -> Option<String> {
        let says = |words: &str| String::from_utf8_lossy(&answer.body).contains(words);
        match answer.status.as_u16() {
            401 if says(TOKEN_WANTED) => {
                Some(format!("{self} asks for its admin token: put it into {TOKEN_VARIABLE}, or give --token or -c"))
            }
            401 => Some(format!("{self} asks for the key of a client, as the client port of a Warmgate does; {NAMES}")),
            404 if says(&Refusal::UnknownPath.message()) => {
                Some(format!("{self} is the client port of a Warmgate; {NAMES}"))
            }
            _ => None,
        }
    }
}

/// Without credentials: there are none in an `UpstreamUrl`.
impl fmt::Display for Admin {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.url.fmt(f)
    }
}

fn place(text: &str) -> Result<UpstreamUrl, &'static str> {
    let url = if text.contains("://") { text.parse() } else { format!("http://{text}").parse() };
    url.map_err(|_| "write host:port, or a URL such as https://gate.example.org:9435")
}

/// A port that listens everywhere is asked on this machine.
fn configured(plan: &Plan) -> Result<UpstreamUrl, String> {
    let address = plan.admin.address;
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let scheme = if plan.admin.tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{}", SocketAddr::new(ip, address.port())).parse();
    url.map_err(|_| format!("admin.address {address} cannot be asked; write --admin"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(written: &str, expected: Option<&str>) {
        assert_eq!(place(written).ok().map(|url| url.to_string()).as_deref(), expected, "{written}");
    }

    #[test]
    fn places() {
        check("127.0.0.1:9435", Some("http://127.0.0.1:9435"));
        check("[::1]:9435", Some("http://[::1]:9435"));
        check("gate:1", Some("http://gate:1"));
        check("https://gate.example.org:9435/", Some("https://gate.example.org:9435"));
        check("https://gate.example.org/warmgate", Some("https://gate.example.org:443/warmgate"));
        check("https://me:pass@gate.example.org", None);
        check("ftp://gate", None);
        check("", None);
    }

    #[track_caller]
    fn check_configured(address: &str, expected: &str) {
        let mut plan = Plan::default();
        plan.admin.address = address.parse().unwrap();
        assert_eq!(configured(&plan).map(|url| url.to_string()).as_deref(), Ok(expected));
    }

    #[test]
    fn what_listens_everywhere_is_asked_here() {
        check_configured("0.0.0.0:9435", "http://127.0.0.1:9435");
        check_configured("[::]:9435", "http://[::1]:9435");
        check_configured("10.0.0.5:9435", "http://10.0.0.5:9435");
    }
}
