//! `warmgate hash-key`: from a key to the line that the configuration wants.
//!
//! The key comes from standard input, so that it stands in no list of processes and no history of commands.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::process::ExitCode;

use super::EXIT_WRONG;
use crate::config::{KEY_CHARS_MAX, KeyHash, unfit_key};

pub fn hash_key() -> ExitCode {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        eprintln!(
            "the key, then Enter (it is shown while you type; `openssl rand -hex 32 | tee key | warmgate hash-key` is not):"
        );
    }
    let code = answer(&mut stdin.lock(), &mut io::stdout(), &mut io::stderr());
    ExitCode::from(code.unwrap_or(1))
}

fn answer(input: &mut dyn BufRead, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<u8> {
    let mut line = String::new();
    // One character more than would be a key, and the end of its line.
    input.take(KEY_CHARS_MAX as u64 * 4 + 2).read_line(&mut line)?;
    let key = line.trim_end_matches(['\r', '\n']);
    if key.is_empty() {
        writeln!(err, "warmgate: no key came; write one, or make one with `openssl rand -hex 32 | tee key`")?;
        return Ok(EXIT_WRONG);
    }
    if let Some(why) = unfit_key(key) {
        writeln!(err, "warmgate: {why}; make one with `openssl rand -hex 32`")?;
        return Ok(EXIT_WRONG);
    }
    writeln!(out, "keys: [\"{}\"]", KeyHash::of(key).written())?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &str, code: u8, out: &str) {
        let (mut printed, mut complaint) = (Vec::new(), Vec::new());
        assert_eq!(answer(&mut input.as_bytes(), &mut printed, &mut complaint).unwrap(), code, "{input}");
        assert_eq!(String::from_utf8(printed).unwrap(), out);
        let complaint = String::from_utf8(complaint).unwrap();
        assert_eq!(complaint.is_empty(), code == 0, "{complaint}");
        assert!(!complaint.contains("changeme"));
    }

    #[test]
    fn a_key_becomes_a_line_and_a_bad_one_a_complaint() {
        let key = "3f0c9a1e5b7d24680f1e2d3c4b5a6978";
        let line = format!("keys: [\"{}\"]\n", KeyHash::of(key).written());
        check(&format!("{key}\n"), 0, &line);
        check(&format!("{key}\r\nmore\n"), 0, &line);
        check(key, 0, &line);
        for bad in ["", "\n", "sk-1234\n", "changeme\n", "short\n", &"x".repeat(9000)] {
            check(bad, 2, "");
        }
    }
}
