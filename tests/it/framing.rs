//! One message has one framing: whatever can be read in two ways is refused, or ends its connection.

use bytes::Bytes;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::client::Request;
use crate::gate::{Gate, Settings};
use crate::patience::within;
use crate::rig::Single;
use crate::talk::{Dialect, MODEL, Talk};
use crate::upstream::Script;

fn body() -> String {
    json!({"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "stream": false}).to_string()
}

/// Sends these bytes and reads all that comes until the connection is closed.
async fn until_closed(single: &Single, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(single.gate.address()).await.expect("a connection");
    stream.write_all(bytes).await.expect("sent");
    let mut said = Vec::new();
    // A reset after the answer is a close as well.
    let _ = within("the connection to close", stream.read_to_end(&mut said)).await;
    String::from_utf8_lossy(&said).into_owned()
}

fn answers(said: &str) -> usize {
    said.matches("HTTP/1.1 ").count()
}

#[tokio::test]
async fn bod_12_what_can_be_framed_in_two_ways_is_one_request_at_most() {
    let body = body();
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let n = body.len();
    let framings = [
        ("both", format!("Content-Length: {n}\r\nTransfer-Encoding: chunked\r\n"), &chunked),
        ("both, the other way", "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n".into(), &chunked),
        ("two lengths", format!("Content-Length: {n}\r\nContent-Length: 4\r\n"), &body),
        ("a list of lengths", format!("Content-Length: {n}, 4\r\n"), &body),
        ("a length with a sign", format!("Content-Length: +{n}\r\n"), &body),
        ("not chunked at last", "Transfer-Encoding: chunked, identity\r\n".into(), &chunked),
        ("identity", format!("Transfer-Encoding: identity\r\nContent-Length: {n}\r\n"), &body),
        ("another coding", "Transfer-Encoding: xchunked\r\n".into(), &chunked),
        ("a blank before the colon", "Transfer-Encoding : chunked\r\n".into(), &chunked),
        ("a blank before the colon of a length", format!("Content-Length : {n}\r\n"), &body),
        ("a folded line", "Transfer-Encoding:\r\n chunked\r\n".into(), &chunked),
        ("a bare carriage return", format!("X: a\rContent-Length: {n}\r\n"), &body),
    ];
    let single = Single::new().await;
    for (what, framing, body) in framings {
        let before = single.node.count();
        let meant = format!("POST /api/chat HTTP/1.1\r\nHost: x\r\n{framing}\r\n{body}");
        let smuggled = format!("POST /api/generate HTTP/1.1\r\nHost: x\r\nContent-Length: {n}\r\n\r\n{}", self::body());

        let said = until_closed(&single, (meant + &smuggled).as_bytes()).await;

        assert!(answers(&said) <= 1, "{what}: {said}");
        assert!(
            said.starts_with("HTTP/1.1 400") || said.starts_with("HTTP/1.1 200") || said.is_empty(),
            "{what}: {said}"
        );
        let seen = single.node.count() - before;
        assert!(seen <= 1, "{what}: the node saw a request that was hidden in another");
        println!("{what}: {}", said.lines().next().unwrap_or("closed"));
        if seen == 1 {
            let head = single.node.request(before).await.head;
            assert_eq!(head.count("content-length") + head.count("transfer-encoding"), 1, "{what}");
        }
    }
}

#[tokio::test]
async fn bod_13_a_framing_that_a_client_says_twice_is_refused() {
    let single = Single::new().await;
    let body = body();
    let head = "POST /api/chat HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n";

    let said = until_closed(&single, format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).as_bytes()).await;

    assert!(said.starts_with("HTTP/1.1 400") || said.is_empty(), "{said}");
    assert_eq!(single.node.count(), 0);
}

#[tokio::test]
async fn bod_13_a_framing_that_a_node_says_twice_is_passed_on_once() {
    for dialect in Dialect::BOTH {
        let frames = [dialect.frame("moss"), dialect.last_frame()];
        let whole = Bytes::from(frames.concat());
        let scripts = [
            dialect.stream().header("Transfer-Encoding", "chunked").chunk(whole.clone()).finish(),
            Script::json_head(200, whole.len() as u64)
                .header("Content-Length", &whole.len().to_string())
                .chunk(whole.clone()),
        ];
        for script in scripts {
            let single = Single::new().await;
            single.node.next(script.clone());

            let mut reply = single.gate.send(&Talk::about(dialect, "moss").ask()).await;

            assert_eq!(reply.status, 200, "{script:?}");
            assert_eq!(reply.whole().await, whole, "{script:?}");
            let framings = reply.head.count("transfer-encoding") + reply.head.count("content-length");
            assert_eq!(framings, 1, "{script:?}: {:#?}", reply.head);
        }
    }
}

/// A node that says of each POST how many bytes its first read got.
async fn first_reads() -> (u16, mpsc::UnboundedReceiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let tell = tell.clone();
            tokio::spawn(async move {
                let mut piece = vec![0; 64 << 10];
                let mut wanted = 0;
                while let Ok(got @ 1..) = stream.read(&mut piece).await {
                    let text = String::from_utf8_lossy(&piece[..got]);
                    let answer = if text.starts_with("GET ") {
                        json!({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
                    } else {
                        if wanted == 0 {
                            let _ = tell.send(got);
                            wanted = text.find("\r\n\r\n").expect("a head") + 4 + body().len();
                        }
                        wanted -= got;
                        if wanted > 0 {
                            continue;
                        }
                        json!({"model": MODEL, "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}}]})
                    };
                    let answer = answer.to_string();
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}",
                        answer.len()
                    );
                    if stream.write_all(format!("{head}\r\n\r\n{answer}").as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (port, told)
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_node_gets_head_and_body_in_one_piece() {
    let (port, mut told) = first_reads().await;
    let keys = format!("name: raw, url: \"http://127.0.0.1:{port}\", engine: openai");
    let gate = Gate::start(&Settings::over(&[]).upstream(&keys)).await;
    for n in 0..20 {
        let mut reply = gate.send(&Request::post("/v1/chat/completions", body())).await;
        assert_eq!(reply.status, 200);
        reply.whole().await;
        let got = within("a request", told.recv()).await.expect("a node");
        assert!(got > body().len(), "request {n}: its first read got {got} bytes");
    }
}
