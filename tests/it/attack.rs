//! A stranger's attempts at the client port by HTTP/1.1: each ends in a refusal or is harmless, and a client who
//! behaves is served all along.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::bystander::Bystander;
use crate::patience::within;
use crate::rig::Single;
use crate::talk::MODEL;

pub fn body() -> String {
    json!({"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "stream": false}).to_string()
}

/// A gate that does not wait long for what never comes.
async fn single() -> Single {
    Single::with("limits: {header_read: 3s}").await
}

/// All that is said on a connection after these bytes until it is closed.
async fn said_to(single: &Single, bytes: &[u8]) -> String {
    let stream = TcpStream::connect(single.gate.address()).await.expect("a connection");
    let (mut reading, mut writing) = stream.into_split();
    let talking = async {
        // Whoever is refused half way need not have read the rest.
        let _ = writing.write_all(bytes).await;
        std::future::pending::<()>().await;
    };
    let mut said = Vec::new();
    tokio::select! {
        // A reset after the answer is a close as well.
        _ = within("the connection to close", reading.read_to_end(&mut said)) => {}
        () = talking => {}
    }
    String::from_utf8_lossy(&said).into_owned()
}

fn statuses(said: &str) -> Vec<&str> {
    said.split("HTTP/1.1 ").skip(1).filter_map(|answer| answer.get(..3)).collect()
}

fn post(framing: &str, body: &str) -> Vec<u8> {
    format!("POST /api/chat HTTP/1.1\r\nHost: x\r\n{framing}\r\n{body}").into_bytes()
}

const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";

/// What the gate may make of an attempt.
enum Fate {
    /// One answer, of this status; nothing reaches a node.
    Refused(&'static str),
    /// It is read as one request, which a node sees in one framing.
    Served,
    /// Nobody could see its end elsewhere: what follows is a request of its own.
    Both,
    /// No answer or a refusal.
    Closed,
}
use Fate::{Both, Closed, Refused, Served};

#[tokio::test]
async fn framings_and_line_ends_that_others_read_otherwise_hide_no_second_request() {
    let single = single().await;
    let bystander = Bystander::of(&single.gate).await;
    let body = body();
    let n = body.len();
    let chunks = format!("{n:x}\r\n{body}\r\n0\r\n\r\n");
    let length = format!("Content-Length: {n}\r\n");
    let in_chunk = |line: &str, end: &str| post(CHUNKED, &format!("{line}{body}{end}"));
    let te = |value: &str| post(&format!("Transfer-Encoding: {value}\r\n"), &chunks);
    let attempts: Vec<(&str, Vec<u8>, Fate)> = vec![
        ("as it should be", post(&length, &body), Both),
        ("no space, other case", te("CHUNKED"), Served),
        ("a tab", te("\tchunked"), Served),
        ("a vertical tab", te("\u{b}chunked"), Closed),
        ("a coding before", te("gzip, chunked"), Refused("400")),
        ("chunked twice", te("chunked, chunked"), Refused("400")),
        ("an empty coding before", te(", chunked"), Refused("400")),
        ("an empty coding after", te("chunked,"), Closed),
        ("in quotes", te("\"chunked\""), Closed),
        ("with a parameter", te("chunked;q=1"), Closed),
        ("with a tail", te("chunked\u{1}"), Closed),
        (
            "chunks in 1.0",
            b"POST /api/chat HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".into(),
            Closed,
        ),
        ("a length and chunks", post(&format!("{length}{CHUNKED}"), &chunks), Closed),
        ("another name for it", post(&format!("Transfer_Encoding: chunked\r\n{length}"), &body), Served),
        ("the same length twice", post(&format!("{length}{length}"), &body), Served),
        ("the same length twice in one line", post(&format!("Content-Length: {n}, {n}\r\n"), &body), Served),
        ("a length with a nought before it", post(&format!("Content-Length: 0{n}\r\n"), &body), Both),
        ("a wish for another protocol", post(&format!("Connection: upgrade\r\nUpgrade: h2c\r\n{length}"), &body), Both),
        ("an expectation that nobody knows", post(&format!("Expect: 200-ok\r\n{length}"), &body), Served),
        ("a header of every hop for one alone", post(&format!("Connection: host\r\n{length}"), &body), Refused("400")),
        (
            "many headers for one hop",
            post(&format!("Connection: a,b,c,d,e,f,g,h,i,j,k\r\n{length}"), &body),
            Refused("400"),
        ),
        (
            "a body of HEAD whose length is said twice",
            format!("HEAD /api/tags HTTP/1.1\r\nHost: x\r\nContent-Length: {n}, {n}\r\n\r\n{body}").into(),
            Refused("400"),
        ),
        ("a body of HEAD", format!("HEAD /api/tags HTTP/1.1\r\nHost: x\r\n{length}\r\n{body}").into(), Refused("400")),
        ("two lengths", post(&format!("{length}Content-Length: 3\r\n"), &body), Closed),
        ("a length in hex", post(&format!("Content-Length: 0x{n:x}\r\n"), &body), Closed),
        ("a length below nothing", post("Content-Length: -1\r\n", &body), Closed),
        ("a length beyond numbers", post("Content-Length: 18446744073709551616\r\n", &body), Closed),
        ("no length at all", post("Content-Length: \r\n", &body), Closed),
        ("a fraction", post(&format!("Content-Length: {n}.0\r\n"), &body), Closed),
        ("no framing", post("", &body), Refused("400")),
        ("a folded line", post(&format!("{length}X: a\r\n b\r\n"), &body), Closed),
        ("a folded framing", post("Transfer-Encoding:\r\n chunked\r\n", &chunks), Closed),
        ("a carriage return alone", post(&format!("X: a\r{length}"), &body), Closed),
        ("a nul in a value", post(&format!("X: a\0b\r\n{length}"), &body), Closed),
        ("a nul in a name", post(&format!("X\0: a\r\n{length}"), &body), Closed),
        ("no name", post(&format!(": a\r\n{length}"), &body), Closed),
        ("no colon", post(&format!("abc\r\n{length}"), &body), Closed),
        ("a blank before the colon", post(&format!("Content-Length : {n}\r\n"), &body), Closed),
        ("a host in a host", post(&format!("Host: y\r\n{length}"), &body), Closed),
        (
            "line feeds in the head",
            format!("POST /api/chat HTTP/1.1\nHost: x\nContent-Length: {n}\n\n{body}").into(),
            Refused("400"),
        ),
        ("a chunk's extension", in_chunk(&format!("{n:x};a=\"b\"\r\n"), "\r\n0\r\n\r\n"), Served),
        (
            "an extension without an end",
            in_chunk(&format!("{n:x};{}\r\n", "a".repeat(200_000)), "\r\n0\r\n\r\n"),
            Refused("400"),
        ),
        // Read to the line's true end, as most do; what then follows in the same breath is no request in any case.
        ("a line feed in an extension", in_chunk(&format!("{n:x};a\nb\r\n"), "\r\n0\r\n\r\n"), Served),
        ("a carriage return in an extension", in_chunk(&format!("{n:x};\ra\r\n"), "\r\n0\r\n\r\n"), Refused("400")),
        ("line feeds between chunks", in_chunk(&format!("{n:x}\n"), "\n0\n\n"), Refused("400")),
        ("a size with 0x", in_chunk(&format!("0x{n:x}\r\n"), "\r\n0\r\n\r\n"), Refused("400")),
        ("a size with a sign", in_chunk(&format!("+{n:x}\r\n"), "\r\n0\r\n\r\n"), Refused("400")),
        ("a blank before a size", in_chunk(&format!(" {n:x}\r\n"), "\r\n0\r\n\r\n"), Refused("400")),
        ("a size beyond numbers", in_chunk("ffffffffffffffff\r\n", "\r\n0\r\n\r\n"), Refused("400")),
        ("a size that overflows", in_chunk(&format!("10000000000000000{n:x}\r\n"), "\r\n0\r\n\r\n"), Refused("400")),
        ("a size of noughts", in_chunk(&format!("{}{n:x}\r\n", "0".repeat(200_000)), "\r\n0\r\n\r\n"), Refused("400")),
        ("a size that is too small", in_chunk(&format!("{:x}\r\n", n - 1), "\r\n0\r\n\r\n"), Refused("400")),
        ("no line end after a chunk", in_chunk(&format!("{n:x}\r\n"), "0\r\n\r\n"), Refused("400")),
        ("something after a chunk", in_chunk(&format!("{n:x}\r\n"), "XX0\r\n\r\n"), Refused("400")),
        ("a framing in the trailer", in_chunk(&format!("{n:x}\r\n"), "\r\n0\r\nContent-Length: 9\r\n\r\n"), Served),
        (
            "a trailer without an end",
            in_chunk(&format!("{n:x}\r\n"), &format!("\r\n0\r\nX: {}\r\n\r\n", "a".repeat(200_000))),
            Refused("400"),
        ),
        ("a blank before the line", [b" ".to_vec(), post(&length, &body)].concat(), Closed),
        ("a third word", "POST /api/chat x HTTP/1.1\r\nHost: x\r\n\r\n".into(), Closed),
        ("HTTP 3", "POST /api/chat HTTP/3\r\nHost: x\r\n\r\n".into(), Closed),
        ("no version", "POST /api/chat\r\n\r\n".into(), Closed),
    ];
    for (what, bytes, fate) in attempts {
        let before = single.node.count();
        let smuggled = format!("POST /api/generate HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{length}\r\n{body}");

        let said = said_to(&single, &[&bytes, smuggled.as_bytes()].concat()).await;

        let (statuses, seen) = (statuses(&said), single.node.count() - before);
        assert!(statuses.len() <= 1 || matches!(fate, Both), "{what}: {said}");
        match fate {
            Both => assert_eq!((&statuses[..], seen), (&["200", "200"][..], 2), "{what}: {said}"),
            Served => assert_eq!((&statuses[..], seen), (&["200"][..], 1), "{what}: {said}"),
            Refused(status) => assert_eq!((&statuses[..], seen), (&[status][..], 0), "{what}: {said}"),
            Closed => {
                assert!(seen == 0 && statuses.iter().all(|status| matches!(*status, "400" | "404")), "{what}: {said}")
            }
        }
        if seen == 1 {
            let record = single.node.request(before).await;
            assert_eq!(record.path, "/api/chat", "{what}");
            assert_eq!(record.head.count("content-length") + record.head.count("transfer-encoding"), 1, "{what}");
            assert_eq!(record.body, body.as_bytes(), "{what}");
        }
    }
    bystander.was_served().await;
}

#[tokio::test]
async fn sec_03_no_spelling_of_a_path_leads_elsewhere() {
    let single = single().await;
    let bystander = Bystander::of(&single.gate).await;
    let body = body();
    let blob = format!("/api/blobs/sha256:{}", "0a".repeat(32));
    let nowhere = [
        "//api/chat",
        "/api//chat",
        "/./api/chat",
        "/api/./chat",
        "/api/chat/",
        "/api/chat/.",
        "/API/chat",
        "/api/Chat",
        "/%2e%2e/api/chat",
        "/api/%2e%2e/api/chat",
        "/api%2fchat",
        "/%61pi/chat",
        "/api/c%68at",
        "/api/chat%00",
        "/api/chat%20",
        "/api/chat;x=1",
        "/api/chat%3fx",
        "/\\api\\chat",
        "/api\\chat",
        "/api/../fleet/status",
        "/fleet/status",
        "/fleet/reload",
        "/metrics",
        "/fleet/nodes/n1/drain",
        "/v1/../fleet/reload",
        "//127.0.0.1:9435/fleet/status",
        "http://x//api/chat",
        "http://x/fleet/reload",
        "http://x/metrics",
        "/api/%64elete",
        "//api/delete",
        "/v1/../api/delete",
        "/api/x/..%2fdelete",
        "/API/delete",
        "/api/delete;x",
        "/slots",
        "/props",
        "/slots/0?action=erase",
        "/lora-adapters",
        "/server_info",
        "/get_server_info",
        "/flush_cache",
        "/update_weights_from_disk",
        "/start_profile",
        "/sleep",
        "/wake_up",
        "/collective_rpc",
        "/v1/load_lora_adapter",
        "/pause",
        "/reset_prefix_cache",
        "/tokenize",
        "/detokenize",
        "/docs",
        "/openapi.json",
        "/key/generate",
        "/key/info",
        "/model/new",
        "/config/update",
        "/v1/models/load",
        "/models/load",
        "/api/me",
        "/api/signout",
        "/v1/models/../../fleet/config",
        "/v1/models/%2e%2e%2fmetrics",
    ];
    for path in nowhere {
        for method in ["POST", "GET", "DELETE", "PUT"] {
            let text = format!(
                "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            let said = said_to(&single, text.as_bytes()).await;
            let status = statuses(&said);
            assert!(matches!(status[..], ["404"] | ["405"] | ["400"]), "{method} {path}: {said}");
        }
    }
    for (method, path) in [("DELETE", "/api/delete"), ("POST", "/api/pull"), ("POST", "/api/create"), ("POST", &blob)] {
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let said = said_to(&single, text.as_bytes()).await;
        assert!(matches!(statuses(&said)[..], ["403"] | ["404"]), "{method} {path}: {said}");
    }
    for target in [
        "http://127.0.0.1:1/api/delete",
        "http://me:pass@x/api/chat",
        "http://x:99999/api/chat",
        "http:///api/chat",
        "127.0.0.1:1",
        "http://x",
        "*",
        "x/api/chat",
        "",
        "?",
        "#",
        "/api/ch\0at",
        "/api/chat\u{7f}",
    ] {
        for method in ["POST", "CONNECT", "TRACE", "OPTIONS", "PRI"] {
            let said = said_to(
                &single,
                format!("{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes(),
            )
            .await;
            let refused = |status: &&str| ["400", "404", "405"].contains(status);
            assert!(statuses(&said).iter().all(refused), "{method} {target}: {said}");
        }
    }
    assert_eq!(single.node.count(), 0);

    // What is taken goes to the very path that was judged, without a query that an engine may know.
    for target in ["/api/chat?x=/../../slots", "/api/chat?action=erase", "http://elsewhere/api/chat", "/api/chat#x"] {
        let host = if target.starts_with("http") { "elsewhere" } else { "x" };
        let text = format!(
            "POST {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let before = single.node.count();
        let said = said_to(&single, text.as_bytes()).await;
        assert_eq!(statuses(&said), ["200"], "{target}: {said}");
        let record = single.node.request(before).await;
        assert_eq!(
            (record.path.as_str(), record.head.get("host")),
            ("/api/chat", Some(single.node.address().to_string().as_str()))
        );
    }
    bystander.was_served().await;
}

#[tokio::test]
async fn a_head_beyond_what_engines_take_makes_no_node_look_broken() {
    let single = single().await;
    let bystander = Bystander::of(&single.gate).await;
    let body = body();
    let length = format!("Content-Length: {}\r\n", body.len());
    let many = |count: usize| (0..count).map(|n| format!("X-{n}: a\r\n")).collect::<String>();
    for (what, headers, expected) in [
        ("30 KB in one header", format!("X: {}\r\n", "a".repeat(30_000)), "200"),
        ("40 KB in one header", format!("X: {}\r\n", "a".repeat(40_000)), "431"),
        ("900 KB in one header", format!("X: {}\r\n", "a".repeat(900_000)), "431"),
        ("200 headers", many(200), "200"),
        ("300 headers", many(300), "400"),
        ("50,000 headers", many(50_000), "400"),
        ("2 MB in one header", format!("X: {}\r\n", "a".repeat(2_000_000)), "400"),
    ] {
        let before = single.node.count();
        let said = said_to(&single, &post(&format!("Connection: close\r\n{headers}{length}"), &body)).await;
        // Those that are read for nothing may be cut off before they have read why.
        let cut = said.is_empty() && expected == "400";
        assert!(cut || statuses(&said) == [expected], "{what}: {said:.200}");
        assert_eq!(single.node.count() - before, usize::from(expected == "200"), "{what}");
    }
    for path in [format!("/api/chat?{}", "a".repeat(40_000)), format!("/v1/models/{}", "a".repeat(60_000))] {
        let said =
            said_to(&single, format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()).await;
        assert!(matches!(statuses(&said)[..], ["431"] | ["400"]), "{said:.200}");
    }
    bystander.was_served().await;
}
