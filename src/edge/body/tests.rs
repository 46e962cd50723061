//! Bodies through a real proxy, and what is refused before they are read.

use std::io::Write;
use std::time::Instant;

use super::*;
use crate::edge::testbed::{Act, Client, Framing, Gate, Upstream, body_of, header, limits, post};

/// A proxy with one working upstream and these limits.
async fn gate_with(limits: BodyLimits) -> (Client, Upstream) {
    let upstream = Upstream::start(Act::Ok).await;
    let gate = Gate { limits, ..Gate::to(&[upstream.address]) };
    (Client::connect(gate.serve().await).await, upstream)
}

#[tokio::test]
async fn one_byte_chunks_with_extensions_and_a_trailer_are_one_body() {
    let (mut client, mut upstream) = gate_with(limits()).await;
    let body = body_of(20_000);
    let mut request = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for byte in &body {
        request.extend([b"1;note=x\r\n", &[*byte][..], b"\r\n"].concat());
    }
    request.extend(b"0\r\nx-sum: 1\r\n\r\n");
    assert_eq!(client.ask(&request).await.0, 200);
    let head = upstream.expect_body(&body);
    assert_eq!(header(&head, "content-length"), Some("20000"));
    assert_eq!(header(&head, "transfer-encoding"), None);
}

#[tokio::test]
async fn a_413_is_readable_after_a_long_upload() {
    let body = vec![b'x'; 30 << 20];
    for framing in [Framing::Length, Framing::Chunks] {
        let request = post(&body, framing, "");
        for _ in 0..5 {
            let (mut client, mut upstream) = gate_with(limits()).await;
            let (status, _) = client.ask(&request).await;
            assert_eq!(status, 413, "{framing:?}");
            assert!(upstream.is_untouched());
        }
    }
}

#[tokio::test]
async fn the_limit_itself_is_allowed() {
    let tight = BodyLimits { body_bytes: 100_000, ..limits() };
    for framing in [Framing::Length, Framing::Chunks] {
        let (mut client, _upstream) = gate_with(tight.clone()).await;
        assert_eq!(client.ask(&post(&body_of(100_000), framing, "")).await.0, 200);
        let (mut client, _upstream) = gate_with(tight.clone()).await;
        assert_eq!(client.ask(&post(&body_of(100_001), framing, "")).await.0, 413);
    }
}

#[tokio::test]
async fn an_expectation_is_answered_and_the_connection_kept() {
    let (mut client, mut upstream) = gate_with(limits()).await;
    let body = body_of(20_000);
    let request = post(&body, Framing::Length, "expect: 100-Continue\r\n");
    let head_bytes = request.len() - body.len();
    for _ in 0..2 {
        let started = Instant::now();
        assert_eq!(client.ask(&request[..head_bytes]).await.0, 100);
        assert!(started.elapsed() < Duration::from_millis(500), "{:?}", started.elapsed());
        assert_eq!(client.ask(&request[head_bytes..]).await.0, 200);
        assert_eq!(header(&upstream.expect_body(&body), "expect"), None);
    }
}

#[tokio::test]
async fn no_100_is_sent_where_it_is_not_wanted() {
    let too_large = "expect: 100-continue\r\ncontent-length: 999999999\r\n\r\n";
    let unknown = "expect: 100-continue\r\ncontent-encoding: zig\r\ncontent-length: 9\r\n\r\n";
    for (rest, expected) in [(too_large, 413), (unknown, 415)] {
        let (mut client, _upstream) = gate_with(limits()).await;
        let started = Instant::now();
        let head = format!("POST / HTTP/1.1\r\nhost: x\r\n{rest}");
        assert_eq!(client.ask(head.as_bytes()).await.0, expected);
        assert!(started.elapsed() < Duration::from_secs(1));
    }

    let (mut client, _upstream) = gate_with(limits()).await;
    let old = b"POST / HTTP/1.0\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n{}";
    assert_eq!(client.ask(old).await.0, 200);
    let (mut client, _upstream) = gate_with(limits()).await;
    let empty = post(b"", Framing::Length, "expect: 100-continue\r\n");
    assert_eq!(client.ask(&empty).await.0, 200);
}

#[tokio::test]
async fn a_trickle_runs_into_the_deadline() {
    let hasty = BodyLimits { read_deadline: Duration::from_millis(200), ..limits() };
    let (mut client, _upstream) = gate_with(hasty).await;
    client.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n").await;
    let started = Instant::now();
    let (mut reading, mut writing) = client.stream.split();
    let trickle = async {
        loop {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut writing, b"x").await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let mut answer = [0; 12];
    tokio::select! {
        () = trickle => {}
        read = tokio::io::AsyncReadExt::read_exact(&mut reading, &mut answer) => {
            read.unwrap();
        }
    }
    assert_eq!(&answer, b"HTTP/1.1 408");
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn memory_is_booked_while_a_body_is_held_and_given_back_after() {
    let scarce = BodyLimits { memory: Budget::new(1 << 20), ..limits() };
    let held = scarce.memory.adopt(vec![0; 1_000_000]).unwrap();
    let (mut client, _upstream) = gate_with(scarce.clone()).await;
    assert_eq!(client.ask(&post(&body_of(200_000), Framing::Length, "")).await.0, 503);

    drop(held);
    let (mut client, _upstream) = gate_with(scarce.clone()).await;
    assert_eq!(client.ask(&post(&body_of(200_000), Framing::Length, "")).await.0, 200);
    drop(client);
    let returned = async {
        while scarce.memory.free_bytes() < 1 << 20 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), returned).await.unwrap();
}

#[tokio::test]
async fn a_lying_length_books_no_more_than_the_first_piece() {
    let plenty = limits();
    let (mut client, _upstream) = gate_with(plenty.clone()).await;
    client.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 8000000\r\n\r\n{").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!((64 << 20) - plenty.memory.free_bytes(), FIRST_BYTES);
}

async fn check_coded(plain: &[u8], coded: &[u8], coding: &str) {
    let (mut client, mut upstream) = gate_with(limits()).await;
    let request = post(coded, Framing::Length, &format!("content-encoding: {coding}\r\n"));
    assert_eq!(client.ask(&request).await.0, 200, "{coding}");
    let head = upstream.expect_body(plain);
    assert_eq!(header(&head, "content-encoding"), None);
    assert_eq!(header(&head, "content-length"), Some(plain.len().to_string().as_str()));
}

#[tokio::test]
async fn coded_bodies_are_sent_on_plain() {
    let plain = br#"{"model":"moss:7b","prompt":"again "}"#.repeat(100_000);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).unwrap();
    let gzip = gzip.finish().unwrap();
    check_coded(&plain, &zstd::encode_all(&plain[..], 1).unwrap(), "zstd").await;
    check_coded(&plain, &zstd::encode_all(&gzip[..], 1).unwrap(), "gzip, zstd").await;
    check_coded(&plain, &gzip, "gzip").await;
    check_coded(&plain, &plain, "identity").await;
}

#[tokio::test]
async fn bombs_and_broken_codings_are_the_clients_fault() {
    let bomb = zstd::encode_all(&vec![0; 200 << 20][..], 1).unwrap();
    for (body, coding, expected) in [(&bomb[..], "zstd", 413), (b"{}", "gzip", 400), (b"{}", "br", 415)] {
        let plenty = limits();
        let (mut client, mut upstream) = gate_with(plenty.clone()).await;
        let request = post(body, Framing::Length, &format!("content-encoding: {coding}\r\n"));
        assert_eq!(client.ask(&request).await.0, expected, "{coding}");
        assert!(upstream.is_untouched());
        assert_eq!(plenty.memory.free_bytes(), 64 << 20, "{coding}");
    }
}

#[tokio::test]
async fn chunks_that_are_none_are_a_400() {
    let (mut client, _upstream) = gate_with(limits()).await;
    let request = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n";
    assert_eq!(client.ask(request).await.0, 400);
}
