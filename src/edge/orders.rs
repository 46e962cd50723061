//! What operators can have done over the admin port: a reload, a drain, and its end.
//!
//! A node drains if its configuration or an operator says so. An operator's drain outlives every reload and
//! upgrade, and with a state file a restart; it ends with `resume` or with the node's name, the configuration's with
//! the configuration.
//! By POST, the body of which is not read. A page in a browser may not: who sends it from anywhere but this very
//! port is refused, so that no site that an operator visits can drain a fleet.

use std::sync::Arc;

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::ingress::Ingress;
use super::node::Node;
use super::reload::{Cause, Reloader};
use super::state_file;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    Reload,
    /// A row, or all rows of an upstream.
    Drain(String),
    Resume(String),
}

impl Order {
    /// The order of that path, if it is one.
    pub fn at(path: &str) -> Option<Order> {
        if path == "/fleet/reload" {
            return Some(Order::Reload);
        }
        // The names of rows may hold a slash.
        let (name, what) = path.strip_prefix("/fleet/nodes/")?.rsplit_once('/')?;
        let name = percent_decode_str(name).decode_utf8().ok()?.into_owned();
        match what {
            "drain" => Some(Order::Drain(name)),
            "resume" => Some(Order::Resume(name)),
            _ => None,
        }
    }

    /// Carries it out; gives a status and what came of it.
    pub async fn carry_out(&self, ingress: &Arc<Ingress>, reloader: &Reloader) -> (u16, Value) {
        match self {
            Order::Reload => {
                let record = reloader.reload(Cause::Request).await;
                (record.status(), record.to_json())
            }
            Order::Drain(name) => drain_and_keep(ingress, name, true).await,
            Order::Resume(name) => drain_and_keep(ingress, name, false).await,
        }
    }
}

/// Whoever has the answer knows that it holds, even if the process is killed the moment after.
async fn drain_and_keep(ingress: &Arc<Ingress>, name: &str, drain: bool) -> (u16, Value) {
    let (status, mut told) = self::drain(ingress, name, drain);
    let written = match status {
        200 => state_file::save_apart(ingress.clone()).await,
        _ => Ok(()),
    };
    if let (Err(why), Some(lines)) = (written, told["lines"].as_array_mut()) {
        lines.push(format!("it is not kept over a restart: the state file cannot be written: {why}").into());
    }
    (status, told)
}

fn drain(ingress: &Ingress, name: &str, drain: bool) -> (u16, Value) {
    let Some(nodes) = ingress.roster.drain(name, drain) else {
        let nodes = ingress.roster.nodes();
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        let line = format!("no node is called {name}; there are: {}", names.join(", "));
        return (404, json!({"error": line, "nodes": names, "lines": [line]}));
    };
    if !drain {
        ingress.waiting_room.sweep();
    }
    log::info!("{name}: {} by an operator", if drain { "drained" } else { "resumed" });
    let rows: Vec<(Value, String)> = nodes.iter().map(|node| row(ingress, node)).collect();
    let (rows, mut lines): (Vec<Value>, Vec<String>) = rows.into_iter().unzip();
    if lines.is_empty() {
        lines.push(format!(
            "{name} has no address just now; what is found will {}",
            if drain { "drain" } else { "serve" }
        ));
    }
    (200, json!({"node": name, "rows": rows, "lines": lines}))
}

/// What is so of a row now.
fn row(ingress: &Ingress, node: &Arc<Node>) -> (Value, String) {
    let (drained_by, in_flight) = ingress.fleet.with(|fleet, _| {
        let upstream = fleet.upstream(node.id);
        let in_flight = upstream.map_or(0, |upstream| upstream.in_flight);
        (upstream.map(|upstream| drained_by(node, upstream)).unwrap_or_default(), in_flight)
    });
    let name = &node.name;
    let line = match (&drained_by[..], ingress.roster.drained_as(node)) {
        ([], _) => format!("{name} takes new work"),
        (["file"], _) => {
            format!("{name} still drains, since the configuration says `drain: true`; {in_flight} run there")
        }
        (_, Some(other)) if other != *name => format!("{name} drains as part of {other}; {in_flight} run there"),
        (["discovery"], _) => {
            format!("{name} still drains, since its server is on its way out; {in_flight} run there")
        }
        (["file", _], _) => format!("{name} drains, by the configuration as well; {in_flight} run there"),
        _ => format!("{name} drains: it takes no new work; {in_flight} run there"),
    };
    let draining = !drained_by.is_empty();
    (json!({"name": name, "draining": draining, "drained_by": drained_by, "in_flight": in_flight}), line)
}

/// Who says that it drains: the file, whoever told where it is, an operator, or several of them.
pub fn drained_by(node: &Node, upstream: &crate::routing::upstream::Upstream) -> Vec<&'static str> {
    let in_file = node.site.configured.drain;
    let says = [("file", in_file), ("discovery", upstream.spec.drain && !in_file), ("admin", upstream.told_to_drain)];
    says.into_iter().filter(|(_, says)| *says).map(|(who, _)| who).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_path(path: &str, expected: Option<Order>) {
        assert_eq!(Order::at(path), expected, "{path}");
    }

    #[test]
    fn orders_by_their_paths() {
        check_path("/fleet/reload", Some(Order::Reload));
        check_path("/fleet/nodes/a/drain", Some(Order::Drain("a".into())));
        check_path("/fleet/nodes/a/resume", Some(Order::Resume("a".into())));
        check_path("/fleet/nodes/gpus/0/drain", Some(Order::Drain("gpus/0".into())));
        check_path("/fleet/nodes/gpus%2F0/drain", Some(Order::Drain("gpus/0".into())));
        for path in ["/", "/fleet", "/fleet/status", "/fleet/nodes/a", "/fleet/nodes/a/kill", "/fleet/nodes//"] {
            check_path(path, None);
        }
    }
}
