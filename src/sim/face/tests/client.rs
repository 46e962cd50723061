//! The least HTTP client that shows what a server wrote: chunk by chunk, and whether it ended well.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::sim::face::Node;

pub struct Reply {
    pub status: u16,
    pub head: String,
    /// As the server wrote them; one if the answer has a length.
    pub chunks: Vec<String>,
    /// The answer ended as it should.
    pub complete: bool,
}

impl Reply {
    pub fn text(&self) -> String {
        self.chunks.concat()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text()).unwrap()
    }

    /// The JSON of each line, or of each event's data.
    #[track_caller]
    pub fn frames(&self) -> Vec<Value> {
        let text = self.text();
        let lines = text.lines().filter(|line| !line.is_empty());
        let data = lines.map(|line| line.strip_prefix("data: ").unwrap_or(line));
        let frames = data.filter(|data| *data != "[DONE]");
        frames.map(|frame| serde_json::from_str(frame).unwrap()).collect()
    }
}

pub async fn ask(node: &Node, method: &str, path: &str, body: &str) -> Reply {
    let mut stream = open(node, method, path, body).await;
    let mut bytes = Vec::new();
    // A reset ends the answer as well as a close does.
    let _ = stream.read_to_end(&mut bytes).await;
    parse(&String::from_utf8(bytes).unwrap())
}

pub async fn open(node: &Node, method: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(node.address()).await.unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-request-id: id-7\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

fn parse(answer: &str) -> Reply {
    let (head, mut rest) = answer.split_once("\r\n\r\n").unwrap_or(("HTTP/1.1 000", ""));
    let mut reply =
        Reply { status: head[9..12].parse().unwrap(), head: head.to_lowercase(), chunks: Vec::new(), complete: false };
    if !reply.head.contains("chunked") {
        reply.chunks.push(rest.to_owned());
        reply.complete = reply.head.contains(&format!("content-length: {}", rest.len()));
        return reply;
    }
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            reply.complete = true;
            break;
        }
        reply.chunks.push(after[..size].to_owned());
        rest = &after[size + 2..];
    }
    reply
}
