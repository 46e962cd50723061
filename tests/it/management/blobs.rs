//! Blobs stream through to one node, and the create that names them follows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::json;
use xxhash_rust::xxh3::Xxh3;

use super::{ON, lines, with_body};
use crate::client::{Conn, Reply, Request};
use crate::gate::{Gate, Settings};
use crate::rig::node;
use crate::talk::{Dialect, Talk};
use crate::upstream::{Hold, Script, Upstream};

const MIB: u64 = 1 << 20;

pub fn path(n: u64) -> String {
    format!("/api/blobs/{}", digest(n))
}

fn digest(n: u64) -> String {
    format!("sha256:{n:064x}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cat_10_head_blob_and_create_meet_at_one_node_while_others_chat() {
    let duo = Duo::new().await;
    let traffic = Traffic::start(&duo.gate).await;
    for run in 1..=20 {
        assert_eq!(duo.gate.send(&Request::new("HEAD", &path(run))).await.status, 404, "run {run}");
        let upload = Upload { chunked: run % 2 == 0, expects: run % 3 == 0, bytes: 4 * MIB + run };
        let stored = upload.send(&duo.gate, &path(run)).await;
        assert_eq!(stored.status, 201, "run {run}");
        assert_eq!(duo.gate.send(&Request::new("HEAD", &path(run))).await.status, 200, "run {run}");

        let mut created = duo.create(&[run]).await;

        assert_eq!(created.status, 200, "run {run}");
        assert_eq!(created.node(), stored.node(), "run {run}");
        assert_eq!(lines(&created.whole().await).pop(), Some(json!({"status": "success"})));
        assert_eq!(duo.holder(stored.node()).blobs()[&path(run)], upload.sum(), "run {run}: what arrived");
    }
    traffic.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cat_10_a_large_blob_is_never_held() {
    let duo = Duo::new().await;
    let traffic = Traffic::start(&duo.gate).await;
    // The first of each warms pools and allocator.
    Upload { chunked: false, expects: false, bytes: MIB }.send(&duo.gate, &path(1)).await;
    for (n, chunked, mib) in [(2, false, 300), (3, true, 64)] {
        let before = duo.gate.resident_bytes();
        let peak = Peak::watch(&duo.gate);
        let upload = Upload { chunked, expects: false, bytes: mib * MIB };
        let stored = upload.send_watched(&duo.gate, &path(n), || peak.look(&duo.gate)).await;
        assert_eq!(stored.status, 201);
        assert_eq!(duo.holder(stored.node()).blobs()[&path(n)].0, mib * MIB);
        let grown = peak.bytes().saturating_sub(before);
        assert!(grown < 20 * MIB, "chunked {chunked}: memory grew by {grown} bytes");
    }
    assert_eq!(duo.create(&[2, 3]).await.status, 200, "both on one node");
    traffic.stop().await;
}

#[tokio::test]
async fn cat_10_a_client_that_expects_to_be_told_to_go_on_is_told_once_a_node_is_reached() {
    let duo = Duo::new().await;
    let expecting = |n| Request::post(&path(n), vec![b'x'; 2 << 20]).header("Expect", "100-continue");
    let mut conn = duo.gate.connect().await;
    conn.send_head(&expecting(1)).await;
    assert_eq!(conn.interim().await, 100);
    assert_eq!(conn.send_body(&expecting(1)).await.status, 201);

    // One that says nothing before it has the whole body.
    for node in [&duo.n1, &duo.n2] {
        node.next(Script::json(201, &json!({})));
    }
    let mut conn = duo.gate.connect().await;
    conn.send_head(&expecting(2)).await;
    assert_eq!(conn.interim().await, 100);
    assert_eq!(conn.send_body(&expecting(2)).await.status, 201);
    let asked = if duo.n1.count() == 1 { &duo.n1 } else { &duo.n2 };
    let record = asked.request(0).await;
    assert_eq!((record.head.get("expect"), record.body.len()), (None, 2 << 20), "it was met here");
}

#[tokio::test]
async fn cat_10_a_client_that_was_told_to_go_on_still_gets_an_early_refusal() {
    let duo = Duo::new().await;
    let refusal = Script::json(507, &json!({"error": "no space left"})).before_body();
    duo.n1.next(refusal.clone());
    duo.n2.next(refusal);
    let request = Request::post(&path(1), vec![b'x'; 4 << 20]).header("Expect", "100-continue");
    let mut conn = duo.gate.connect().await;
    conn.send_head(&request).await;
    assert_eq!(conn.interim().await, 100);
    let mut reply = conn.exchange_body(&request).await;
    assert_eq!((reply.status, reply.json().await), (507, json!({"error": "no space left"})));
}

#[tokio::test]
async fn cat_10_a_client_that_expects_to_be_told_sends_nothing_where_no_node_is_reached() {
    let mut duo = Duo::new().await;
    duo.n1.kill().await;
    duo.n2.kill().await;
    let request = Request::post(&path(1), vec![b'x'; 1000]).header("Expect", "100-continue");
    let mut conn = duo.gate.connect().await;
    conn.send_head(&request).await;
    let reply = conn.reply(&request).await;
    assert!(matches!(reply.status, 502 | 503), "{}", reply.status);
}

#[tokio::test]
async fn cat_10_a_node_that_refuses_early_reaches_the_client() {
    let duo = Duo::new().await;
    for (status, words) in [(400, "digest mismatch"), (507, "no space left")] {
        let refusal = Script::json(status, &json!({"error": words})).before_body();
        duo.n1.next(refusal.clone());
        duo.n2.next(refusal);
        let request = Request::post(&path(1), vec![b'x'; 4 << 20]);
        let mut reply = duo.gate.send(&request).await;
        assert_eq!((reply.status, reply.json().await), (status, json!({"error": words})));
        let (n1, n2) = (duo.n1.count(), duo.n2.count());
        assert!(n1 == 0 || n2 == 0, "it was sent to both: {n1}, {n2}");
    }
    assert_eq!(duo.n1.count() + duo.n2.count(), 2, "each was sent once");
}

#[tokio::test]
async fn cat_10_nothing_is_read_that_a_node_does_not_take() {
    let duo = Duo::new().await;
    for node in [&duo.n1, &duo.n2] {
        node.hold_blobs(&Hold::new());
    }
    let mut conn = duo.gate.connect().await;
    conn.write(format!("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", path(1), 512 * MIB).as_bytes())
        .await;
    let piece = vec![b'x'; MIB as usize];
    let mut taken = 0;
    // Full buffers on the way are a few megabytes; then no more is taken.
    while taken < 256 && conn.try_write(&piece, std::time::Duration::from_millis(700)).await {
        taken += 1;
    }
    assert!(taken < 64, "{taken} MiB were taken for a node that reads nothing");
    assert_eq!(duo.n1.blob_calls() + duo.n2.blob_calls(), 1, "it reached a node");
}

#[tokio::test]
async fn cat_10_a_node_that_dies_is_named_and_another_not_asked() {
    let duo = Duo::new().await;
    duo.n1.next(Script::closing());
    duo.n2.next(Script::closing());
    let mut reply = duo.gate.post(&path(1), vec![b'x'; 100_000]).await;
    assert_eq!(reply.status, 502);
    let error = reply.json().await["error"].as_str().expect("an error").to_owned();
    assert!(error.contains("node 'n"), "{error}");
    assert_eq!(duo.n1.count() + duo.n2.count(), 1);
}

#[tokio::test]
async fn cat_10_blobs_on_two_nodes_make_no_model() {
    let duo = Duo::new().await;
    for (n, node) in [(1, "n1"), (2, "n2")] {
        let request = Request::post(&path(n), vec![b'x'; 10]).header("X-Fleet-Nodes", node);
        let reply = duo.gate.send(&request).await;
        assert_eq!((reply.status, reply.node()), (201, node));
    }
    let mut reply = duo.create(&[1, 2]).await;
    assert_eq!(reply.status, 409);
    assert!(reply.json().await["error"].as_str().is_some_and(|error| error.contains("X-Fleet-Nodes")));
    assert_eq!(duo.n1.count() + duo.n2.count(), 0, "no create was sent");
    let body = json!({"model": "m", "files": {"a": "sha256:../../x"}}).to_string();
    assert_eq!(duo.gate.post("/api/create", body).await.status, 400);
}

#[tokio::test]
async fn cat_10_a_blob_in_broken_chunks_is_refused_in_words() {
    let duo = Duo::new().await;
    for chunks in ["zz\r\nabc\r\n", "-1\r\n", "ffffffffffffffffff\r\n", "5\r\nabcde\r\nzz\r\n"] {
        let mut conn = duo.gate.connect().await;
        let head = format!("POST {} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", path(1));
        conn.write(format!("{head}{chunks}").as_bytes()).await;

        let mut reply = conn.reply(&Request::post(&path(1), "")).await;

        assert_eq!(reply.status, 400, "{chunks:?}");
        assert_eq!(reply.json().await, json!({"error": "the request body is not framed as HTTP has it"}));
        assert!(reply.closes_after().await, "nothing is read behind it");
    }
    assert!(duo.n1.blobs().is_empty() && duo.n2.blobs().is_empty(), "nothing was stored");
}

/// A gate over two nodes alike, with managing allowed.
struct Duo {
    gate: Gate,
    n1: Upstream,
    n2: Upstream,
}

impl Duo {
    async fn new() -> Duo {
        let [n1, n2] = [node("n1").await, node("n2").await];
        let gate = Gate::start(&Settings::over(&[&n1, &n2]).more(ON)).await;
        Duo { gate, n1, n2 }
    }

    fn holder(&self, name: &str) -> &Upstream {
        if name == "n1" { &self.n1 } else { &self.n2 }
    }

    async fn create(&self, blobs: &[u64]) -> Reply {
        let files: serde_json::Map<String, serde_json::Value> =
            blobs.iter().map(|n| (format!("{n}.gguf"), digest(*n).into())).collect();
        self.gate.send(&with_body("POST", "/api/create", &json!({"model": "mine", "files": files}).to_string())).await
    }
}

/// A blob on its way, made up piece by piece.
struct Upload {
    chunked: bool,
    expects: bool,
    bytes: u64,
}

impl Upload {
    async fn send(&self, gate: &Gate, path: &str) -> Reply {
        self.send_watched(gate, path, || ()).await
    }

    async fn send_watched(&self, gate: &Gate, path: &str, look: impl Fn()) -> Reply {
        let mut conn: Conn = gate.connect().await;
        let framing = match self.chunked {
            true => "Transfer-Encoding: chunked".to_owned(),
            false => format!("Content-Length: {}", self.bytes),
        };
        let expects = if self.expects { "Expect: 100-continue\r\n" } else { "" };
        let head = format!("POST {path} HTTP/1.1\r\nHost: warmgate.test\r\n{expects}{framing}\r\n\r\n");
        conn.write(head.as_bytes()).await;
        if self.expects {
            assert_eq!(conn.interim().await, 100);
        }
        let mut at = 0;
        while at < self.bytes {
            let piece = piece(at, self.bytes);
            if self.chunked {
                conn.write(format!("{:x}\r\n", piece.len()).as_bytes()).await;
            }
            conn.write(&piece).await;
            if self.chunked {
                conn.write(b"\r\n").await;
            }
            at += piece.len() as u64;
            look();
        }
        if self.chunked {
            conn.write(b"0\r\n\r\n").await;
        }
        conn.reply(&Request::post(path, "")).await
    }

    /// Size and hash of what is sent.
    fn sum(&self) -> (u64, u128) {
        let mut hash = Xxh3::new();
        let mut at = 0;
        while at < self.bytes {
            let piece = piece(at, self.bytes);
            hash.update(&piece);
            at += piece.len() as u64;
        }
        (self.bytes, hash.digest128())
    }
}

/// The piece that begins there; no two are alike.
fn piece(at: u64, of: u64) -> Vec<u8> {
    let mut piece = vec![(at / MIB) as u8; (of - at).min(MIB) as usize];
    piece[0] = (at >> 24) as u8 ^ 0x5a;
    piece
}

/// The most memory that was seen.
struct Peak(AtomicU64);

impl Peak {
    fn watch(gate: &Gate) -> Peak {
        Peak(AtomicU64::new(gate.resident_bytes()))
    }

    fn look(&self, gate: &Gate) {
        self.0.fetch_max(gate.resident_bytes(), Ordering::Relaxed);
    }

    fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Somebody chats all the time.
struct Traffic {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<u32>,
}

impl Traffic {
    async fn start(gate: &Gate) -> Traffic {
        let stop = Arc::new(AtomicBool::new(false));
        let (address, stopped) = (gate.address(), stop.clone());
        let task = tokio::spawn(async move {
            let mut count = 0;
            while !stopped.load(Ordering::Relaxed) {
                let talk = Talk::about(Dialect::Ollama, &format!("moss {count}"));
                let mut reply = Conn::open(address).await.exchange(&talk.ask()).await;
                assert_eq!(reply.status, 200);
                reply.whole().await;
                count += 1;
            }
            count
        });
        Traffic { stop, task }
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        let count = self.task.await.expect("traffic without a failure");
        assert!(count > 0, "no traffic ran");
    }
}
