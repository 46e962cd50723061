//! HTTP/2 written frame by frame, for what no library would send.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::patience::within;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RESET: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The fields, each spelled out.
pub fn fields(all: &[(&str, &str)]) -> Vec<u8> {
    all.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

fn text(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    match text.len() {
        short @ ..127 => bytes.push(short as u8),
        long => {
            bytes.push(127);
            let mut rest = long - 127;
            while rest >= 128 {
                bytes.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            bytes.push(rest as u8);
        }
    }
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

/// The head of a request for a chat.
pub fn chat(more: &[(&str, &str)]) -> Vec<u8> {
    let head = [(":method", "POST"), (":scheme", "http"), (":authority", "x"), (":path", "/api/chat")];
    fields(&[&head, more].concat())
}

/// A connection on which HTTP/2 has begun.
pub struct Frames<S> {
    stream: S,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Frames<S> {
    pub async fn over(mut stream: S, settings: &[u8]) -> Frames<S> {
        let hello = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, settings)].concat();
        stream.write_all(&hello).await.expect("a connection that takes HTTP/2");
        Frames { stream }
    }

    /// Sends these bytes; false where the other side takes no more.
    pub async fn send(&mut self, bytes: &[u8]) -> bool {
        let sending = tokio::time::timeout(std::time::Duration::from_secs(2), self.stream.write_all(bytes));
        matches!(sending.await, Ok(Ok(()))) && self.stream.flush().await.is_ok()
    }

    /// The next frame; `None`: the connection is over.
    pub async fn next(&mut self) -> Option<(u8, u32, Vec<u8>)> {
        within("a frame, or the end", async {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).await.ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            self.stream.read_exact(&mut payload).await.ok()?;
            Some((head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload))
        })
        .await
    }

    /// What becomes of the stream or of the connection: the first such frame that comes, or its end.
    pub async fn fate(&mut self) -> Option<u8> {
        while let Some((kind, _, _)) = self.next().await {
            if [HEADERS, RESET, GOAWAY].contains(&kind) {
                return Some(kind);
            }
        }
        None
    }

    /// Whether the other side has ended the connection, or does so while it is read for that long.
    pub async fn is_over_within(&mut self, time: std::time::Duration) -> bool {
        let mut read = [0; 1024];
        let reading = async { while let Ok(1..) = self.stream.read(&mut read).await {} };
        tokio::time::timeout(time, reading).await.is_ok()
    }

    /// Returns when the other side has ended the connection.
    pub async fn ended(&mut self) {
        while self.next().await.is_some() {}
    }
}
