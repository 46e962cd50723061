//! Connections that are odd, idle or hostile, and what they cost everybody else.

use bytes::Bytes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::client::{Conn, Request};
use crate::http2::Http2;
use crate::patience::within;
use crate::rig::{Single, finished};
use crate::talk::{Dialect, Talk};
use crate::upstream::Script;

#[tokio::test]
async fn ops_07_a_web_socket_is_refused_in_words_and_other_offers_are_passed_over() {
    let single = Single::new().await;
    for request in [
        Request::get("/v1/realtime?model=quill-asr"),
        Request::get("/v1/responses"),
        Talk::about(Dialect::OpenAi, "moss").ask(),
    ] {
        let request = request.header("Connection", "Upgrade").header("Upgrade", "WebSocket");
        let mut refused = single.gate.send(&request).await;
        assert_eq!(refused.status, 400);
        let said = String::from_utf8_lossy(&refused.whole().await).into_owned();
        assert!(said.contains("web sockets are not spoken here"), "{said}");
    }
    assert_eq!(single.node.count(), 0);

    // As Java's client offers on its first request.
    let offer = Talk::about(Dialect::Ollama, "moss").ask();
    let offer = offer.header("Connection", "Upgrade, HTTP2-Settings").header("Upgrade", "h2c");
    let offer = offer.header("HTTP2-Settings", "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA");
    let mut reply = single.gate.send(&offer).await;
    assert_eq!(reply.status, 200);
    reply.whole().await;
    let record = single.node.request(0).await;
    assert_eq!(record.body, *offer.body());
    let told = [record.head.get("upgrade"), record.head.get("http2-settings")];
    assert_eq!(told, [None, None]);
}

#[tokio::test]
async fn ops_07_a_node_that_goes_over_to_another_protocol_is_not_followed() {
    let single = Single::new().await;
    single.node.always(Script::raw(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nraw",
    ));
    let reply = single.gate.connect().await.try_exchange(&Talk::about(Dialect::OpenAi, "moss").ask()).await;
    assert!(reply.is_ok_and(|reply| reply.status >= 500), "a client that asked for nothing gets no 101");
}

#[tokio::test]
async fn http2_streams_that_are_reset_at_once_do_not_pile_up() {
    let single = Single::new().await;
    single.node.always(Script::silent());
    let body = Talk::about(Dialect::Ollama, "moss").ask().body().clone();
    let mut attacker = Http2::open(single.gate.address()).await;
    let mut sent = 0;
    while sent < 3000 && attacker.try_reset("/api/chat", &body).await {
        sent += 1;
    }
    assert!(sent > 10, "some resets are a client's right");
    single.gate.idle().await;
    single.node.always(Script::usual());
    assert_eq!(finished(&single.gate, &Talk::about(Dialect::Ollama, "fern")).await.status, 200);
    assert!(single.gate.memory_bytes() < 200 << 20, "{} bytes", single.gate.memory_bytes());
}

/// Idle connections of a test; each takes a descriptor here and one in the gate.
const IDLE: usize = 2000;
const IDLE_HTTP2: usize = 200;

/// Memory of an idle connection, at most; Pingora's read buffer is 64 KiB.
const IDLE_BYTES_MAX: u64 = 128 << 10;

#[tokio::test]
async fn ops_08_thousands_of_idle_connections_stand_in_nobody_s_way_and_leave_nothing() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("more descriptors");
    let single = Single::new().await;
    let before = single.gate.memory_bytes();
    let mut kept: Vec<Conn> = Vec::new();
    for _ in 0..IDLE {
        kept.push(single.gate.get("/api/version").await.reuse().await);
    }
    let body: Bytes = Talk::about(Dialect::Ollama, "moss").ask().body().clone();
    let mut kept_http2: Vec<Http2> = Vec::new();
    for _ in 0..IDLE_HTTP2 {
        let mut client = Http2::open(single.gate.address()).await;
        client.post("/api/chat", &body).await.answered().await.whole().await;
        kept_http2.push(client);
    }
    let most = before + (IDLE + IDLE_HTTP2) as u64 * IDLE_BYTES_MAX;
    assert!(single.gate.memory_bytes() < most, "{} bytes, {before} before", single.gate.memory_bytes());
    assert_eq!(finished(&single.gate, &Talk::about(Dialect::Ollama, "fern")).await.status, 200);

    drop(kept);
    kept_http2.into_iter().for_each(Http2::close);
    let closed = async {
        while single.gate.open_files() > 100 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    within("their descriptors to be free", closed).await;
}

#[tokio::test]
async fn odd_line_ends_and_blanks_hide_no_header() {
    let single = Single::new().await;
    let body = Talk::about(Dialect::Ollama, "moss").ask().body().clone();
    let text = String::from_utf8_lossy(&body).into_owned();
    let n = body.len();
    for head in [
        format!("POST /api/chat HTTP/1.1\nHost: x\nContent-Length: {n}\n\n"),
        format!("POST /api/chat HTTP/1.1\r\nHost: x\r\nContent-Length: {n}\r\nX\0Y: z\r\n\r\n"),
        format!("POST /api/chat HTTP/1.1\r\nHost: x\r\nX: a\r\n\tContent-Length: 3\r\nContent-Length: {n}\r\n\r\n"),
        format!("POST /api/chat HTTP/1.1\r\n Host: x\r\nContent-Length: {n}\r\n\r\n"),
        format!("POST /api/chat HTTP/2.0\r\nHost: x\r\nContent-Length: {n}\r\n\r\n"),
    ] {
        let before = single.node.count();
        let mut conn = single.gate.connect().await;
        conn.write(format!("{head}{text}").as_bytes()).await;
        let status = conn.status_or_close().await;
        // Line feeds alone are read by everybody in the same way; all else is refused.
        let taken = status == Some(200) && head.starts_with("POST /api/chat HTTP/1.1\nHost");
        assert!(taken || status.is_none_or(|status| status == 400), "{head:?}: {status:?}");
        assert_eq!(single.node.count() - before, usize::from(taken), "{head:?}");
    }
}
