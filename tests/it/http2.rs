//! A client of HTTP/2 without TLS: one connection, and streams that it can give up one by one.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::patience::within;

/// A connection.
pub struct Http2 {
    requests: SendRequest<Bytes>,
    connection: JoinHandle<()>,
}

impl Http2 {
    pub async fn open(address: SocketAddr) -> Http2 {
        Http2::over(TcpStream::connect(address).await.expect("a connection")).await
    }

    /// Over a connection that is there, such as one of TLS.
    pub async fn over(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Http2 {
        let (requests, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        let connection = tokio::spawn(async move { drop(connection.await) });
        Http2 { requests, connection }
    }

    /// Sends a whole request.
    pub async fn post(&mut self, path: &str, body: &Bytes) -> Asked {
        let request = Request::post(format!("http://warmgate.test{path}"));
        let request = request.header("content-type", "application/json").body(()).expect("a request");
        let ready = within("room for a stream", self.requests.clone().ready()).await;
        let (answer, mut sending) = ready.expect("a stream").send_request(request, false).expect("sent");
        sending.send_data(body.clone(), true).expect("sent");
        Asked { answer, sending }
    }

    /// Sends a request and gives it up at once; false when the server has had enough.
    pub async fn try_reset(&mut self, path: &str, body: &Bytes) -> bool {
        let request = Request::post(format!("http://warmgate.test{path}")).body(()).expect("a request");
        let Ok(mut requests) = within("room for a stream", self.requests.clone().ready()).await else { return false };
        let Ok((_, mut sending)) = requests.send_request(request, false) else { return false };
        let sent = sending.send_data(body.clone(), true).is_ok();
        sending.send_reset(Reason::CANCEL);
        tokio::task::yield_now().await;
        sent
    }

    /// Returns once the server takes no new requests here.
    pub async fn sent_away(&mut self) {
        while self.requests.clone().ready().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Leaves altogether.
    pub fn close(self) {
        self.connection.abort();
    }
}

/// A request whose answer has not come.
pub struct Asked {
    answer: ResponseFuture,
    sending: SendStream<Bytes>,
}

impl Asked {
    pub async fn answered(self) -> Answered {
        let head = within("an answer over HTTP/2", self.answer).await.expect("an answer");
        let status = head.status().as_u16();
        Answered { status, body: head.into_body(), sending: self.sending }
    }

    /// Gives this request up and keeps the connection.
    pub fn cancel(mut self) {
        self.sending.send_reset(Reason::CANCEL);
    }
}

/// An answer whose head has come.
pub struct Answered {
    pub status: u16,
    body: RecvStream,
    sending: SendStream<Bytes>,
}

impl Answered {
    /// The next piece; `None` at a clean end.
    pub async fn piece(&mut self) -> Option<Bytes> {
        let piece = within("the next piece over HTTP/2", self.body.data()).await?.expect("no reset");
        let _ = self.body.flow_control().release_capacity(piece.len());
        Some(piece)
    }

    pub async fn whole(&mut self) -> Vec<u8> {
        let mut whole = Vec::new();
        while let Some(piece) = self.piece().await {
            whole.extend_from_slice(&piece);
        }
        whole
    }

    /// Gives this request up and keeps the connection.
    pub fn cancel(mut self) {
        self.sending.send_reset(Reason::CANCEL);
    }
}
