//! The configuration, at two levels: what was written and what was meant.
//!
//! `file` holds the first, keys and values as they stand in the text; `plan` the second, typed and
//! resolved, which is all the rest of the program ever sees. Reading never stops at the first
//! mistake: every problem comes back at once, with its key path, its line and a hint, and a text with
//! one problem gives no plan at all. Nothing is opened on the way except the files of secrets and
//! certificates.

mod bounds;
mod change;
mod cluster;
mod cors;
mod discover;
mod engine;
mod explain;
mod file;
mod files;
mod groups;
mod jwks;
mod jwt;
mod key;
mod lines;
mod listen_tls;
pub(crate) mod nearest;
mod node;
mod peers;
mod plan;
mod policy;
mod problem;
mod read;
mod resolve;
mod rows;
mod secret;
#[cfg(test)]
mod shipped;
mod signals;
mod tenants;
mod tls;
mod upstream_url;

use std::fs;
use std::io;
use std::path::Path;

pub use change::{Change, changes};
pub use cluster::{Cluster, RedisForm, RedisUrl};
pub use cors::Cors;
pub use discover::{Discover, EndpointPort, Endpoints, Srv};
pub use engine::{default_slots, engine_names};
pub use files::{Files, bytes_of, is_regular};
pub use jwks::{SigningKey, SigningKeys, is_symmetric};
pub use jwt::{Jwks, JwksUrl, Jwt};
pub use key::{KEY_CHARS_MAX, KeyHash, unfit as unfit_key};
pub use listen_tls::{BadFile, Credentials, ListenTls};
pub use peers::TrustedPeers;
pub use plan::{
    AccessLog, Admin, Admission, Affinity, Auth, Group, GroupTarget, Health, Heartbeat, Limits, Listen, Log, Plan,
    Resilience, Routing, Server, Shutdown, Telemetry, Tenant, TenantLimits, Timeouts, Tracing, Upstream, UsageProbe,
};
pub use policy::Policy;
pub use problem::{Problem, Problems};
pub use rows::{ADDRESS_MARK, RANK_MARK};
pub use secret::Secret;
pub use tls::{Pem, Tls};
pub use upstream_url::UpstreamUrl;

use problem::Report;

/// No real configuration comes near this many bytes; a file that does was named by mistake.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// Reads the file at `path`.
pub fn load(path: &Path) -> Result<Plan, Problems> {
    load_noting(path, &mut Files::default())
}

/// Reads the file at `path`, and notes it and the files that it names, be it that they are bad.
pub fn load_noting(path: &Path, files: &mut Files) -> Result<Plan, Problems> {
    match text_of(path, files) {
        Ok(text) => parse_noting(&text, path, files),
        Err(error) => Err(Problems::unreadable(path, &error.to_string())),
    }
}

/// The first of `places` that exists. One that exists and cannot be read is a problem, not a reason to
/// look further.
pub fn first_of<'a>(places: &[&'a Path]) -> Option<&'a Path> {
    places.iter().find(|place| fs::symlink_metadata(place).is_ok()).copied()
}

/// Reads a text. `origin` names it in problems, and files of secrets are looked for beside it.
pub fn parse(text: &str, origin: &Path) -> Result<Plan, Problems> {
    parse_noting(text, origin, &mut Files::default())
}

fn parse_noting(text: &str, origin: &Path, files: &mut Files) -> Result<Plan, Problems> {
    let root = node::parse(text).map_err(|problem| Problems::syntax(origin, problem))?;
    let mut report = Report::with_schema(file::File::keys());
    report.files = std::mem::take(files);
    let written = file::File::of(&root, &mut report);
    let folder = origin.parent().unwrap_or(Path::new(""));
    bounds::check_written(&written, &mut report);
    let plan = resolve::plan(written, folder, &mut report);
    bounds::check_together(&plan, &mut report);
    *files = std::mem::take(&mut report.files);
    report.into_problems(origin, text).map_or(Ok(plan), Err)
}

fn text_of(path: &Path, files: &mut Files) -> io::Result<String> {
    let bytes = files.read(path, FILE_BYTES_MAX)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("larger than any configuration (8 MiB)"));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

#[cfg(test)]
mod tests;
