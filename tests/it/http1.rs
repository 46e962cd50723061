//! Just enough HTTP/1.1 for both ends of a test: heads, and bodies piece by piece.
//!
//! It reads strictly, so that a peer which frames wrongly is found out, and it shows chunks as they
//! were written: one HTTP chunk is one piece. It writes nothing and knows no connection rules.

use std::io::{self, ErrorKind};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Longest head or chunk-size line that is read.
const LINES_BYTES_MAX: usize = 64 * 1024;

/// A request's or an answer's first line and headers.
#[derive(Clone, Debug, Default)]
pub struct Head {
    pub start: String,
    pub headers: Vec<(String, String)>,
}

impl Head {
    fn parse(text: &str) -> io::Result<Head> {
        let mut lines = text.split("\r\n");
        let start = lines.next().unwrap_or_default().to_owned();
        let headers = lines.filter(|l| !l.is_empty()).map(parse_header);
        Ok(Head { start, headers: headers.collect::<io::Result<_>>()? })
    }

    /// The value of the first header of that name, letter case ignored.
    pub fn get(&self, name: &str) -> Option<&str> {
        let header = self.headers.iter().find(|h| h.0.eq_ignore_ascii_case(name));
        header.map(|(_, value)| value.as_str())
    }

    /// How many headers have that name.
    pub fn count(&self, name: &str) -> usize {
        let named = |h: &&(String, String)| h.0.eq_ignore_ascii_case(name);
        self.headers.iter().filter(named).count()
    }

    /// The nth word of the first line.
    pub fn word(&self, n: usize) -> &str {
        self.start.split(' ').nth(n).unwrap_or_default()
    }

    /// How a body after this head is framed; without any word of it, by `otherwise`.
    pub fn framing(&self, otherwise: Framing) -> io::Result<Framing> {
        let chunked = self.get("transfer-encoding").is_some();
        match self.get("content-length") {
            Some(_) if chunked => Err(broken("both Content-Length and Transfer-Encoding")),
            Some(length) => Ok(Framing::Length(length.parse().map_err(broken)?)),
            None if chunked => Ok(Framing::Chunked),
            None => Ok(otherwise),
        }
    }
}

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// After so many more bytes.
    Length(u64),
    /// After the chunk of size zero.
    Chunked,
    /// With the connection.
    UntilClose,
    /// It has ended.
    Done,
}

/// The reading side of a connection and what was read too far.
pub struct Inbound<R> {
    io: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> Inbound<R> {
    pub fn new(io: R) -> Self {
        Inbound { io, buffer: BytesMut::new() }
    }

    /// The next head; `None` if the peer closed between messages.
    pub async fn head(&mut self) -> io::Result<Option<Head>> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let text = self.buffer.split_to(end + 4);
                return Head::parse(&String::from_utf8_lossy(&text)).map(Some);
            }
            if self.buffer.len() > LINES_BYTES_MAX {
                return Err(broken("a head without end"));
            }
            if self.fill().await? == 0 {
                return self.closed_between_messages();
            }
        }
    }

    /// The next piece of a body; `None` at its end, an error if it ended too early.
    pub async fn piece(&mut self, framing: &mut Framing) -> io::Result<Option<Bytes>> {
        match *framing {
            Framing::Done | Framing::Length(0) => Ok(None),
            Framing::Length(left) => {
                let piece = self.some(left).await?.ok_or_else(too_early)?;
                *framing = Framing::Length(left - piece.len() as u64);
                Ok(Some(piece))
            }
            Framing::UntilClose => self.some(u64::MAX).await,
            Framing::Chunked => {
                let chunk = self.chunk().await?;
                if chunk.is_none() {
                    *framing = Framing::Done;
                }
                Ok(chunk)
            }
        }
    }

    /// The whole body, in one.
    pub async fn body(&mut self, mut framing: Framing) -> io::Result<Bytes> {
        let mut whole = BytesMut::new();
        while let Some(piece) = self.piece(&mut framing).await? {
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    /// Returns when the peer has closed or reset its side; what it sends until then is kept.
    pub async fn gone(&mut self) {
        while matches!(self.fill().await, Ok(n) if n > 0) {}
    }

    async fn chunk(&mut self) -> io::Result<Option<Bytes>> {
        let line = self.line().await?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(broken)?;
        if size == 0 {
            while !self.line().await?.is_empty() {}
            return Ok(None);
        }
        let chunk = self.exactly(size).await?;
        match self.exactly(2).await?.as_ref() {
            b"\r\n" => Ok(Some(chunk)),
            _ => Err(broken("a chunk longer than its size")),
        }
    }

    async fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n") {
                let line = self.buffer.split_to(end);
                self.buffer.advance(2);
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            if self.buffer.len() > LINES_BYTES_MAX {
                return Err(broken("a line without end"));
            }
            if self.fill().await? == 0 {
                return Err(too_early());
            }
        }
    }

    async fn exactly(&mut self, size: usize) -> io::Result<Bytes> {
        while self.buffer.len() < size {
            if self.fill().await? == 0 {
                return Err(too_early());
            }
        }
        Ok(self.buffer.split_to(size).freeze())
    }

    async fn some(&mut self, most: u64) -> io::Result<Option<Bytes>> {
        if self.buffer.is_empty() && self.fill().await? == 0 {
            return Ok(None);
        }
        let size = self.buffer.len().min(most.try_into().unwrap_or(usize::MAX));
        Ok(Some(self.buffer.split_to(size).freeze()))
    }

    async fn fill(&mut self) -> io::Result<usize> {
        self.buffer.reserve(LINES_BYTES_MAX);
        self.io.read_buf(&mut self.buffer).await
    }

    fn closed_between_messages(&self) -> io::Result<Option<Head>> {
        if self.buffer.is_empty() { Ok(None) } else { Err(too_early()) }
    }
}

fn parse_header(line: &str) -> io::Result<(String, String)> {
    let (name, value) = line.split_once(':').ok_or_else(|| broken(format!("a header without colon: {line:?}")))?;
    Ok((name.to_owned(), value.trim().to_owned()))
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}

fn broken(why: impl ToString) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why.to_string())
}

fn too_early() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "the peer closed too early")
}
