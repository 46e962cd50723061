//! What clients ask: chats of a given size, closed loops of them by `wrk`, and streams read chunk by chunk.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::body;
use crate::http1::{Framing, Inbound};
use crate::process::pinned;
use crate::upstream::STANDING;

pub const PATH: &str = "/v1/chat/completions";

/// Conversations that a closed loop goes round.
pub const CONVERSATIONS: usize = 64;

/// Stands in a body for the number of its conversation.
const NUMBER: &str = "@@@@@@@@";

const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A chat of about that size; all but whole answers are streams.
pub fn chat(model: &str, size_bytes: usize) -> String {
    let body = body::chat(model, size_bytes);
    if model == "perf-whole" { body } else { body.replacen('{', "{\"stream\":true,", 1) }
}

/// One whole answer.
pub struct Answer {
    pub status: u16,
    pub body: String,
}

pub async fn ask(address: SocketAddr, model: &str) -> io::Result<Answer> {
    let asking = async {
        let mut conn = Conn::open(address).await?;
        conn.send(&chat(model, 2048).replace(NUMBER, "00000000")).await?;
        let (status, framing) = conn.head().await?;
        let body = conn.inbound.body(framing).await?;
        Ok(Answer { status, body: String::from_utf8_lossy(&body).into_owned() })
    };
    tokio::time::timeout(ANSWER_MAX, asking).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// How many idle streams the upstreams have.
pub async fn standing(upstream: SocketAddr) -> io::Result<usize> {
    let asking = async {
        let mut conn = Conn::open(upstream).await?;
        let head = format!("GET {STANDING} HTTP/1.1\r\nHost: perf\r\n\r\n");
        conn.outbound.write_all(head.as_bytes()).await?;
        let (_, framing) = conn.head().await?;
        let body = conn.inbound.body(framing).await?;
        String::from_utf8_lossy(&body).parse().map_err(io::Error::other)
    };
    tokio::time::timeout(ANSWER_MAX, asking).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// A closed loop over so many connections.
pub struct Loop<'a> {
    pub connections: usize,
    pub duration: Duration,
    pub body: &'a Path,
    pub conversations: usize,
    /// Begins after the conversation of this number.
    pub first: usize,
}

/// What a closed loop saw.
#[derive(Clone, Copy, Debug, Default)]
pub struct Closed {
    pub requests: u64,
    pub duration_s: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub not_2xx: u64,
    pub broken: u64,
}

impl Loop<'_> {
    pub fn run(&self, address: SocketAddr, core: Option<usize>) -> Result<Closed, String> {
        let mut command = Command::new("wrk");
        let seconds = self.duration.as_secs().max(1);
        command.args([
            "-t",
            "1",
            "--timeout",
            "30s",
            "-c",
            &self.connections.to_string(),
            "-d",
            &format!("{seconds}s"),
        ]);
        command.arg("-s").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("perf/compare/load.lua"));
        command
            .arg(format!("http://{address}{PATH}"))
            .arg("--")
            .arg(self.body)
            .args([self.conversations, self.first].map(|number| number.to_string()));
        let output = pinned(command, core).output().map_err(|e| format!("wrk: {e}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().find_map(|line| line.strip_prefix("RESULT "));
        let line = line.ok_or_else(|| format!("wrk: {text}{}", String::from_utf8_lossy(&output.stderr)))?;
        let told: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [requests, duration_us, p50_us, p99_us, not_2xx, broken] = told[..] else {
            return Err(format!("wrk: {line}"));
        };
        Ok(Closed {
            requests: requests as u64,
            duration_s: duration_us / 1e6,
            p50_us,
            p99_us,
            not_2xx: not_2xx as u64,
            broken: broken as u64,
        })
    }
}

/// Writes a body for closed loops.
pub fn keep_body(folder: &Path, size_bytes: usize) -> io::Result<PathBuf> {
    let path = folder.join(format!("body-{size_bytes}.json"));
    std::fs::write(&path, chat("perf-whole", size_bytes)).map(|()| path)
}

/// What one stream was like.
#[derive(Clone, Debug, Default)]
pub struct Streamed {
    pub first: Duration,
    /// From the upstream's write to our read, of each chunk.
    pub delays: Vec<Duration>,
    pub gaps: Vec<Duration>,
    /// HTTP chunks with something in them.
    pub pieces: usize,
}

/// One stream to its end.
pub async fn stream(address: SocketAddr, number: usize) -> io::Result<Streamed> {
    let mut conn = Conn::open(address).await?;
    conn.send(&chat("perf-stream", 2048).replace(NUMBER, &format!("{number:08}"))).await?;
    let began = Instant::now();
    let (status, mut framing) = conn.head().await?;
    if status != 200 {
        return Err(io::Error::other(format!("status {status}")));
    }
    let mut seen = Streamed::default();
    let mut last = None;
    while let Some(piece) = conn.inbound.piece(&mut framing).await? {
        let (now, wall) = (Instant::now(), SystemTime::now());
        if seen.pieces == 0 {
            seen.first = now - began;
        }
        seen.pieces += 1;
        seen.gaps.extend(last.replace(now).map(|last| now - last));
        seen.delays.extend(written(&piece).into_iter().map(|at| wall.duration_since(at).unwrap_or_default()));
    }
    Ok(seen)
}

/// A stream that has begun and says nothing more; it lasts until it is dropped.
pub async fn idle(address: SocketAddr, number: usize) -> io::Result<Conn> {
    let mut conn = Conn::open(address).await?;
    conn.send(&chat("perf-idle", 2048).replace(NUMBER, &format!("{number:08}"))).await?;
    let (status, mut framing) = conn.head().await?;
    conn.inbound.piece(&mut framing).await?;
    if status == 200 { Ok(conn) } else { Err(io::Error::other(format!("status {status}"))) }
}

/// The times that a piece holds: numbers of nineteen digits.
fn written(piece: &[u8]) -> Vec<SystemTime> {
    let words = piece.split(|byte| !byte.is_ascii_digit()).filter(|word| word.len() == 19);
    let nanos = words.filter_map(|word| std::str::from_utf8(word).ok()?.parse().ok());
    nanos.map(|nanos| UNIX_EPOCH + Duration::from_nanos(nanos)).collect()
}

pub struct Conn {
    inbound: Inbound<OwnedReadHalf>,
    outbound: OwnedWriteHalf,
}

impl Conn {
    async fn open(address: SocketAddr) -> io::Result<Conn> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (read, outbound) = stream.into_split();
        Ok(Conn { inbound: Inbound::new(read), outbound })
    }

    async fn send(&mut self, body: &str) -> io::Result<()> {
        let head = format!(
            "POST {PATH} HTTP/1.1\r\nHost: perf\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.outbound.write_all(format!("{head}{body}").as_bytes()).await
    }

    async fn head(&mut self) -> io::Result<(u16, Framing)> {
        let head = self.inbound.head().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok((head.word(1).parse().unwrap_or_default(), head.framing(Framing::UntilClose)?))
    }
}
