//! An engine that costs as little as can be: fixed answers from a loop over bytes.
//!
//! The model that a body names first says how it is answered: `perf-whole` at once and in one piece,
//! `perf-stream` with a chunk every ten milliseconds that holds the time at which it was written, `perf-idle` with one
//! chunk and then nothing until the client leaves. It listens on as many ports as there are to be upstreams,
//! on one thread, and knows what each contestant asks its engines.

use std::io;
use std::net::Ipv4Addr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Buf, BytesMut};
use clap::Parser;
use rustix::process::{Signal, set_parent_process_death_signal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{MissedTickBehavior, interval};

/// The first argument of a process that is to be the upstreams.
pub const ROLE: &str = "upstream";

pub const CHUNKS: usize = 100;
pub const CHUNK_EVERY: Duration = Duration::from_millis(10);
/// Where the number of idle streams is told.
pub const STANDING: &str = "/perf/standing";
const READ_BYTES: usize = 64 * 1024;
const BACKLOG: u32 = 4096;

#[derive(Parser)]
struct Params {
    #[arg(long)]
    first_port: u16,
    #[arg(long)]
    count: u16,
}

/// Is the upstreams for the rest of this process, if its arguments say so.
pub fn role() {
    let mut arguments = std::env::args();
    let program = arguments.next().unwrap_or_default();
    if arguments.next().as_deref() != Some(ROLE) {
        return;
    }
    set_parent_process_death_signal(Some(Signal::KILL)).expect("to end with the run");
    let params = Params::parse_from(std::iter::once(program).chain(arguments));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for port in (params.first_port..).take(params.count.into()) {
            tokio::spawn(accept(listen(port).expect("the port of this upstream")));
        }
        println!("listening");
        std::future::pending::<()>().await
    });
}

fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
    socket.listen(BACKLOG)
}

async fn accept(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        tokio::spawn(async move {
            // Whoever leaves is none of its business.
            let _ = serve(stream).await;
        });
    }
}

async fn serve(mut stream: TcpStream) -> io::Result<()> {
    let mut inbound = BytesMut::with_capacity(READ_BYTES);
    while let Some(request) = Request::read(&mut stream, &mut inbound).await? {
        let dialect = if request.path.starts_with("/api/") { Dialect::Ollama } else { Dialect::OpenAi };
        match request.wants {
            Wants::Page if request.path == STANDING => {
                let standing = IDLE.load(Ordering::Relaxed).to_string();
                stream.write_all(&answer("200 OK", "text/plain", &standing)).await?;
            }
            Wants::Page => stream.write_all(&page(&request.path)).await?,
            Wants::Whole => stream.write_all(dialect.whole()).await?,
            Wants::Stream => flow(&mut stream, dialect).await?,
            Wants::Idle => {
                let _standing = Standing::begin();
                begin(&mut stream, dialect).await?;
                stream.write_all(&framed(&dialect.chunk())).await?;
                while stream.read_buf(&mut inbound).await? > 0 {
                    inbound.clear();
                }
                return Ok(());
            }
        }
    }
    Ok(())
}

static IDLE: AtomicUsize = AtomicUsize::new(0);

/// An idle stream, for as long as it stands.
struct Standing;

impl Standing {
    fn begin() -> Standing {
        IDLE.fetch_add(1, Ordering::Relaxed);
        Standing
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        IDLE.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn begin(stream: &mut TcpStream, dialect: Dialect) -> io::Result<()> {
    let form = match dialect {
        Dialect::OpenAi => "text/event-stream",
        Dialect::Ollama => "application/x-ndjson",
    };
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {form}\r\ntransfer-encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes()).await
}

async fn flow(stream: &mut TcpStream, dialect: Dialect) -> io::Result<()> {
    begin(stream, dialect).await?;
    let mut ticks = interval(CHUNK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for _ in 0..CHUNKS {
        ticks.tick().await;
        stream.write_all(&framed(&dialect.chunk())).await?;
    }
    stream.write_all(&[framed(dialect.last()), b"0\r\n\r\n".to_vec()].concat()).await
}

fn framed(chunk: &str) -> Vec<u8> {
    format!("{:x}\r\n{chunk}\r\n", chunk.len()).into_bytes()
}

#[derive(Clone, Copy, PartialEq)]
enum Dialect {
    OpenAi,
    Ollama,
}

const OPENAI_LAST: &str = "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"perf-stream\",\
\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
const OLLAMA_LAST: &str = "{\"model\":\"perf-stream\",\"created_at\":\"2026-01-01T00:00:00Z\",\"message\":{\"role\":\"assistant\",\
\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\",\"prompt_eval_count\":400,\"eval_count\":100}\n";

const OPENAI_WHOLE: &str = concat!(
    r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"perf-whole","choices":[{"index":0,"message":"#,
    r#"{"role":"assistant","content":"A load balancer that knows which node holds the conversation sends the next "#,
    r#"turn there, unless that node is busy, and then it weighs the wait against the work."},"finish_reason":"stop"}],"#,
    r#""usage":{"prompt_tokens":512,"completion_tokens":36,"total_tokens":548}}"#,
);
const OLLAMA_WHOLE: &str = concat!(
    r#"{"model":"perf-whole","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":"#,
    r#""There, unless it is busy."},"done":true,"done_reason":"stop","prompt_eval_count":512,"eval_count":6}"#,
    "\n",
);

/// HTTP and all, so that one write does.
static OPENAI_ANSWER: LazyLock<Vec<u8>> = LazyLock::new(|| answer("200 OK", "application/json", OPENAI_WHOLE));
static OLLAMA_ANSWER: LazyLock<Vec<u8>> = LazyLock::new(|| answer("200 OK", "application/x-ndjson", OLLAMA_WHOLE));

fn answer(status: &str, form: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-type: {form}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

impl Dialect {
    fn whole(self) -> &'static [u8] {
        match self {
            Dialect::OpenAi => &OPENAI_ANSWER,
            Dialect::Ollama => &OLLAMA_ANSWER,
        }
    }

    /// A word of the answer: the time now, in nanoseconds.
    fn chunk(self) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        match self {
            Dialect::OpenAi => format!(
                "data: {{\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"perf-stream\",\
                 \"choices\":[{{\"index\":0,\"delta\":{{\"role\":\"assistant\",\"content\":\"{now} \"}},\"finish_reason\":null}}]}}\n\n"
            ),
            Dialect::Ollama => format!(
                "{{\"model\":\"perf-stream\",\"created_at\":\"2026-01-01T00:00:00Z\",\
                 \"message\":{{\"role\":\"assistant\",\"content\":\"{now} \"}},\"done\":false}}\n"
            ),
        }
    }

    fn last(self) -> &'static str {
        match self {
            Dialect::OpenAi => OPENAI_LAST,
            Dialect::Ollama => OLLAMA_LAST,
        }
    }
}

/// What is asked besides answers: health, lists, descriptions.
fn page(path: &str) -> Vec<u8> {
    let body = match path {
        "/v1/models" => {
            r#"{"object":"list","data":[{"id":"perf-whole","object":"model"},{"id":"perf-stream","object":"model"},{"id":"perf-idle","object":"model"}]}"#
        }
        "/api/tags" => {
            r#"{"models":[{"name":"perf-whole:latest","model":"perf-whole:latest","size":4000000000},{"name":"perf-stream:latest","model":"perf-stream:latest","size":4000000000}]}"#
        }
        "/api/ps" => r#"{"models":[]}"#,
        "/api/version" => r#"{"version":"0.32.9"}"#,
        "/get_model_info" | "/model_info" => r#"{"model_path":"perf","tokenizer_path":"perf","is_generation":true}"#,
        "/get_server_info" | "/server_info" => {
            r#"{"model_path":"perf","served_model_name":"perf-whole","tp_size":1,"dp_size":1}"#
        }
        _ => "{}",
    };
    let unknown = body == "{}" && !path.starts_with("/health");
    let status = if unknown { "404 Not Found" } else { "200 OK" };
    answer(status, "application/json", body)
}

enum Wants {
    Page,
    Whole,
    Stream,
    Idle,
}

impl Wants {
    fn of(body: &[u8]) -> Option<Wants> {
        const MARK: &[u8] = b"perf-";
        let at = body.windows(MARK.len() + 1).find(|window| window.starts_with(MARK))?;
        match at.last() {
            Some(b'w') => Some(Wants::Whole),
            Some(b's') => Some(Wants::Stream),
            Some(b'i') => Some(Wants::Idle),
            _ => None,
        }
    }
}

struct Request {
    path: String,
    wants: Wants,
}

impl Request {
    /// The next one, its body read and left; `None`: the client has left.
    async fn read(stream: &mut TcpStream, inbound: &mut BytesMut) -> io::Result<Option<Request>> {
        let end = loop {
            if let Some(at) = inbound.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if fill(stream, inbound).await? == 0 {
                return Ok(None);
            }
        };
        let head = inbound.split_to(end);
        let head = String::from_utf8_lossy(&head);
        let mut words = head.split(' ');
        let (is_post, path) = (words.next() == Some("POST"), words.next().unwrap_or_default().to_owned());
        let header = |name: &str| {
            let line = head
                .lines()
                .find(|line| line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name)))?;
            line.get(name.len()..).map(str::trim)
        };
        let mut wants = None;
        if let Some(length) = header("content-length:").and_then(|length| length.parse().ok()) {
            take(stream, inbound, length, &mut wants).await?;
        } else if header("transfer-encoding:").is_some() {
            while let size @ 1.. = chunk_size(stream, inbound).await? {
                take(stream, inbound, size, &mut wants).await?;
                take(stream, inbound, 2, &mut wants).await?;
            }
            take(stream, inbound, 2, &mut wants).await?;
        }
        let wants = if is_post { wants.unwrap_or(Wants::Whole) } else { Wants::Page };
        Ok(Some(Request { path, wants }))
    }
}

/// Reads that much and throws it away.
async fn take(
    stream: &mut TcpStream,
    inbound: &mut BytesMut,
    mut left: usize,
    wants: &mut Option<Wants>,
) -> io::Result<()> {
    while left > 0 {
        if inbound.is_empty() && fill(stream, inbound).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let now = inbound.len().min(left);
        if wants.is_none() {
            *wants = Wants::of(&inbound[..now]);
        }
        inbound.advance(now);
        left -= now;
    }
    Ok(())
}

async fn chunk_size(stream: &mut TcpStream, inbound: &mut BytesMut) -> io::Result<usize> {
    loop {
        if let Some(at) = inbound.windows(2).position(|window| window == b"\r\n") {
            let line = inbound.split_to(at + 2);
            let size = String::from_utf8_lossy(&line);
            return usize::from_str_radix(size.trim(), 16).map_err(|_| io::ErrorKind::InvalidData.into());
        }
        if fill(stream, inbound).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

async fn fill(stream: &mut TcpStream, inbound: &mut BytesMut) -> io::Result<usize> {
    inbound.reserve(READ_BYTES);
    stream.read_buf(inbound).await
}
