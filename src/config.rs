//! The configuration, at two levels: what was written and what was meant.
//!
//! `file` holds the first, keys and values as they stand in the text; `plan` the second, typed and
//! resolved, which is all the rest of the program ever sees. Reading never stops at the first
//! mistake: every problem comes back at once, with its key path, its line and a hint, and a text with
//! one problem gives no plan at all. Nothing is opened on the way except the files of secrets and
//! certificates.

mod bounds;
mod cors;
mod engine;
mod explain;
mod file;
mod groups;
mod key;
mod lines;
mod nearest;
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
use std::io::{self, Read as _};
use std::path::Path;

pub use cors::Cors;
pub use engine::{default_slots, engine_names};
pub use key::{KEY_CHARS_MAX, KeyHash, unfit as unfit_key};
pub use peers::TrustedPeers;
pub use plan::{
    AccessLog, Admin, Admission, Affinity, Group, GroupTarget, Health, Heartbeat, Limits, Listen, Log, Plan,
    Resilience, Routing, Server, Shutdown, Telemetry, Tenant, TenantLimits, Timeouts, Upstream, UsageProbe,
};
pub use policy::Policy;
pub use problem::{Problem, Problems};
pub use rows::{ADDRESS_MARK, Discover, RANK_MARK};
pub use secret::Secret;
pub use tls::{Pem, Tls};
pub use upstream_url::UpstreamUrl;

use problem::Report;

/// No real configuration comes near this many bytes; a file that does was named by mistake.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// Reads the file at `path`.
pub fn load(path: &Path) -> Result<Plan, Problems> {
    match text_of(path) {
        Ok(text) => parse(&text, path),
        Err(error) => Err(Problems::unreadable(path, &error.to_string())),
    }
}

/// Reads the first of `places` that exists; none exists: the defaults. The place that was read comes
/// with the plan. A file that exists and cannot be read is a problem, not a reason to look further.
pub fn load_first<'a>(places: &[&'a Path]) -> Result<(Plan, Option<&'a Path>), Problems> {
    match places.iter().find(|place| fs::symlink_metadata(place).is_ok()) {
        Some(place) => load(place).map(|plan| (plan, Some(*place))),
        None => Ok((Plan::default(), None)),
    }
}

/// Reads a text. `origin` names it in problems, and files of secrets are looked for beside it.
pub fn parse(text: &str, origin: &Path) -> Result<Plan, Problems> {
    let root = node::parse(text).map_err(|problem| Problems::syntax(origin, problem))?;
    let mut report = Report::with_schema(file::File::keys());
    let written = file::File::of(&root, &mut report);
    let folder = origin.parent().unwrap_or(Path::new(""));
    bounds::check_written(&written, &mut report);
    let plan = resolve::plan(written, folder, &mut report);
    bounds::check_together(&plan, &mut report);
    report.into_problems(origin, text).map_or(Ok(plan), Err)
}

fn text_of(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("larger than any configuration (8 MiB)"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
