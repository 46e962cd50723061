//! The log: standard error, one line an event. Access lines go there too, by `edge::access_log`.

use std::io::Write;

use env_logger::{Builder, Env, Target};
use log::Level;

/// What is logged unless `RUST_LOG` says otherwise. What Kubernetes' client fails at is told by who asks it, and once.
const DEFAULT: &str = "error,kube_client=off,warmgate=info";

/// What libraries may log, whatever `RUST_LOG` says: below it they write requests and keys as they send them.
const LIBRARIES_MAX: Level = Level::Info;

pub fn start() {
    let mut builder = Builder::from_env(Env::default().default_filter_or(DEFAULT));
    builder.target(Target::Stderr).format(|line, record| {
        if record.level() > LIBRARIES_MAX && !record.target().starts_with("warmgate") {
            return Ok(());
        }
        writeln!(line, "{} {:5} {}", line.timestamp_millis(), record.level(), record.args())
    });
    // Already started is fine: a library user has a log of its own.
    let _ = builder.try_init();
}
