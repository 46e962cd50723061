//! How the rows of an upstream are found: `discover: dns`, `discover: srv`, or `discover: {kubernetes: {...}}`.
//!
//! Each has its section of settings; where none is needed its name alone says it. What is written goes into questions
//! to a name server or to Kubernetes, so it is checked for what these allow.

use std::net::SocketAddr;

use serde::Serialize;

use super::node::Node;
use super::problem::Report;
use super::read::{Keys, Read, Spot, expected, join, one_of};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Discover {
    /// One for each address of its host name.
    Dns,
    /// One for each address and port in the SRV records of its host name.
    Srv(Srv),
    /// One for each endpoint of a service.
    Kubernetes(Endpoints),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Srv {
    /// Who is asked; `None`: whom this machine asks.
    pub nameserver: Option<SocketAddr>,
}

/// The endpoints of a Kubernetes service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Endpoints {
    pub service: String,
    /// `None`: that in which Warmgate itself runs.
    pub namespace: Option<String>,
    /// `None`: the only one that they have.
    pub port: Option<EndpointPort>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum EndpointPort {
    Number(u16),
    Name(String),
}

/// Of services, namespaces and ports.
const LABEL_BYTES_MAX: usize = 63;

impl Discover {
    /// This program can do it: watching Kubernetes is left out of it unless it was built with that.
    pub fn is_built_in(&self) -> bool {
        cfg!(feature = "kube") || !matches!(self, Discover::Kubernetes(_))
    }

    /// As it is called.
    pub fn name(&self) -> &'static str {
        match self {
            Discover::Dns => "dns",
            Discover::Srv(_) => "srv",
            Discover::Kubernetes(_) => "kubernetes",
        }
    }

    /// What its rows are, for people.
    pub fn summary(&self, host: &str) -> String {
        match self {
            Discover::Dns => format!("one for each address of {host}"),
            Discover::Srv(Srv { nameserver }) => {
                let at = nameserver.map_or_else(String::new, |server| format!(", asked of {server}"));
                format!("one for each address in the SRV records of {host} with the lowest priority{at}")
            }
            Discover::Kubernetes(Endpoints { service, namespace, port }) => {
                let namespace = namespace.as_deref().unwrap_or("Warmgate's own");
                let port = match port {
                    None => "their only port".to_owned(),
                    Some(EndpointPort::Number(number)) => format!("port {number}"),
                    Some(EndpointPort::Name(name)) => format!("the port {name}"),
                };
                format!("one for each endpoint of the service {service}, namespace {namespace}, at {port}")
            }
        }
    }
}

const KINDS: [&str; 2] = ["srv", "kubernetes"];

impl Read for Discover {
    fn read(at: Spot, report: &mut Report) -> Option<Discover> {
        let Node::Map(_) = at.node else {
            return one_of(at, &[("dns", None), ("srv", Some(()))], report).map(|found| match found {
                None => Discover::Dns,
                Some(()) => Discover::Srv(Srv::default()),
            });
        };
        let keys = Keys::of(at, report)?;
        keys.refuse_others(&KINDS, report);
        match (keys.node("srv").is_some(), keys.node("kubernetes").is_some()) {
            (true, false) => keys.value("srv", report).map(Discover::Srv),
            (false, true) => keys.value("kubernetes", report).map(Discover::Kubernetes),
            (true, true) => {
                report.add(at.path, "names two sources", "an upstream has one; write another upstream");
                None
            }
            (false, false) => {
                report.add(at.path, "names no source", "write dns, srv, {srv: {...}} or {kubernetes: {service: ...}}");
                None
            }
        }
    }

    fn schema(path: &str, paths: &mut Vec<String>) {
        paths.push(path.to_owned());
        Srv::schema(&join(path, "srv"), paths);
        Endpoints::schema(&join(path, "kubernetes"), paths);
    }
}

impl Read for Srv {
    fn read(at: Spot, report: &mut Report) -> Option<Srv> {
        let keys = Keys::of(at, report)?;
        keys.refuse_others(&["nameserver"], report);
        let nameserver = keys.value::<String>("nameserver", report).and_then(|written| {
            let address = written.parse::<SocketAddr>().ok();
            let address = address.filter(|address| address.port() > 0 && !address.ip().is_unspecified());
            if address.is_none() {
                let hint = "write an IP address and a port, like 127.0.0.1:8600";
                report.add(join(at.path, "nameserver"), format!("`{written}` is no name server's address"), hint);
            }
            address
        });
        Some(Srv { nameserver })
    }

    fn schema(path: &str, paths: &mut Vec<String>) {
        paths.push(join(path, "nameserver"));
    }
}

impl Read for Endpoints {
    fn read(at: Spot, report: &mut Report) -> Option<Endpoints> {
        let keys = Keys::of(at, report)?;
        keys.refuse_others(&["service", "namespace", "port"], report);
        let mut label = |key: &str| {
            let written = keys.value::<String>(key, report)?;
            if !is_label(&written) {
                let hint = "up to 63 lower-case letters, digits and -, as Kubernetes has it";
                report.add(join(at.path, key), format!("`{written}` is no name of one"), hint);
            }
            Some(written)
        };
        let (service, namespace) = (label("service"), label("namespace"));
        let port = keys.value("port", report);
        if service.is_none() {
            report.add_missing(&join(at.path, "service"), "the name of the service whose endpoints are nodes");
        }
        Some(Endpoints { service: service?, namespace, port })
    }

    fn schema(path: &str, paths: &mut Vec<String>) {
        paths.extend(["service", "namespace", "port"].map(|key| join(path, key)));
    }
}

impl Read for EndpointPort {
    fn read(at: Spot, report: &mut Report) -> Option<EndpointPort> {
        let port = match at.node {
            Node::Whole(number) => u16::try_from(*number).ok().filter(|port| *port > 0).map(EndpointPort::Number),
            Node::Text(name) if is_label(name) => Some(EndpointPort::Name(name.clone())),
            Node::Text(_) => None,
            other => {
                expected("a port's name or number", other, at.path, report);
                return None;
            }
        };
        if port.is_none() {
            report.add(at.path, "is no port", "the name of a port, like http, or a number from 1 to 65535");
        }
        port
    }
}

/// What a name in Kubernetes may be.
fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let ends = !text.starts_with('-') && !text.ends_with('-');
    (1..=LABEL_BYTES_MAX).contains(&text.len()) && ends && text.bytes().all(inner)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{Plan, Problems, parse};

    fn read(discover: &str) -> Result<Plan, Problems> {
        parse(&format!("upstreams: [{{name: a, url: 'http://a.test', discover: {discover}}}]"), Path::new("x"))
    }

    #[track_caller]
    fn check(discover: &str, expected: &[&str]) {
        let shown = read(discover).map_or_else(|problems| problems.to_string(), |_| String::new());
        let shown: Vec<&str> =
            shown.lines().map(|line| line.trim_start_matches("x:1: upstreams[0].discover")).collect();
        assert_eq!(shown, expected, "{discover}");
    }

    #[track_caller]
    fn check_summary(discover: &str, expected: &str) {
        let plan = read(discover).unwrap();
        assert_eq!(plan.upstreams[0].discover.as_ref().unwrap().summary("a.test"), expected);
    }

    #[test]
    fn names_alone_and_with_settings() {
        check_summary("dns", "one for each address of a.test");
        check_summary("srv", "one for each address in the SRV records of a.test with the lowest priority");
        check_summary(
            "{srv: {nameserver: '127.0.0.1:8600'}}",
            "one for each address in the SRV records of a.test with the lowest priority, asked of 127.0.0.1:8600",
        );
    }

    #[test]
    fn what_is_wrong_with_them() {
        check("files", &[": `files` is not known; known here: dns, srv"]);
        check("[dns]", &[": expected one of dns, srv, found a list"]);
        check(
            "{consul: {}}",
            &[
                ".consul: unknown key; known here: srv, kubernetes",
                ": names no source; write dns, srv, {srv: {...}} or {kubernetes: {service: ...}}",
            ],
        );
        check(
            "{srv: {nameserver: consul}}",
            &[
                ".srv.nameserver: `consul` is no name server's address; write an IP address and a port, like 127.0.0.1:8600",
            ],
        );
        check(
            "{srv: {nameserver: '0.0.0.0:53'}}",
            &[
                ".srv.nameserver: `0.0.0.0:53` is no name server's address; write an IP address and a port, like 127.0.0.1:8600",
            ],
        );
    }

    #[cfg(not(feature = "kube"))]
    #[test]
    fn a_build_without_kubernetes_says_how_to_make_one_with_it() {
        check(
            "{kubernetes: {service: a}}",
            &[".kubernetes: this Warmgate was built without it; build one with: cargo build --release --features kube"],
        );
    }

    #[cfg(feature = "kube")]
    #[test]
    fn what_is_wrong_with_endpoints() {
        check(
            "{kubernetes: {namespace: a}}",
            &[".kubernetes.service: missing; the name of the service whose endpoints are nodes"],
        );
        check(
            "{kubernetes: {service: 'a,b=c', port: 0}}",
            &[
                ".kubernetes.service: `a,b=c` is no name of one; up to 63 lower-case letters, digits and -, as Kubernetes has it",
                ".kubernetes.port: is no port; the name of a port, like http, or a number from 1 to 65535",
            ],
        );
    }

    #[cfg(feature = "kube")]
    #[test]
    fn endpoints_of_a_service() {
        check_summary(
            "{kubernetes: {service: vllm}}",
            "one for each endpoint of the service vllm, namespace Warmgate's own, at their only port",
        );
        check_summary(
            "{kubernetes: {service: vllm, namespace: ml, port: http}}",
            "one for each endpoint of the service vllm, namespace ml, at the port http",
        );
        check_summary(
            "{kubernetes: {service: vllm, port: 8000}}",
            "one for each endpoint of the service vllm, namespace Warmgate's own, at port 8000",
        );
    }
}
