//! A Pingora proxy in this process between raw sockets, to try `body` and `replay` on.
//!
//! The upstreams are scripts over TCP, the client writes its own bytes, every port is 0. The proxy
//! is as small as it can be while doing what the product does with a body: read, install, prepare
//! for each attempt, restore.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora_core::apps::{HttpServerOptions, ServerApp};
use pingora_core::protocols::l4::stream::Stream;
use pingora_core::server::configuration::ServerConf;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::{Error, ErrorSource, ErrorType, Result};
use pingora_proxy::{FailToProxy, ProxyHttp, Session, http_proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use xxhash_rust::xxh3::xxh3_64;

use super::body::{self, BodyError, BodyLimits};
use super::budget::Budget;
use super::departure::Departure;
use super::headers;
use super::replay::{Cut, Delivery, Mover, Patience, Replay};

/// Nothing here may take longer.
pub const PATIENCE: Duration = Duration::from_secs(20);

// The upstream.

/// What an upstream does with a request it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Ok,
    /// Closes without an answer.
    Close,
    Status(u16),
    /// Never answers.
    Mute,
    /// The header comes after the first, the body after the second wait.
    Slow(Duration, Duration),
}

/// What happened at an upstream.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    Request {
        head: String,
        body_hash: u64,
    },
    /// The proxy closed the connection of an unanswered request.
    Left,
}

/// A scripted server.
pub struct Upstream {
    pub address: SocketAddr,
    seen: mpsc::UnboundedReceiver<Seen>,
}

impl Upstream {
    pub async fn start(act: Act) -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (report, seen) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, act, report.clone()));
            }
        });
        Upstream { address, seen }
    }

    pub async fn next(&mut self) -> Seen {
        tokio::time::timeout(PATIENCE, self.seen.recv()).await.unwrap().unwrap()
    }

    /// The head of the next request, whose body must be `body`.
    #[track_caller]
    pub fn expect_body(&mut self, body: &[u8]) -> String {
        match self.seen.try_recv() {
            Ok(Seen::Request { head, body_hash }) => {
                assert_eq!(body_hash, xxh3_64(body), "the body changed on its way");
                head
            }
            other => panic!("expected a request, got {other:?}"),
        }
    }

    pub fn is_untouched(&mut self) -> bool {
        self.seen.try_recv().is_err()
    }
}

/// An address that refuses connections.
pub async fn refusing() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

async fn serve(mut stream: TcpStream, act: Act, report: mpsc::UnboundedSender<Seen>) {
    let mut read = Vec::new();
    while let Some((head, body)) = read_message(&mut stream, &mut read).await {
        let _ = report.send(Seen::Request { head, body_hash: xxh3_64(&body) });
        let answer = match act {
            Act::Ok => "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone".to_string(),
            Act::Status(code) => format!("HTTP/1.1 {code} No\r\ncontent-length: 2\r\n\r\nno"),
            Act::Close => return,
            Act::Mute => {
                let _ = stream.read(&mut [0; 1]).await;
                let _ = report.send(Seen::Left);
                return;
            }
            Act::Slow(to_header, to_body) => {
                tokio::time::sleep(to_header).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n").await;
                tokio::time::sleep(to_body).await;
                "done".to_string()
            }
        };
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Status and body by path; without them no answer ever comes.
type Answers = BTreeMap<&'static str, Option<(u16, String)>>;

/// A server that says what it was told to say at each path, 404 elsewhere.
pub struct Desk {
    pub url: String,
    answers: Arc<Mutex<Answers>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Desk {
    pub async fn open() -> Desk {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let desk = Desk {
            url: format!("http://{}", listener.local_addr().unwrap()),
            answers: Arc::default(),
            asked: Arc::default(),
        };
        let (answers, asked) = (desk.answers.clone(), desk.asked.clone());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (answers, asked) = (answers.clone(), asked.clone());
                tokio::spawn(async move {
                    let mut read = Vec::new();
                    while let Some((head, _)) = read_message(&mut stream, &mut read).await {
                        let path = head.split(' ').nth(1).unwrap().to_string();
                        let answer = answers.lock().get(path.as_str()).cloned();
                        asked.lock().push(path);
                        let Some((status, body)) = answer.unwrap_or(Some((404, "no".into()))) else {
                            return std::future::pending().await;
                        };
                        let length = body.len();
                        let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}");
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        desk
    }

    pub fn say(&self, path: &'static str, status: u16, body: &str) {
        self.answers.lock().insert(path, Some((status, body.to_string())));
    }

    /// Never answers there.
    pub fn hang(&self, path: &'static str) {
        self.answers.lock().insert(path, None);
    }

    /// The paths asked for since the last call.
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock())
    }
}

// The client.

/// Reads one HTTP/1.1 message that has a Content-Length or no body; what was read beyond it stays in `read`.
pub async fn read_message(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    let head_end = loop {
        if let Some(at) = read.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
        read_more(stream, read).await?;
    };
    let head = String::from_utf8_lossy(&read[..head_end]).to_ascii_lowercase();
    let length = header(&head, "content-length").map_or(0, |v| v.parse().unwrap());
    while read.len() < head_end + length {
        read_more(stream, read).await?;
    }
    let body = read[head_end..head_end + length].to_vec();
    read.drain(..head_end + length);
    Some((head, body))
}

async fn read_more(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<()> {
    match stream.read_buf(read).await {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(()),
    }
}

/// The value of a header in a lower-cased head.
pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// How a client frames its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    Length,
    Chunks,
}

/// The bytes of a POST; `headers` are whole lines.
pub fn post(body: &[u8], framing: Framing, headers: &str) -> Vec<u8> {
    let mut request = format!("POST /api/chat HTTP/1.1\r\nhost: x\r\n{headers}").into_bytes();
    match framing {
        Framing::Length => {
            request.extend(format!("content-length: {}\r\n\r\n", body.len()).bytes());
            request.extend(body);
        }
        Framing::Chunks => {
            request.extend(b"transfer-encoding: chunked\r\n\r\n");
            for chunk in body.chunks(10_000) {
                request.extend(format!("{:x}\r\n", chunk.len()).bytes());
                request.extend(chunk);
                request.extend(b"\r\n");
            }
            request.extend(b"0\r\n\r\n");
        }
    }
    request
}

/// A client's connection.
pub struct Client {
    pub stream: TcpStream,
    read: Vec<u8>,
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Client {
        Client { stream: TcpStream::connect(address).await.unwrap(), read: Vec::new() }
    }

    pub async fn write(&mut self, bytes: &[u8]) {
        tokio::time::timeout(PATIENCE, self.stream.write_all(bytes)).await.unwrap().unwrap();
    }

    /// The next answer: its status and its head.
    pub async fn answer(&mut self) -> (u16, String) {
        let reading = read_message(&mut self.stream, &mut self.read);
        let message = tokio::time::timeout(PATIENCE, reading).await.unwrap();
        let (head, _) = message.expect("the connection closed without an answer");
        (head[9..12].parse().unwrap(), head)
    }

    /// Sends a request and returns its answer.
    pub async fn ask(&mut self, request: &[u8]) -> (u16, String) {
        self.write(request).await;
        self.answer().await
    }
}

/// A body that no other size resembles.
pub fn body_of(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 + i / 251) as u8).collect()
}

// The proxy.

pub fn limits() -> BodyLimits {
    BodyLimits {
        body_bytes: 8 << 20,
        read_deadline: PATIENCE,
        memory: Budget::new(64 << 20),
        memory_wait: Duration::from_millis(100),
    }
}

/// A proxy that tries its upstreams in order.
pub struct Gate {
    pub limits: BodyLimits,
    pub upstreams: Vec<SocketAddr>,
    pub patience: Patience,
    pub delivery: Delivery,
    /// Before each attempt, as in a queue.
    pub pause: Duration,
    pub journal: Arc<Journal>,
}

/// What a test can look at while the proxy runs.
#[derive(Default)]
pub struct Journal {
    pub movers: Mutex<Vec<Mover>>,
    pub cuts: Mutex<Vec<Cut>>,
    pub left_in_pause: Mutex<usize>,
}

impl Gate {
    pub fn to(upstreams: &[SocketAddr]) -> Gate {
        Gate {
            limits: limits(),
            upstreams: upstreams.to_vec(),
            patience: Patience::default(),
            delivery: Delivery::default(),
            pause: Duration::ZERO,
            journal: Arc::default(),
        }
    }

    /// Serves HTTP/1.1 and cleartext HTTP/2 on a port of its own.
    pub async fn serve(self) -> SocketAddr {
        let mut proxy = http_proxy(&Arc::new(ServerConf::default()), self);
        let mut options = HttpServerOptions::default();
        options.h2c = true;
        proxy.server_options = Some(options);
        let proxy = Arc::new(proxy);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (_running, shutdown) = watch::channel(false);
            while let Ok((stream, _)) = listener.accept().await {
                let (proxy, shutdown) = (Arc::clone(&proxy), shutdown.clone());
                tokio::spawn(async move {
                    proxy.process_new(Box::new(Stream::from(stream)), &shutdown).await;
                });
            }
        });
        address
    }

    fn is_last(&self, ctx: &Ctx) -> bool {
        ctx.attempts >= self.upstreams.len()
    }
}

#[derive(Default)]
pub struct Ctx {
    body: Bytes,
    was_coded: bool,
    replay: Option<Replay>,
    attempts: usize,
}

#[async_trait]
impl ProxyHttp for Gate {
    type CTX = Ctx;

    fn new_ctx(&self) -> Ctx {
        Ctx::default()
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut Ctx) -> Result<bool> {
        let status = match body::read(session, &self.limits).await {
            Ok(read) => {
                ctx.body = read.bytes;
                ctx.was_coded = read.was_coded;
                ctx.replay = Some(Replay::install(session, ctx.body.clone(), Departure::default().watch()));
                return Ok(false);
            }
            Err(BodyError::ClientGone(error)) => return Err(error),
            Err(BodyError::TooLarge { .. }) => 413,
            Err(BodyError::TooSlow) => 408,
            Err(BodyError::NoMemory) => 503,
            Err(BodyError::UnknownCoding(_)) => 415,
            Err(BodyError::BadCoding(_) | BodyError::BadFraming(_) | BodyError::FramedOddly) => 400,
        };
        session.respond_error(status).await?;
        body::discard(session, 64 << 20, Duration::from_secs(2)).await;
        Ok(true)
    }

    async fn upstream_peer(&self, session: &mut Session, ctx: &mut Ctx) -> Result<Box<HttpPeer>> {
        let replay = ctx.replay.as_ref().unwrap();
        tokio::select! {
            () = tokio::time::sleep(self.pause) => {}
            left = replay.client_left(session) => {
                *self.journal.left_in_pause.lock() += 1;
                return Err(left);
            }
        }
        let address = self.upstreams[ctx.attempts];
        ctx.attempts += 1;
        let mover = replay.prepare(ctx.body.clone(), self.patience, self.delivery);
        self.journal.movers.lock().push(mover);
        Ok(Box::new(HttpPeer::new(address, false, String::new())))
    }

    async fn upstream_request_filter(&self, _: &mut Session, request: &mut RequestHeader, ctx: &mut Ctx) -> Result<()> {
        if ctx.was_coded {
            request.remove_header("content-encoding");
        }
        request.insert_header("host", "upstream")?;
        let replay = ctx.replay.as_ref().unwrap();
        headers::edit(request, |parts| {
            replay.frame(&mut parts.headers);
            Ok(())
        })
    }

    async fn upstream_response_filter(
        &self,
        _: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut Ctx,
    ) -> Result<()> {
        if response.status == 503 && !self.is_last(ctx) {
            let mut error = Error::explain(ErrorType::HTTPStatus(503), "busy").into_up();
            error.set_retry(true);
            return Err(error);
        }
        response.insert_header("x-attempts", ctx.attempts)
    }

    fn fail_to_connect(&self, _: &mut Session, _: &HttpPeer, ctx: &mut Ctx, mut error: Box<Error>) -> Box<Error> {
        error.set_retry(!self.is_last(ctx));
        error
    }

    fn error_while_proxy(
        &self,
        _: &HttpPeer,
        session: &mut Session,
        mut error: Box<Error>,
        ctx: &mut Ctx,
        _client_reused: bool,
    ) -> Box<Error> {
        if let Some(cut) = Cut::of(&error) {
            self.journal.cuts.lock().push(cut);
            error.as_up();
        }
        let upstream = *error.esource() == ErrorSource::Upstream;
        let answered = session.response_written().is_some_and(|h| !h.status.is_informational());
        error.set_retry(upstream && !answered && !self.is_last(ctx));
        error
    }

    async fn fail_to_proxy(&self, session: &mut Session, _: &Error, _: &mut Ctx) -> FailToProxy {
        let _ = session.respond_error(502).await;
        FailToProxy { error_code: 502, can_reuse_downstream: false }
    }

    async fn logging(&self, session: &mut Session, _: Option<&Error>, ctx: &mut Ctx) {
        if let Some(replay) = ctx.replay.take() {
            replay.restore(session);
        }
    }
}
