//! `warmgate check`: is this configuration right, and what does it say?
//!
//! Opens nothing but the file and the secrets it names: no socket, no name resolved.

use std::io::{self, Write};
use std::process::ExitCode;

use super::{CheckArgs, EXIT_WRONG};
use crate::config;

pub fn check(args: &CheckArgs) -> ExitCode {
    let code = answer(args, &mut io::stdout(), &mut io::stderr());
    // A reader that went away (`| head -1`) has seen what it wanted.
    ExitCode::from(code.unwrap_or(0))
}

fn answer(args: &CheckArgs, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<u8> {
    match config::load(&args.config) {
        Ok(plan) => {
            write!(out, "{} is right.\n\n{}", args.config.display(), plan.explain())?;
            Ok(0)
        }
        Err(problems) => {
            writeln!(err, "{problems}")?;
            Ok(EXIT_WRONG)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: Option<&str>, expected: (u8, &str, &str)) {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("x.yaml");
        if let Some(text) = text {
            std::fs::write(&config, text).unwrap();
        }
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = answer(&CheckArgs { config }, &mut out, &mut err).unwrap();
        let [out, err] = [out, err].map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(code, expected.0);
        for (shown, expected) in [(out, expected.1), (err, expected.2)] {
            assert_eq!(shown.is_empty(), expected.is_empty(), "{shown}");
            assert!(shown.contains(expected), "{shown}");
        }
    }

    #[test]
    fn tells_what_was_understood() {
        check(Some("routing: {policy: shuffle}"), (0, "policy      shuffle\n", ""));
        check(Some(""), (0, "x.yaml is right.", ""));
    }

    #[test]
    fn tells_every_problem() {
        check(Some("a: 1\nb: 2"), (2, "", "x.yaml:2: b: unknown key"));
        check(None, (2, "", "x.yaml: cannot be read: No such file"));
    }
}
