//! A stranger's attempts to hold all connections that there can be, by saying nothing, little, or the same slowly.

use std::time::Duration;

use tokio::net::TcpStream;

use crate::bystander::Bystander;
use crate::client::Conn;
use crate::frames::{END_HEADERS, Frames, HEADERS, chat, frame};
use crate::gate::{Gate, Settings};
use crate::rig::{finished, node};
use crate::talk::{Dialect, Talk};
use crate::upstream::{Hold, Script};

/// Of the gate; 192 are its own, and each client may take two.
const FILES: u32 = 1024;
const CLIENTS: usize = (FILES as usize - 192) / 2;

/// Longer than one who has just come is let be.
const A_WHILE: Duration = Duration::from_millis(1000);

/// Of those who come anew: no faster than that those from before are no longer new.
const PACE: Duration = Duration::from_millis(4);

/// More connections than there can be, each begun so; then a client who behaves comes, and is served.
async fn check(what: &str, begin: impl AsyncFn(&Gate) -> Conn) {
    let node = node("n1").await;
    let hold = Hold::new();
    node.next(Script::held(&hold).then_usual());
    let gate = Gate::start(&Settings::over(&[&node]).files(FILES).more("limits: {header_read: 60s}")).await;
    // Somebody is served all along, over a connection that is older than theirs.
    let address = gate.address();
    let served = tokio::spawn(async move {
        let mut reply = Conn::open(address).await.exchange(&Talk::about(Dialect::Ollama, "moss").ask()).await;
        reply.whole().await;
        reply.status
    });
    node.request(0).await;
    let mut held = Vec::new();
    for _ in 0..CLIENTS - 8 {
        held.push(begin(&gate).await);
    }
    tokio::time::sleep(A_WHILE).await;
    let bystander = Bystander::of(&gate).await;
    for _ in 0..CLIENTS {
        held.push(begin(&gate).await);
        tokio::time::sleep(PACE).await;
    }
    assert_eq!(finished(&gate, &Talk::about(Dialect::Ollama, "fern")).await.status, 200, "{what}");
    bystander.saw_memory_grow_at_most(&gate, 100 << 20);
    bystander.was_served().await;
    assert!(gate.counter("warmgate_connections_displaced_total").await > 0.0, "{what}");
    hold.open();
    assert_eq!(served.await.expect("an answer"), 200, "{what}: what is served is never cut");
}

#[tokio::test]
async fn ops_08_connections_that_say_nothing_make_room() {
    check("mute", async |gate| gate.connect().await).await;
}

#[tokio::test]
async fn ops_08_heads_that_never_end_make_room() {
    check("half a head", async |gate| {
        let mut conn = gate.connect().await;
        conn.try_write(b"POST /api/chat HTTP/1.1\r\nHost: x\r\nX: ", Duration::from_secs(1)).await;
        conn
    })
    .await;
}

#[tokio::test]
async fn ops_08_bodies_that_never_come_make_room() {
    check("no body", async |gate| {
        let mut conn = gate.connect().await;
        let head = b"POST /api/chat HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{";
        conn.try_write(head, Duration::from_secs(1)).await;
        conn
    })
    .await;
}

#[tokio::test]
async fn ops_08_connections_kept_after_an_answer_make_room() {
    check("kept", async |gate| {
        let mut conn = gate.connect().await;
        conn.try_write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", Duration::from_secs(1)).await;
        conn
    })
    .await;
}

#[tokio::test]
async fn ops_08_http2_that_asks_for_nothing_or_never_ends_asking_makes_room() {
    let node = node("n1").await;
    let gate = Gate::start(&Settings::over(&[&node]).files(FILES)).await;
    let mut held = Vec::new();
    for n in 0..CLIENTS - 8 {
        let stream = TcpStream::connect(gate.address()).await.expect("a connection");
        let mut frames = Frames::over(stream, &[]).await;
        if n % 2 == 0 {
            frames.send(&frame(HEADERS, END_HEADERS, 1, &chat(&[]))).await;
        }
        held.push(frames);
    }
    tokio::time::sleep(A_WHILE).await;
    let bystander = Bystander::of(&gate).await;
    let mut more = Vec::new();
    for _ in 0..CLIENTS {
        let stream = TcpStream::connect(gate.address()).await.expect("a connection");
        more.push(stream);
        tokio::time::sleep(PACE).await;
    }
    assert_eq!(finished(&gate, &Talk::about(Dialect::Ollama, "fern")).await.status, 200);
    bystander.was_served().await;
}

/// With room for what a build without optimisation needs; Pingora's own buffers would take 64 KiB alone.
const IDLE_BYTES_MAX: u64 = 48 << 10;
const IDLE: u64 = 1_000;

#[tokio::test]
async fn ops_08_an_idle_connection_takes_little_memory() {
    let node = node("n1").await;
    let gate = Gate::start(&Settings::over(&[&node]).more("limits: {header_read: 10m}")).await;
    // What the first of all connections and requests make is no matter of the next.
    assert_eq!(finished(&gate, &Talk::about(Dialect::Ollama, "fern")).await.status, 200);
    let before = gate.memory_bytes();
    let mut held = Vec::new();
    for n in 0..IDLE {
        let mut conn = gate.connect().await;
        if n % 3 == 1 {
            conn.try_write(b"POST /api/chat HTTP/1.1\r\nHost: x\r\n", Duration::from_secs(1)).await;
        }
        held.push(conn);
    }
    // They are let in in turn, so that all are in when one more has been served.
    assert_eq!(finished(&gate, &Talk::about(Dialect::Ollama, "moss")).await.status, 200);
    let grown = gate.memory_bytes().saturating_sub(before) / IDLE;
    assert!(grown < IDLE_BYTES_MAX, "{grown} bytes for each of {IDLE} idle connections");
    println!("{grown} bytes for each of {IDLE} idle connections");
}
