//! A raw client: it decides every byte it sends, and when it reads, stops reading and leaves.
//!
//! Dropping a `Conn` or a `Reply` closes the connection, which is how most clients leave; `reset`
//! is how the others do. Every wait is bounded.

use std::io;
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::http1::{Framing, Head, Inbound};
use crate::patience::within;

/// What to send.
#[derive(Clone, Debug)]
pub struct Request {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
    chunk_size: Option<usize>,
}

impl Request {
    pub fn new(method: &str, path: &str) -> Self {
        Request {
            method: method.to_owned(),
            path: path.to_owned(),
            headers: vec![("Host".into(), "warmgate.test".into())],
            body: Bytes::new(),
            chunk_size: None,
        }
    }

    pub fn get(path: &str) -> Self {
        Request::new("GET", path)
    }

    /// A POST of JSON bytes, framed by their length.
    pub fn post(path: &str, body: impl Into<Bytes>) -> Self {
        let mut request = Request::new("POST", path).header("Content-Type", "application/json");
        request.body = body.into();
        request
    }

    /// A GET to a server that minds by which name it is asked.
    pub fn get_as(host: &str, path: &str) -> Self {
        let mut request = Request::new("GET", path);
        request.headers = vec![("Host".into(), host.into())];
        request
    }

    /// The same by another method.
    pub fn by(mut self, method: &str) -> Self {
        self.method = method.to_owned();
        self
    }

    /// With another value for a header that is there.
    pub fn replacing(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(held, _)| held != name);
        self.header(name, value)
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends the body in chunks of that size instead of by its length.
    pub fn chunked(mut self, size: usize) -> Self {
        self.chunk_size = Some(size);
        self
    }

    /// The body as the server is to see it.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    /// All that comes before the body.
    pub fn head_bytes(&self) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        if self.chunk_size.is_some() {
            text += "Transfer-Encoding: chunked\r\n";
        } else if self.method == "POST" || !self.body.is_empty() {
            text += &format!("Content-Length: {}\r\n", self.body.len());
        }
        (text + "\r\n").into_bytes()
    }

    fn body_bytes(&self) -> Bytes {
        let Some(size) = self.chunk_size else {
            return self.body.clone();
        };
        let mut framed = BytesMut::new();
        for chunk in self.body.chunks(size) {
            framed.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            framed.extend_from_slice(chunk);
            framed.extend_from_slice(b"\r\n");
        }
        framed.extend_from_slice(b"0\r\n\r\n");
        framed.freeze()
    }
}

/// One connection of a client, between messages.
pub struct Conn {
    inbound: Inbound<OwnedReadHalf>,
    outbound: OwnedWriteHalf,
}

impl Conn {
    pub async fn open(address: SocketAddr) -> Conn {
        let stream = within("a connection", TcpStream::connect(address)).await;
        let stream = stream.unwrap_or_else(|e| panic!("cannot connect to {address}: {e}"));
        stream.set_nodelay(true).expect("TCP_NODELAY");
        let (read, outbound) = stream.into_split();
        Conn { inbound: Inbound::new(read), outbound }
    }

    /// Sends the request and reads the head of the answer, which may come before all is sent.
    pub async fn exchange(self, request: &Request) -> Reply {
        let what = format!("an answer to {} {}", request.method, request.path);
        let answer = within(&what, self.try_exchange(request)).await;
        answer.unwrap_or_else(|e| panic!("no answer to {}: {e}", request.path))
    }

    /// Like `exchange`, for tests in which a closed connection is an acceptable answer.
    pub async fn try_exchange(mut self, request: &Request) -> io::Result<Reply> {
        let head = self.send_and_read_head(request).await?;
        self.into_reply(request, head)
    }

    async fn send_and_read_head(&mut self, request: &Request) -> io::Result<Option<Head>> {
        let sending = async {
            self.outbound.write_all(&request.head_bytes()).await?;
            self.outbound.write_all(&request.body_bytes()).await
        };
        let reading = self.inbound.head();
        tokio::pin!(sending, reading);
        tokio::select! {
            head = &mut reading => head,
            // A server that answers early may stop reading; its answer counts, not our failed write.
            _ = &mut sending => reading.await,
        }
    }

    /// Sends the request and does not wait for anything.
    pub async fn send(&mut self, request: &Request) {
        self.write(&request.head_bytes()).await;
        self.write(&request.body_bytes()).await;
    }

    /// Sends the request as far as the other side takes it.
    pub async fn try_send(&mut self, request: &Request) {
        let bytes = [request.head_bytes(), request.body_bytes().to_vec()].concat();
        let _ = within("room to write", self.outbound.write_all(&bytes)).await;
    }

    /// Sends the head alone, as a client that expects `100 Continue` does.
    pub async fn send_head(&mut self, request: &Request) {
        self.write(&request.head_bytes()).await;
    }

    /// Sends any bytes.
    pub async fn write(&mut self, bytes: &[u8]) {
        let written = within("room to write", self.outbound.write_all(bytes)).await;
        written.unwrap_or_else(|e| panic!("cannot send: {e}"));
    }

    /// Sends bytes if there is room for them in time.
    pub async fn try_write(&mut self, bytes: &[u8], limit: std::time::Duration) -> bool {
        matches!(tokio::time::timeout(limit, self.outbound.write_all(bytes)).await, Ok(Ok(())))
    }

    /// Sends the body after `send_head` and reads the answer.
    pub async fn send_body(mut self, request: &Request) -> Reply {
        self.write(&request.body_bytes()).await;
        self.reply(request).await
    }

    /// The same, where the answer may come before all is sent.
    pub async fn exchange_body(mut self, request: &Request) -> Reply {
        let _ = within("room to write", self.outbound.write_all(&request.body_bytes())).await;
        self.reply(request).await
    }

    /// Reads the head of the answer to a request that was sent.
    pub async fn reply(mut self, request: &Request) -> Reply {
        let what = format!("an answer to {} {}", request.method, request.path);
        let head = within(&what, self.inbound.head()).await;
        head.and_then(|head| self.into_reply(request, head))
            .unwrap_or_else(|e| panic!("no answer to {}: {e}", request.path))
    }

    /// Reads an interim answer such as `100 Continue` and gives its status.
    pub async fn interim(&mut self) -> u16 {
        let head = within("an interim answer", self.inbound.head()).await;
        let head = head.expect("an interim answer").expect("not a close");
        status_of(&head)
    }

    /// Says that it will send no more, and still reads.
    pub async fn half_close(&mut self) {
        self.outbound.shutdown().await.expect("half a close");
    }

    /// The status of what comes, or none if the other side closes.
    pub async fn status_or_close(&mut self) -> Option<u16> {
        let head = within("an answer or a close", self.inbound.head()).await;
        head.ok().flatten().map(|head| status_of(&head))
    }

    /// Whether the other side closes without another word.
    pub async fn is_closed(&mut self) -> bool {
        !matches!(within("a close", self.inbound.head()).await, Ok(Some(_)))
    }

    /// Leaves by a reset, as a crashed client does.
    pub fn reset(self) {
        self.outbound.as_ref().set_zero_linger().expect("linger");
    }

    fn into_reply(self, request: &Request, head: Option<Head>) -> io::Result<Reply> {
        let head = head.ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = status_of(&head);
        let bodiless = request.method == "HEAD" || matches!(status, 204 | 304);
        let body = if bodiless { Framing::Done } else { head.framing(Framing::UntilClose)? };
        Ok(Reply { status, head, body, conn: self })
    }
}

/// An answer whose head has arrived.
pub struct Reply {
    pub status: u16,
    pub head: Head,
    body: Framing,
    conn: Conn,
}

impl Reply {
    /// The next piece of the body, one HTTP chunk as it was sent; `None` at a clean end.
    pub async fn piece(&mut self) -> io::Result<Option<Bytes>> {
        let piece = self.conn.inbound.piece(&mut self.body);
        within("the next piece of an answer", piece).await
    }

    /// The next piece, which must be there.
    pub async fn expect_piece(&mut self) -> Bytes {
        let piece = self.piece().await.expect("a piece of the answer");
        piece.expect("the answer to go on, but it ended")
    }

    /// All that is left of the body, and whether it ended as it should.
    pub async fn rest(&mut self) -> (Bytes, io::Result<()>) {
        let mut rest = BytesMut::new();
        loop {
            match self.piece().await {
                Ok(Some(piece)) => rest.extend_from_slice(&piece),
                Ok(None) => return (rest.freeze(), Ok(())),
                Err(e) => return (rest.freeze(), Err(e)),
            }
        }
    }

    /// The whole body of an answer that must end cleanly.
    pub async fn whole(&mut self) -> Bytes {
        let (body, end) = self.rest().await;
        end.unwrap_or_else(|e| panic!("answer cut ({e}) after {body:?}"));
        body
    }

    /// The whole body as JSON.
    pub async fn json(&mut self) -> Value {
        let body = self.whole().await;
        serde_json::from_slice(&body).unwrap_or_else(|e| panic!("status {}, not JSON ({e}): {body:?}", self.status))
    }

    /// Reads the answer to its end and gives the connection back for another request.
    pub async fn reuse(mut self) -> Conn {
        self.whole().await;
        self.conn
    }

    /// Whether the other side closes the connection after this answer.
    pub async fn closes_after(mut self) -> bool {
        self.whole().await;
        within("the connection to close", self.conn.inbound.head()).await.ok().flatten().is_none()
    }

    /// Says that it will send no more, and still reads.
    pub async fn half_close(&mut self) {
        self.conn.half_close().await;
    }

    /// Leaves by a reset.
    pub fn reset(self) {
        self.conn.reset();
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.get(name)
    }

    /// The node that answered, as the answer says.
    pub fn node(&self) -> &str {
        self.expect_header("x-fleet-node")
    }

    pub fn affinity(&self) -> &str {
        self.expect_header("x-fleet-affinity")
    }

    pub fn request_id(&self) -> &str {
        self.expect_header("x-request-id")
    }

    pub fn score(&self) -> f64 {
        let text = self.expect_header("x-fleet-score");
        text.parse().unwrap_or_else(|e| panic!("X-Fleet-Score {text:?}: {e}"))
    }

    fn expect_header(&self, name: &str) -> &str {
        self.header(name).unwrap_or_else(|| panic!("no {name} in {:#?}", self.head))
    }
}

fn status_of(head: &Head) -> u16 {
    head.word(1).parse().unwrap_or_else(|_| panic!("not a status line: {:?}", head.start))
}
