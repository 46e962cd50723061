//! `warmgate reload`, `drain` and `resume`: a running Warmgate is told over its admin port.
//!
//! Prints what came of it, a line each. The request is the plainest there is and the answer is read to the
//! end of the connection, so a socket does.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::EXIT_WRONG;

const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Reading a configuration may wait for a slow disk.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Far more than any answer has.
const ANSWER_BYTES_MAX: u64 = 8 << 20;

pub fn reload(admin: SocketAddr) -> ExitCode {
    order(admin, "/fleet/reload")
}

pub fn drain(admin: SocketAddr, node: &str) -> ExitCode {
    order(admin, &format!("/fleet/nodes/{}/drain", utf8_percent_encode(node, NON_ALPHANUMERIC)))
}

pub fn resume(admin: SocketAddr, node: &str) -> ExitCode {
    order(admin, &format!("/fleet/nodes/{}/resume", utf8_percent_encode(node, NON_ALPHANUMERIC)))
}

fn order(admin: SocketAddr, path: &str) -> ExitCode {
    let answer = ask(admin, path).and_then(|answer| read(&answer).ok_or(io::ErrorKind::InvalidData.into()));
    match answer {
        Ok((200, lines)) => {
            println!("{}", lines.join("\n"));
            ExitCode::SUCCESS
        }
        Ok((status, lines)) => {
            eprintln!("{}", lines.join("\n"));
            // What the user named is wrong: a node, or the file.
            ExitCode::from(if matches!(status, 404 | 422) { EXIT_WRONG } else { 1 })
        }
        Err(error) => {
            eprintln!("warmgate: no answer from a Warmgate at {admin} ({error}); --admin names its admin address");
            ExitCode::FAILURE
        }
    }
}

fn ask(admin: SocketAddr, path: &str) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&admin, CONNECT_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    write!(stream, "POST {path} HTTP/1.1\r\nHost: {admin}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(answer)
}

/// The status and the lines of an answer; `None`: it is not one of Warmgate's.
fn read(answer: &[u8]) -> Option<(u16, Vec<String>)> {
    let answer = std::str::from_utf8(answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let json: Option<Value> = serde_json::from_str(body).ok();
    let lines = match json.as_ref().map(|json| &json["lines"]) {
        Some(Value::Array(lines)) => lines.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => vec![body.trim().to_owned()],
    };
    Some((status, lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answer: &str, expected: Option<(u16, &[&str])>) {
        let expected = expected.map(|(status, lines)| (status, lines.iter().map(|line| line.to_string()).collect()));
        assert_eq!(read(answer.as_bytes()), expected, "{answer}");
    }

    #[test]
    fn answers() {
        check("HTTP/1.1 200 OK\r\nX: y\r\n\r\n{\"lines\": [\"a\", \"b\"]}", Some((200, &["a", "b"])));
        check("HTTP/1.1 405 Method Not Allowed\r\n\r\nthis port takes GET\n", Some((405, &["this port takes GET"])));
        check("SSH-2.0\r\n\r\n", None);
        check("HTTP/1.1 2", None);
        check("", None);
    }
}
