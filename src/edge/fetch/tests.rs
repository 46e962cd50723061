//! Questions to upstreams that answer well, badly or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::edge::testbed::{header as value_of, read_message, refusing};

fn get(path: &str) -> Question<'_> {
    Question { path, json: None }
}

const TIMEOUT: Duration = Duration::from_secs(5);

/// A server that gives the same answer to every request, and counts its connections.
struct Server {
    target: Target,
    connections: Arc<AtomicUsize>,
}

/// `answers` per connection, after which it closes.
async fn server(answer: impl Into<Vec<u8>>, answers: usize) -> Server {
    let answer = Arc::new(answer.into());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(serve(stream, Arc::clone(&answer), answers));
        }
    });
    Server { target: Target::of(&url.parse().unwrap()), connections }
}

async fn serve(mut stream: TcpStream, answer: Arc<Vec<u8>>, answers: usize) {
    let mut read = Vec::new();
    for _ in 0..answers {
        let Some((head, _)) = read_message(&mut stream, &mut read).await else {
            return;
        };
        assert!(value_of(&head, "host").is_some_and(|host| host.starts_with("127.0.0.1:")));
        let _ = stream.write_all(&answer).await;
    }
}

async fn check(answer: &str, status: u16, body: &str) {
    let server = server(answer, 1).await;
    let fetched = Fetcher::new().get(&server.target, "/v1/models", TIMEOUT).await.unwrap();
    assert_eq!((fetched.status.as_u16(), &fetched.body[..]), (status, body.as_bytes()));
}

#[tokio::test]
async fn every_framing_and_every_status_is_an_answer() {
    check("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", 200, "{}").await;
    check("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n", 200, "{}").await;
    check("HTTP/1.0 200 OK\r\n\r\n{}", 200, "{}").await;
    check("HTTP/1.1 204 None\r\n\r\n", 204, "").await;
    check("HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n", 302, "").await;
    check("HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nbusy", 503, "busy").await;
}

#[tokio::test]
async fn connections_are_kept_and_stale_ones_replaced() {
    let fetcher = Fetcher::new();
    let kept = server("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", usize::MAX).await;
    for _ in 0..3 {
        fetcher.get(&kept.target, "/v1/models", TIMEOUT).await.unwrap();
    }
    assert_eq!(kept.connections.load(Ordering::SeqCst), 1);

    let closing = server("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", 1).await;
    for _ in 0..3 {
        fetcher.get(&closing.target, "/v1/models", TIMEOUT).await.unwrap();
    }
    assert_eq!(closing.connections.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn excess_is_not_read() {
    let length = server("HTTP/1.1 200 OK\r\ncontent-length: 9000000\r\n\r\n", 1).await;
    let endless = server([b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'x'; 9 << 20]].concat(), 1).await;
    let fetcher = Fetcher::new();
    let got = fetcher.get(&length.target, "/", Duration::from_millis(200)).await;
    assert!(matches!(got, Err(FetchError::Broken(_) | FetchError::TooLarge)), "{got:?}");
    let got = fetcher.get(&endless.target, "/", TIMEOUT).await;
    assert!(matches!(got, Err(FetchError::TooLarge)), "{got:?}");
}

#[tokio::test]
async fn silence_and_refusal_are_errors_in_time() {
    let fetcher = Fetcher::new();
    let mute = server("", 1).await;
    let asked = Instant::now();
    let got = fetcher.get(&mute.target, "/", Duration::from_millis(100)).await;
    assert!(matches!(got, Err(FetchError::TimedOut(_) | FetchError::Broken(_))), "{got:?}");
    assert!(asked.elapsed() < Duration::from_secs(1));

    let gone = Target::of(&format!("http://{}", refusing().await).parse().unwrap());
    let got = fetcher.get(&gone, "/", TIMEOUT).await;
    assert!(matches!(got, Err(FetchError::Connect(_))), "{got:?}");
}

async fn check_reason(target: Target, expected: &str) {
    let error = Fetcher::new().get(&target, "/", Duration::from_millis(300)).await.unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn reasons_are_in_words() {
    let at = |address: String| Target::of(&format!("http://{address}").parse().unwrap());
    check_reason(at(refusing().await.to_string()), "connection refused").await;
    check_reason(at("nowhere.invalid".into()), "no such host").await;
    check_reason(server("SSH-2.0-x\r\n\r\n", 1).await.target, "what it answers is not HTTP").await;
    let closing = "it closed the connection without a complete answer";
    check_reason(server("", 1).await.target, closing).await;
    check_reason(server("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}", 1).await.target, closing).await;
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    check_reason(at(mute.local_addr().unwrap().to_string()), "no answer within 300ms").await;
}

#[tokio::test]
async fn a_name_with_a_refusing_address_is_reached_at_the_other() {
    // `localhost` is ::1 and 127.0.0.1 on most machines; only the second listens.
    let server = server("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", 1).await;
    let port = server.target.authority().rsplit(':').next().unwrap().to_string();
    let addresses = ["[::1]", "127.0.0.1"].map(|ip| format!("{ip}:{port}").parse().unwrap());
    let deadline = Instant::now() + TIMEOUT;
    let fetcher = Fetcher::new();
    let fetched = fetcher.ask_first_reachable(&server.target, get("/"), &addresses, deadline).await;
    assert_eq!(fetched.unwrap().status, 200);
}

#[tokio::test]
async fn the_key_goes_along() {
    let header =
        header(&Target::of(&"http://n1/team/v1".parse().unwrap()).with_bearer(Some("k".into())), get("/v1/models?x=1"));
    let header = header.unwrap();
    assert_eq!(header.headers[AUTHORIZATION], "Bearer k");
    assert_eq!(header.headers[HOST], "n1");
    assert_eq!(header.uri.to_string(), "/team/v1/models?x=1");
}
