//! The scripted node's connections: read a request, write it down, play its script.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::blobs::{Blobs, Sum};
use super::catalogue::{Catalogue, Engine, Model};
use super::journal::{End, Journal};
use super::script::{Script, Step};
use super::usual;
use crate::http1::{Framing, Head, Inbound};

/// What all connections of one node share.
pub struct Stage {
    pub catalogue: Mutex<Catalogue>,
    pub scripts: Mutex<Scripts>,
    pub journal: Journal,
    /// Method and path of each poll that was answered.
    pub polls: watch::Sender<Vec<String>>,
    pub blobs: Blobs,
}

pub struct Scripts {
    pub queue: VecDeque<Script>,
    pub always: Script,
}

impl Stage {
    pub fn new(engine: Engine, models: Vec<Model>) -> Stage {
        Stage {
            catalogue: Mutex::new(Catalogue::new(engine, models)),
            scripts: Mutex::new(Scripts { queue: VecDeque::new(), always: Script::usual() }),
            journal: Journal::new(),
            polls: watch::Sender::new(Vec::new()),
            blobs: Blobs::default(),
        }
    }

    fn polled(&self, head: &Head) {
        self.polls.send_modify(|polls| polls.push(format!("{} {}", head.word(0), head.word(1))));
    }

    fn has_script(&self) -> bool {
        !self.scripts.lock().expect("scripts").queue.is_empty()
    }

    fn next_script(&self) -> Script {
        let mut scripts = self.scripts.lock().expect("scripts");
        let queued = scripts.queue.pop_front();
        queued.unwrap_or_else(|| scripts.always.clone())
    }
}

/// Accepts until told to stop, then closes everything it had accepted.
pub async fn accept(listener: TcpListener, stage: Arc<Stage>, mut stopped: oneshot::Receiver<()>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            Ok((stream, peer)) = listener.accept() => {
                connections.spawn(Connection::new(stream, peer, stage.clone()).serve());
            }
        }
    }
    drop(listener);
    connections.shutdown().await;
}

struct Connection {
    inbound: Inbound<OwnedReadHalf>,
    outbound: OwnedWriteHalf,
    peer: SocketAddr,
    stage: Arc<Stage>,
}

/// Whether a connection may carry another request.
enum Next {
    KeepAlive,
    Close,
}

impl Connection {
    fn new(stream: TcpStream, peer: SocketAddr, stage: Arc<Stage>) -> Connection {
        stream.set_nodelay(true).expect("TCP_NODELAY");
        let (read, outbound) = stream.into_split();
        Connection { inbound: Inbound::new(read), outbound, peer, stage }
    }

    async fn serve(mut self) {
        while let Ok(Some(head)) = self.inbound.head().await {
            let is_blob = head.word(1).starts_with("/api/blobs/");
            let next = match head.word(0) {
                _ if is_blob && !self.stage.has_script() => self.blob(&head).await,
                "POST" if head.word(1) == "/api/create" && !self.stage.has_script() => self.create(&head).await,
                "GET" | "HEAD" => self.poll(&head).await,
                "POST" if is_inquiry(&head) => self.show(&head).await,
                _ => self.run(&head).await,
            };
            if !matches!(next, Ok(Next::KeepAlive)) {
                return;
            }
        }
    }

    async fn poll(&mut self, head: &Head) -> io::Result<Next> {
        let answer = self.stage.catalogue.lock().expect("catalogue").answer(head);
        let Some((status, body)) = answer else {
            self.inbound.gone().await;
            return Ok(Next::Close);
        };
        self.stage.polled(head);
        let mut text = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
        if head.word(0) == "GET" {
            text += &body;
        }
        self.outbound.write_all(text.as_bytes()).await?;
        Ok(Next::KeepAlive)
    }

    async fn show(&mut self, head: &Head) -> io::Result<Next> {
        let question = self.request_body(head).await?;
        self.stage.polled(head);
        let (status, body) = self.stage.catalogue.lock().expect("catalogue").shown(&question);
        let text = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        self.outbound.write_all(text.as_bytes()).await?;
        Ok(Next::KeepAlive)
    }

    async fn run(&mut self, head: &Head) -> io::Result<Next> {
        let script = self.stage.next_script();
        let body = if script.before_body { Bytes::new() } else { self.request_body(head).await? };
        let number = self.stage.journal.arrived(head, body.clone(), self.peer);
        if script.deaf {
            std::future::pending::<()>().await;
        }
        let asked = Asked { path: head.word(1), body: &body };
        let played = tokio::select! {
            biased;
            played = play(&script, &asked, &mut self.outbound) => played,
            () = self.inbound.gone() => Err(io::ErrorKind::ConnectionAborted.into()),
        };
        let end = if played.is_ok() { End::Played } else { End::PeerGone };
        self.stage.journal.end(number, end);
        match played {
            Ok(Next::KeepAlive) if !script.before_body => Ok(Next::KeepAlive),
            _ => Ok(Next::Close),
        }
    }

    /// Reads a blob as it comes and keeps its size and hash.
    async fn blob(&mut self, head: &Head) -> io::Result<Next> {
        let path = head.word(1);
        let held = self.stage.blobs.asked(path);
        let status = match (head.word(0), held) {
            ("HEAD", true) => 200,
            ("HEAD", false) => 404,
            _ => {
                self.go_on(head).await?;
                let mut framing = head.framing(Framing::Done)?;
                self.stage.blobs.wait().await;
                let mut sum = Sum::default();
                while let Some(piece) = self.inbound.piece(&mut framing).await? {
                    sum.add(&piece);
                }
                self.stage.blobs.put(path, sum);
                201
            }
        };
        write_head(&mut self.outbound, status, &[], Framing::Length(0)).await?;
        Ok(Next::KeepAlive)
    }

    /// Creates a model if every blob that it names is here.
    async fn create(&mut self, head: &Head) -> io::Result<Next> {
        let body = self.request_body(head).await?;
        let number = self.stage.journal.arrived(head, body.clone(), self.peer);
        let (status, line) = self.stage.blobs.create(&body);
        write_head(&mut self.outbound, status, &[], Framing::Length(line.len() as u64)).await?;
        self.outbound.write_all(line.as_bytes()).await?;
        self.stage.journal.end(number, End::Played);
        Ok(Next::KeepAlive)
    }

    async fn request_body(&mut self, head: &Head) -> io::Result<Bytes> {
        self.go_on(head).await?;
        let framing = head.framing(Framing::Done)?;
        self.inbound.body(framing).await
    }

    async fn go_on(&mut self, head: &Head) -> io::Result<()> {
        match head.get("expect") {
            Some(_) => self.outbound.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await,
            None => Ok(()),
        }
    }
}

/// A question about a model by whoever watches the node, who names himself; a client's is a request.
fn is_inquiry(head: &Head) -> bool {
    head.word(1) == "/api/show" && head.get("user-agent").is_some_and(|agent| agent.starts_with("warmgate/"))
}

/// The request that a script answers.
struct Asked<'a> {
    path: &'a str,
    body: &'a [u8],
}

async fn play(script: &Script, asked: &Asked<'_>, out: &mut OwnedWriteHalf) -> io::Result<Next> {
    let mut framing = Framing::Done;
    for step in &script.steps {
        match step {
            Step::Usual => usual_answer(asked, out).await?,
            Step::Head { status, headers, framing: told } => {
                framing = *told;
                write_head(out, *status, headers, framing).await?;
            }
            Step::Chunk(bytes) => write_piece(out, framing, bytes).await?,
            Step::Hold(hold) => hold.wait().await,
            Step::Finish => out.write_all(b"0\r\n\r\n").await?,
            Step::Close => return Ok(Next::Close),
            Step::Reset => {
                out.as_ref().set_zero_linger()?;
                return Ok(Next::Close);
            }
        }
    }
    Ok(Next::KeepAlive)
}

async fn usual_answer(asked: &Asked<'_>, out: &mut OwnedWriteHalf) -> io::Result<()> {
    let usual = usual::answer(asked.path, asked.body);
    let framing = if usual.streamed {
        Framing::Chunked
    } else {
        Framing::Length(usual.writes.iter().map(|w| w.len() as u64).sum())
    };
    let headers = [("Content-Type".to_owned(), usual.content_type.to_owned())];
    write_head(out, 200, &headers, framing).await?;
    for bytes in &usual.writes {
        write_piece(out, framing, bytes).await?;
    }
    match framing {
        Framing::Chunked => out.write_all(b"0\r\n\r\n").await,
        _ => Ok(()),
    }
}

async fn write_head(
    out: &mut OwnedWriteHalf,
    status: u16,
    headers: &[(String, String)],
    framing: Framing,
) -> io::Result<()> {
    let mut text = format!("HTTP/1.1 {status} Scripted\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += &match framing {
        Framing::Chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
        Framing::Length(length) => format!("Content-Length: {length}\r\n"),
        Framing::UntilClose | Framing::Done => String::new(),
    };
    out.write_all((text + "\r\n").as_bytes()).await
}

async fn write_piece(out: &mut OwnedWriteHalf, framing: Framing, bytes: &Bytes) -> io::Result<()> {
    if framing != Framing::Chunked {
        return out.write_all(bytes).await;
    }
    let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
    framed.extend_from_slice(bytes);
    framed.extend_from_slice(b"\r\n");
    out.write_all(&framed).await
}
