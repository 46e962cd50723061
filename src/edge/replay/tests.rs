//! The replay matrix: sizes, framings and failures, through a real proxy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pingora::http::RequestHeader;
use pingora_core::connectors::http::Connector;
use pingora_core::protocols::http::client::HttpSession;
use pingora_core::upstreams::peer::HttpPeer;

use super::*;
use crate::edge::testbed::{Act, Client, Framing, Gate, Seen, Upstream, body_of, header, post, refusing};

/// Below, around and above Pingora's 64 KiB, and large enough to fill every socket buffer.
const SIZES: [usize; 7] = [0, 1000, 65_535, 65_536, 65_537, 150_000, 5_000_000];

/// What the first of two upstreams does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Refuses,
    Does(Act),
}

/// One request through a proxy whose second upstream always works.
async fn check_delivery(first: First, bytes: usize, framing: Framing) {
    let case = format!("{first:?}, {bytes} bytes, {framing:?}");
    let body = body_of(bytes);
    let mut second = Upstream::start(Act::Ok).await;
    let mut tried = match first {
        First::Refuses => None,
        First::Does(act) => Some(Upstream::start(act).await),
    };
    let first_address = match &tried {
        Some(upstream) => upstream.address,
        None => refusing().await,
    };
    let gate = Gate::to(&[first_address, second.address]).serve().await;

    let (status, head) = Client::connect(gate).await.ask(&post(&body, framing, "")).await;

    assert_eq!(status, 200, "{case}");
    let attempts = if first == First::Does(Act::Ok) { "1" } else { "2" };
    assert_eq!(header(&head, "x-attempts"), Some(attempts), "{case}");
    let served = if attempts == "1" { tried.as_mut().unwrap() } else { &mut second };
    let request = served.expect_body(&body);
    assert_eq!(header(&request, "content-length"), Some(bytes.to_string().as_str()), "{case}");
    assert_eq!(header(&request, "transfer-encoding"), None, "{case}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_body_arrives_whole_however_the_first_attempt_ends() {
    let firsts = [First::Does(Act::Ok), First::Refuses, First::Does(Act::Close), First::Does(Act::Status(503))];
    for first in firsts {
        for bytes in SIZES {
            for framing in [Framing::Length, Framing::Chunks] {
                check_delivery(first, bytes, framing).await;
            }
        }
    }
}

/// Sends a POST over cleartext HTTP/2. The connector must outlive the session.
async fn post_h2(connector: &Connector, gate: SocketAddr, body: &[u8]) -> HttpSession {
    let mut peer = HttpPeer::new(gate, false, String::new());
    peer.options.set_http_version(2, 2);
    let (mut session, _) = connector.get_http_session(&peer).await.unwrap();
    let mut request = RequestHeader::build("POST", b"/api/chat", None).unwrap();
    request.insert_header("host", "x").unwrap();
    session.write_request_header(Box::new(request)).await.unwrap();
    session.write_request_body(body.to_vec().into(), true).await.unwrap();
    session
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_clients_are_replayed_too() {
    for bytes in SIZES {
        let body = body_of(bytes);
        let busy = Upstream::start(Act::Status(503)).await;
        let mut free = Upstream::start(Act::Ok).await;
        let gate = Gate::to(&[busy.address, free.address]).serve().await;

        let connector = Connector::new(None);
        let mut session = post_h2(&connector, gate, &body).await;
        session.read_response_header().await.unwrap();

        let response = session.response_header().unwrap();
        assert_eq!(response.status, 200, "{bytes} bytes");
        assert_eq!(response.headers["x-attempts"], "2", "{bytes} bytes");
        let head = free.expect_body(&body);
        assert_eq!(header(&head, "content-length"), Some(bytes.to_string().as_str()));
    }
}

#[tokio::test]
async fn a_head_that_waits_for_its_first_byte_comes_whole_over_either_http() {
    let slow = Upstream::start(Act::Slow(Duration::ZERO, Duration::from_millis(200))).await;
    let mut gate = Gate::to(&[slow.address]);
    gate.delivery.holds_head = true;
    let gate = gate.serve().await;
    let body = body_of(1000);

    let mut client = Client::connect(gate).await;
    for _ in 0..2 {
        assert_eq!(client.ask(&post(&body, Framing::Length, "")).await.0, 200, "and the connection goes on");
    }
    let connector = Connector::new(None);
    let mut session = post_h2(&connector, gate, &body).await;
    session.read_response_header().await.unwrap();
    assert_eq!(session.response_header().unwrap().status, 200);
    assert_eq!(session.read_response_body().await.unwrap().as_deref(), Some(&b"done"[..]));
}

#[tokio::test]
async fn an_attempt_whose_head_waits_can_still_be_moved() {
    let slow = Upstream::start(Act::Slow(Duration::ZERO, Duration::from_secs(30))).await;
    let second = Upstream::start(Act::Ok).await;
    let mut gate = Gate::to(&[slow.address, second.address]);
    gate.delivery.holds_head = true;
    let journal = Arc::clone(&gate.journal);
    let mut client = Client::connect(gate.serve().await).await;
    client.write(&post(&body_of(1000), Framing::Length, "")).await;
    tokio::time::sleep(Duration::from_millis(150)).await;

    journal.movers.lock()[0].move_away();

    let (status, head) = client.answer().await;
    assert_eq!((status, header(&head, "x-attempts")), (200, Some("2")));
    assert_eq!(*journal.cuts.lock(), [Cut::MovedAway]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_http2_client_that_resets_during_prefill_frees_the_upstream() {
    for bytes in [1000, 400_000] {
        let mut mute = Upstream::start(Act::Mute).await;
        let gate = Gate::to(&[mute.address]).serve().await;
        let connector = Connector::new(None);
        let mut session = post_h2(&connector, gate, &body_of(bytes)).await;
        assert!(matches!(mute.next().await, Seen::Request { .. }));

        let left = Instant::now();
        session.shutdown().await;
        assert_eq!(mute.next().await, Seen::Left);
        assert!(left.elapsed() < Duration::from_secs(1), "{bytes} bytes: {:?}", left.elapsed());
    }
}

#[tokio::test]
async fn one_connection_carries_many_replayed_requests() {
    let busy = Upstream::start(Act::Status(503)).await;
    let mut free = Upstream::start(Act::Ok).await;
    let gate = Gate::to(&[busy.address, free.address]).serve().await;
    let mut client = Client::connect(gate).await;
    for bytes in [1000, 0, 150_000, 1000] {
        for framing in [Framing::Length, Framing::Chunks] {
            let body = body_of(bytes);
            assert_eq!(client.ask(&post(&body, framing, "")).await.0, 200, "{bytes} {framing:?}");
            free.expect_body(&body);
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_during_prefill_frees_the_upstream() {
    // 400 KB is where the stock proxy misses it every time.
    for bytes in [1000, 150_000, 400_000, 5_000_000] {
        let mut mute = Upstream::start(Act::Mute).await;
        let gate = Gate::to(&[mute.address]).serve().await;
        let mut client = Client::connect(gate).await;
        client.write(&post(&body_of(bytes), Framing::Length, "")).await;
        assert!(matches!(mute.next().await, Seen::Request { .. }));

        let left = Instant::now();
        drop(client);
        assert_eq!(mute.next().await, Seen::Left);
        assert!(left.elapsed() < Duration::from_secs(1), "{bytes} bytes: {:?}", left.elapsed());
    }
}

#[tokio::test]
async fn an_attempt_without_a_header_in_time_is_cut() {
    for bytes in SIZES {
        let mute = Upstream::start(Act::Mute).await;
        let mut second = Upstream::start(Act::Ok).await;
        let mut gate = Gate::to(&[mute.address, second.address]);
        gate.patience.first_byte = Some(Duration::from_millis(100));
        let journal = Arc::clone(&gate.journal);
        let body = body_of(bytes);
        let mut client = Client::connect(gate.serve().await).await;

        let (status, head) = client.ask(&post(&body, Framing::Length, "")).await;

        assert_eq!((status, header(&head, "x-attempts")), (200, Some("2")), "{bytes} bytes");
        assert_eq!(*journal.cuts.lock(), [Cut::FirstByteLate]);
        second.expect_body(&body);
        assert_eq!(client.ask(&post(&body, Framing::Length, "")).await.0, 200, "kept alive");
    }
}

#[tokio::test]
async fn a_pause_between_attempts_is_not_cut_and_still_watches_the_client() {
    let mute = Upstream::start(Act::Mute).await;
    let second = Upstream::start(Act::Ok).await;
    let mut gate = Gate::to(&[mute.address, second.address]);
    gate.patience.first_byte = Some(Duration::from_millis(50));
    gate.pause = Duration::from_millis(300);
    let journal = Arc::clone(&gate.journal);
    let gate = gate.serve().await;
    let request = post(&body_of(150_000), Framing::Length, "");

    let (status, head) = Client::connect(gate).await.ask(&request).await;
    assert_eq!((status, header(&head, "x-attempts")), (200, Some("2")));

    let mut leaver = Client::connect(gate).await;
    leaver.write(&request).await;
    // The first attempt was cut after 350 ms; the second is not due before 650.
    tokio::time::sleep(Duration::from_millis(450)).await;
    drop(leaver);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(*journal.left_in_pause.lock(), 1);
}

#[tokio::test]
async fn once_the_header_is_there_the_first_byte_limit_is_over() {
    let at_once = Duration::ZERO;
    let slow = Upstream::start(Act::Slow(at_once, Duration::from_millis(400))).await;
    let mut gate = Gate::to(&[slow.address, refusing().await]);
    gate.patience.first_byte = Some(Duration::from_millis(150));
    let journal = Arc::clone(&gate.journal);
    let request = post(&body_of(1000), Framing::Length, "");
    let (status, head) = Client::connect(gate.serve().await).await.ask(&request).await;
    assert_eq!((status, header(&head, "x-attempts")), (200, Some("1")));
    assert!(journal.cuts.lock().is_empty());
}

#[tokio::test]
async fn a_mover_ends_its_own_attempt_and_no_other() {
    let mut mute = Upstream::start(Act::Mute).await;
    let pause = Duration::from_millis(200);
    let mut slow = Upstream::start(Act::Slow(pause, pause)).await;
    let gate = Gate::to(&[mute.address, slow.address, refusing().await]);
    let journal = Arc::clone(&gate.journal);
    let mut client = Client::connect(gate.serve().await).await;
    client.write(&post(&body_of(150_000), Framing::Length, "")).await;
    mute.next().await;
    let first = journal.movers.lock()[0].clone();

    first.move_away();
    assert!(matches!(slow.next().await, Seen::Request { .. }));
    assert_eq!(mute.next().await, Seen::Left);
    first.move_away();

    let (status, head) = client.answer().await;
    assert_eq!((status, header(&head, "x-attempts")), (200, Some("2")));
    assert_eq!(*journal.cuts.lock(), [Cut::MovedAway]);
}

#[tokio::test]
async fn an_attempt_with_a_header_cannot_be_moved() {
    let slow = Upstream::start(Act::Slow(Duration::ZERO, Duration::from_millis(300))).await;
    let gate = Gate::to(&[slow.address, refusing().await]);
    let journal = Arc::clone(&gate.journal);
    let mut client = Client::connect(gate.serve().await).await;
    client.write(&post(&body_of(1000), Framing::Length, "")).await;
    tokio::time::sleep(Duration::from_millis(150)).await;
    journal.movers.lock()[0].move_away();
    assert_eq!(client.answer().await.0, 200);
    assert!(journal.cuts.lock().is_empty());
}

#[test]
fn no_body_is_cut_into_more_pieces_than_the_pipe_bears() {
    const MIN: usize = PIECE_BYTES_MIN;
    for bytes in [0, 1, MIN, MIN + 1, 3 * MIN, 3 * MIN + 1, 1 << 27, (1 << 27) + 2] {
        assert!(bytes.div_ceil(piece_bytes(bytes)) <= PIECES_MAX, "{bytes}");
    }
}
