//! `warmgate reload`, `drain` and `resume`: a running Warmgate is told over its admin port.
//!
//! Prints what came of it, a line each.

use std::process::ExitCode;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::EXIT_WRONG;
use super::target::TargetArgs;
use crate::edge::fetch::Fetched;

/// Reading a configuration may wait for a slow disk.
const ANSWER_MAX: Duration = Duration::from_secs(60);

pub fn reload(at: &TargetArgs) -> ExitCode {
    order(at, "/fleet/reload")
}

pub fn drain(at: &TargetArgs, node: &str) -> ExitCode {
    order(at, &format!("/fleet/nodes/{}/drain", utf8_percent_encode(node, NON_ALPHANUMERIC)))
}

pub fn resume(at: &TargetArgs, node: &str) -> ExitCode {
    order(at, &format!("/fleet/nodes/{}/resume", utf8_percent_encode(node, NON_ALPHANUMERIC)))
}

fn order(at: &TargetArgs, path: &str) -> ExitCode {
    let admin = match at.admin() {
        Ok(admin) => admin,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(EXIT_WRONG);
        }
    };
    match admin.post_alone(path, b"", ANSWER_MAX) {
        Ok(answer) if answer.status == 200 => {
            println!("{}", lines(&answer).join("\n"));
            ExitCode::SUCCESS
        }
        Ok(answer) => {
            if let Some(why) = admin.turned_away(&answer) {
                eprintln!("warmgate: {why}");
                return ExitCode::FAILURE;
            }
            eprintln!("{}", lines(&answer).join("\n"));
            // What the user named is wrong: a node, or the file.
            ExitCode::from(if matches!(answer.status.as_u16(), 404 | 422) { EXIT_WRONG } else { 1 })
        }
        Err(why) => {
            eprintln!("warmgate: {why}");
            ExitCode::FAILURE
        }
    }
}

/// What came of it, as Warmgate says it; of another server, whatever it said.
fn lines(answer: &Fetched) -> Vec<String> {
    let json: Option<Value> = serde_json::from_slice(&answer.body).ok();
    match json.as_ref().map(|json| &json["lines"]) {
        Some(Value::Array(lines)) => lines.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => vec![String::from_utf8_lossy(&answer.body).trim().to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &'static str, expected: &[&str]) {
        let answer = Fetched { status: http::StatusCode::OK, body: body.into() };
        assert_eq!(lines(&answer), expected, "{body}");
    }

    #[test]
    fn answers() {
        check("{\"lines\": [\"a\", \"b\"]}", &["a", "b"]);
        check("this port takes GET\n", &["this port takes GET"]);
        check("", &[""]);
    }
}
