//! The log: standard error, one line an event; access lines stand alone, for machines to read.

use std::io::Write;

use env_logger::{Builder, Env, Target};

use crate::edge::access_log;

/// What is logged unless `RUST_LOG` says otherwise.
const DEFAULT: &str = "error,warmgate=info";

pub fn start() {
    let mut builder = Builder::from_env(Env::default().default_filter_or(DEFAULT));
    builder.target(Target::Stderr).format(|line, record| {
        if record.target() == access_log::TARGET {
            return writeln!(line, "{}", record.args());
        }
        writeln!(line, "{} {:5} {}", line.timestamp_millis(), record.level(), record.args())
    });
    // Already started is fine: a library user has a log of its own.
    let _ = builder.try_init();
}
