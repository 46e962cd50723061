//! A new process takes over from the old one, and no client notices.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use tokio::task::JoinSet;

use crate::client::{Conn, Request};
use crate::gate::{Gate, Settings};
use crate::patience::within;
use crate::rig::{finished, node};
use crate::talk::{Dialect, Talk};
use crate::upstream::{Hold, Script};

const SOCKET: &str = "server: {upgrade_sock: up.sock, pid_file: pid}";

fn pid(gate: &Gate) -> String {
    std::fs::read_to_string(gate.directory().join("pid")).expect("the pid file").trim().to_owned()
}

#[tokio::test]
async fn pins_and_ports_go_to_the_new_process_and_streams_end_in_the_old() {
    let nodes = [node("n1").await, node("n2").await];
    let settings = Settings::over(&nodes.each_ref()).more(SOCKET);
    let mut old = Gate::start(&settings).await;
    let mode = std::fs::metadata(old.directory().join("up.sock")).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let before = pid(&old);
    let talk = Talk::about(Dialect::Ollama, "moss");
    let home = finished(&old, &talk).await.node().to_owned();
    let hold = Hold::new();
    let dialect = Dialect::Ollama;
    for node in &nodes {
        node.next(dialect.stream().chunk(dialect.frame("one")).hold(&hold).chunk(dialect.last_frame()).finish());
    }
    let mut running = old.send(&Talk::about(dialect, "fern").ask()).await;
    running.expect_piece().await;

    let new = old.succeed(&settings).await;

    assert_eq!((new.address(), new.admin_address()), (old.address(), old.admin_address()));
    hold.open();
    let second = finished(&new, &talk.then("And where?")).await;
    assert_eq!((second.affinity(), second.node()), ("session", home.as_str()));
    let rest = running.whole().await;
    assert!(String::from_utf8_lossy(&rest).contains("\"done\":true"), "{rest:?}");
    assert_eq!(old.ended().await, Some(0));
    assert_ne!(pid(&new), before);
    assert!(new.directory().join("up.sock").exists(), "what is in place is the new one's");
}

#[tokio::test]
async fn sigquit_and_failed_successors_change_nothing() {
    let node = node("n1").await;
    let settings = Settings::over(&[&node]).more(SOCKET);
    let mut gate = Gate::start(&settings).await;
    gate.signal(Signal::QUIT);
    assert_eq!(gate.get("/api/version").await.status, 200, "nobody is there to take over");

    // One that asks for the ports and dies.
    let socket = std::os::unix::net::UnixStream::connect(gate.directory().join("up.sock")).expect("a connection");
    std::io::Write::write_all(&mut &socket, b"warmgate hand-over 1\ns").expect("said");
    drop(socket);
    assert_eq!(gate.get("/api/version").await.status, 200);

    let mut new = gate.succeed(&settings).await;
    gate.signal(Signal::QUIT);
    assert_eq!(gate.ended().await, Some(0));
    assert_eq!(new.get("/api/version").await.status, 200);
    assert!(new.lives());
}

#[tokio::test]
async fn with_nobody_to_take_over_from_it_starts_anew() {
    let node = node("n1").await;
    let settings = Settings::over(&[&node]).more(SOCKET);
    let mut first = Gate::start(&settings).await;
    first.signal(Signal::TERM);
    first.ended().await;
    let gate = first.succeed(&settings).await;
    assert_eq!(gate.get("/api/version").await.status, 200);
}

#[tokio::test]
async fn a_connection_that_was_kept_or_had_half_a_head_gets_its_answer_from_the_old_process() {
    let node = node("n1").await;
    let settings = Settings::over(&[&node]).more(SOCKET);
    let mut old = Gate::start(&settings).await;
    let kept = old.get("/api/version").await.reuse().await;
    let mut half = old.connect().await;
    half.write(b"GET /api/version HTTP/1.1\r\nHo").await;
    let new = old.succeed(&settings).await;
    // Its own side of the hand-over ends a moment after the new one has said that it serves.
    within("the old process to know", async {
        while !old.log().contains("has taken over the ports") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;

    half.write(b"st: x\r\n\r\n").await;
    let request = Request::get("/api/version");
    let kept = kept.exchange(&request).await;
    let half = half.reply(&request).await;

    for reply in [kept, half] {
        assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
        assert!(reply.closes_after().await);
    }
    assert_eq!(old.ended().await, Some(0), "as soon as nobody is left");
    assert_eq!(new.get("/readyz").await.status, 200);
}

const UPGRADES: usize = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_upgrades_in_a_row_refuse_nobody_and_cut_nothing() {
    let nodes = [node("n1").await, node("n2").await];
    for node in &nodes {
        node.always(slow_answer());
    }
    let settings = Settings::over(&nodes.each_ref()).slots(64).more(SOCKET);
    let mut gate = Gate::start(&settings).await;
    let address = gate.address();
    let (over, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut clients = JoinSet::new();
    for client in 0..8 {
        let (over, served) = (over.clone(), served.clone());
        clients.spawn(async move {
            let mut asked = 0;
            let mut kept: Option<Conn> = None;
            while !over.load(Ordering::Relaxed) {
                asked += 1;
                let request = Talk::about(Dialect::Ollama, &format!("{client} {asked}")).ask();
                // Half of them keep their connections as long as they may, as SDKs do.
                let conn = match kept.take() {
                    Some(conn) => conn,
                    None => Conn::open(address).await,
                };
                let mut reply = conn.exchange(&request).await;
                assert_eq!(reply.status, 200, "client {client}, request {asked}");
                let body = reply.whole().await;
                assert!(String::from_utf8_lossy(&body).contains("\"done\":true"), "cut: {body:?}");
                served.fetch_add(1, Ordering::Relaxed);
                if client % 2 == 0 && reply.header("connection") != Some("close") {
                    kept = Some(reply.reuse().await);
                }
            }
        });
    }
    let probes = {
        let over = over.clone();
        tokio::spawn(async move {
            let mut connected = 0;
            while !over.load(Ordering::Relaxed) {
                let reply = Conn::open(address).await.exchange(&Request::get("/api/version")).await;
                assert_eq!(reply.status, 200);
                connected += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            connected
        })
    };
    let mut before: Vec<Gate> = Vec::new();
    for _ in 0..UPGRADES {
        let new = gate.succeed(&settings).await;
        before.push(std::mem::replace(&mut gate, new));
    }
    over.store(true, Ordering::Relaxed);
    while let Some(client) = clients.join_next().await {
        client.expect("no request failed");
    }
    let connected = probes.await.expect("no connection was refused");
    for mut old in before {
        assert_eq!(old.ended().await, Some(0));
    }
    let served = served.load(Ordering::Relaxed);
    assert!(served > UPGRADES && connected > UPGRADES, "{served} served, {connected} connections");
    println!("{UPGRADES} upgrades: {served} streams, {connected} connections more, none refused, none cut");
}

/// A few pieces, each from its own chunk.
fn slow_answer() -> Script {
    let dialect = Dialect::Ollama;
    (0..5)
        .fold(dialect.stream(), |script, n| script.chunk(dialect.frame(&n.to_string())))
        .chunk(dialect.last_frame())
        .finish()
}
