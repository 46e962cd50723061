//! A stranger's attempts by what a body holds: bombs, depths, giants, and more of them than there is memory for.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use crate::bystander::Bystander;
use crate::client::{Conn, Request};
use crate::patience::within_time;
use crate::rig::Single;

const MIB: usize = 1 << 20;

fn with(field: &str) -> Vec<u8> {
    format!("{{\"model\":\"moss:7b\",\"messages\":[{{\"role\":\"user\",\"content\":\"a\"}}]{field}}}").into_bytes()
}

#[tokio::test]
async fn odd_contents_are_refused_or_the_engine_s_to_judge_and_cost_no_more_than_their_bytes() {
    let single = Single::new().await;
    let bystander = Bystander::of(&single.gate).await;
    let many = |one: &str| one.repeat(4 * MIB / one.len());
    let cases: Vec<(&str, Vec<u8>, u16)> = vec![
        ("arrays in arrays", with(&format!(",\"x\":{}", "[".repeat(2 * MIB))), 400),
        ("closed, too", with(&format!(",\"x\":{}{}", "[".repeat(MIB), "]".repeat(MIB))), 400),
        ("objects in objects", with(&format!(",\"x\":{}1{}", "{\"a\":".repeat(MIB), "}".repeat(MIB))), 400),
        (
            "many messages",
            format!("{{\"model\":\"moss:7b\",\"messages\":[{}{{}}]}}", many("{\"role\":\"user\"},")).into(),
            400,
        ),
        ("many fields", with(&(0..200_000).map(|n| format!(",\"k{n}\":1")).collect::<String>()), 200),
        ("one field many times", with(&many(",\"a\":1")), 200),
        ("two models", with(",\"model\":\"moss:7b\""), 400),
        ("a second model, escaped", with(",\"m\\u006fdel\":\"other\""), 400),
        ("a giant number", with(&format!(",\"seed\":{}", "9".repeat(4 * MIB))), 200),
        ("a giant exponent", with(",\"seed\":1e999999999"), 200),
        ("a giant window", with(&format!(",\"options\":{{\"num_ctx\":{}}}", "9".repeat(400))), 200),
        (
            "counts below nothing",
            with(",\"max_tokens\":-9223372036854775809,\"options\":{\"num_predict\":-2e300}"),
            200,
        ),
        ("lone surrogates", with(&format!(",\"x\":\"{}\"", many("\\ud800"))), 200),
        (
            "no UTF-8",
            [with("").as_slice(), b" "].concat().iter().map(|b| if *b == b'a' { 0xff } else { *b }).collect(),
            400,
        ),
        ("an overlong slash", [b"{\"model\":\"moss\xc0\xaf7b\"}".as_slice()].concat(), 400),
        ("nuls", vec![0; MIB], 400),
        ("blanks", vec![b' '; 4 * MIB], 400),
        ("not a number", with(",\"temperature\":NaN"), 400),
        ("a second object", [with(""), with("")].concat(), 400),
        ("a model that is no text", b"{\"model\":{\"a\":[1]}}".to_vec(), 400),
        ("a model of 4 MiB", format!("{{\"model\":\"{}\"}}", "m".repeat(4 * MIB)).into(), 400),
        ("a model with a line end", b"{\"model\":\"a\\r\\nX: y\"}".to_vec(), 400),
        ("a model with a nul", b"{\"model\":\"moss:7b\\u0000\"}".to_vec(), 400),
        ("another place as a model", b"{\"model\":\"../../etc/passwd\"}".to_vec(), 404),
    ];
    for (what, body, expected) in cases {
        let before = single.node.count();
        let mut reply = single.gate.post("/api/chat", body.clone()).await;
        let said = String::from_utf8_lossy(&reply.whole().await).into_owned();
        assert_eq!(reply.status, expected, "{what}: {said:.300}");
        assert!(said.len() < 10_000, "{what}: {} bytes of refusal", said.len());
        assert_eq!(single.node.count() - before, usize::from(expected == 200), "{what}");
        if expected == 200 {
            assert_eq!(single.node.request(before).await.body, body, "{what}");
        }
    }
    bystander.saw_memory_grow_at_most(&single.gate, 200 << 20);
    bystander.was_served().await;
}

/// The status of what comes, however long those before it take to be unfolded and read.
async fn patiently(address: SocketAddr, request: Request) -> u16 {
    let asking = async { Conn::open(address).await.try_exchange(&request).await };
    let answered = tokio::time::timeout(Duration::from_secs(90), asking).await;
    answered.expect("an answer in time").expect("an answer").status
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(plain).expect("memory");
    packer.finish().expect("memory")
}

#[tokio::test]
async fn bombs_in_parallel_unfold_no_further_than_the_memory_for_bodies() {
    let zeros = vec![b' '; 32 * MIB];
    let (gzip, zstd) = (gzip(&zeros), zstd::encode_all(&zeros[..], 3).expect("memory"));
    let twice = self::gzip(&gzip);
    let single = Single::with("limits: {body: 4MiB, memory_for_bodies: 8MiB}").await;
    let bystander = Bystander::of(&single.gate).await;
    let mut asking = tokio::task::JoinSet::new();
    for n in 0..12 {
        let (coding, body) = [("gzip", &gzip), ("zstd", &zstd), ("gzip, gzip", &twice)][n % 3];
        let request = Request::post("/api/chat", body.clone()).header("Content-Encoding", coding);
        let address = single.gate.address();
        asking.spawn(patiently(address, request));
    }
    let mut most = 0;
    while let Some(status) = asking.join_next().await {
        most = most.max(single.gate.memory_bytes());
        assert!(matches!(status.expect("an answer"), 413 | 503));
    }
    assert!(most < 200 << 20, "{most} bytes");
    assert_eq!(single.node.count(), 0);
    bystander.was_served().await;
}

#[tokio::test]
async fn large_bodies_in_parallel_wait_for_memory_and_small_ones_are_served() {
    let single = Single::with("limits: {body: 4MiB, memory_for_bodies: 8MiB}").await;
    // In need of mending, for which it is copied.
    let body = with(&format!(",\"x\":\"{}\",\"y\":\"\\ud800\"", "a".repeat(2 * MIB)));
    let bystander = Bystander::of(&single.gate).await;
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let (address, request) = (single.gate.address(), Request::post("/api/chat", body.clone()));
        asking.spawn(patiently(address, request));
    }
    let mut served = 0;
    while let Some(status) = asking.join_next().await {
        let status = status.expect("an answer");
        assert!(matches!(status, 200 | 503), "{status}");
        served += usize::from(status == 200);
        // The bodies, what Pingora reads them with, and what the allocator keeps for a while.
        bystander.saw_memory_grow_at_most(&single.gate, 128 << 20);
    }
    assert!(served > 0);
    bystander.was_served().await;
}

#[tokio::test]
async fn bodies_that_promise_much_and_never_come_hold_little_and_end() {
    let single = Single::with("limits: {body: 128MiB, memory_for_bodies: 128MiB}").await;
    let bystander = Bystander::of(&single.gate).await;
    let mut slow = Vec::new();
    for _ in 0..500 {
        let mut conn = single.gate.connect().await;
        conn.write(b"POST /api/chat HTTP/1.1\r\nHost: x\r\nContent-Length: 130000000\r\n\r\n{\"model\":").await;
        slow.push(conn);
    }
    bystander.saw_memory_grow_at_most(&single.gate, 150 << 20);
    let all_refused = async {
        for conn in &mut slow {
            let status = conn.status_or_close().await;
            assert!(matches!(status, Some(408) | None), "{status:?}");
        }
    };
    within_time(Duration::from_secs(40), "all of them to be refused", all_refused).await;
    assert_eq!(single.node.count(), 0);
    bystander.was_served().await;
}
