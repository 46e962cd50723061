//! The log: standard error, one line an event, by the same way out as access lines, so that no event waits for
//! whoever reads the log.

use std::io::{self, Write};

use env_logger::{Builder, Env, Target};
use log::Level;

use crate::edge::log_text::Line;
use crate::edge::outlet;

/// What is logged unless `RUST_LOG` says otherwise. What Kubernetes' client fails at is told by who asks it, and once.
const DEFAULT: &str = "error,kube_client=off,warmgate=info";

/// What libraries may log, whatever `RUST_LOG` says: below it they write requests and keys as they send them.
const LIBRARIES_MAX: Level = Level::Info;

pub fn start() {
    let mut builder = Builder::from_env(Env::default().default_filter_or(DEFAULT));
    builder.target(Target::Pipe(Box::new(Lines))).format(|line, record| {
        if record.level() > LIBRARIES_MAX && !record.target().starts_with("warmgate") {
            return Ok(());
        }
        let (time, level) = (line.timestamp_millis(), record.level());
        writeln!(line, "{time} {level:5} {}", Line(&record.args().to_string()))
    });
    // Already started is fine: a library user has a log of its own.
    let _ = builder.try_init();
}

struct Lines;

impl Write for Lines {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        outlet::stderr().say(lines);
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
