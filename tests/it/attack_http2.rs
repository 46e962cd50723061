//! A stranger's attempts at the client port by HTTP/2, frame by frame, plain and over TLS.

use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use crate::attack::body;
use crate::bystander::Bystander;
use crate::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS, PING, PRIORITY, RESET, SETTINGS, WINDOW,
    chat, fields, frame,
};
use crate::gate::{Gate, Settings};
use crate::listen_tls;
use crate::patience::within_time;
use crate::rig::{Single, node};
use crate::tls::Authority;
use crate::upstream::{Hold, Script};

const MIB: u64 = 1 << 20;

/// For a flood to be cut off, and for one that is harmless to have gone on long enough.
const CUT_MAX: Duration = Duration::from_secs(30);
const FLOOD_MAX: Duration = Duration::from_millis(200);

async fn plain(gate: &Gate) -> Frames<TcpStream> {
    Frames::over(TcpStream::connect(gate.address()).await.expect("a connection"), &[]).await
}

#[tokio::test]
async fn heads_that_http_1_cannot_have_reach_no_node() {
    let single = Single::new().await;
    let bystander = Bystander::of(&single.gate).await;
    let body = body();
    let long = "a".repeat(70_000);
    let wrong: Vec<(&str, Vec<(&str, &str)>)> = vec![
        ("a shorter length", vec![("content-length", "5")]),
        ("a longer length", vec![("content-length", "99999")]),
        ("a length below nothing", vec![("content-length", "-1")]),
        ("a coding", vec![("transfer-encoding", "chunked")]),
        ("a connection", vec![("connection", "keep-alive")]),
        ("an upgrade", vec![("upgrade", "websocket")]),
        ("a coding of trailers", vec![("te", "gzip")]),
        ("an upper case name", vec![("X-Up", "a")]),
        ("a line end in a value", vec![("x", "a\r\nb: c")]),
        ("a nul in a value", vec![("x", "a\0b")]),
        ("a blank in a name", vec![("x y", "a")]),
        ("a colon in a name", vec![("x:y", "a")]),
        ("no name", vec![("", "a")]),
        ("another host", vec![("host", "elsewhere")]),
        ("two paths", vec![(":path", "/api/delete")]),
        ("a made-up part", vec![(":made-up", "a")]),
        ("a large head", vec![("x", &long)]),
    ];
    for (what, more) in wrong {
        let mut frames = plain(&single.gate).await;
        let request = [frame(HEADERS, END_HEADERS, 1, &chat(&more)), frame(DATA, END_STREAM, 1, body.as_bytes())];
        // 70 KB are more than one frame may have, which is a fault of its own.
        frames.send(&request.concat()).await;
        let fate = frames.fate().await;
        let refused = fate == Some(HEADERS) && what == "another host";
        assert!(refused || [Some(RESET), Some(GOAWAY), None].contains(&fate), "{what}: {fate:?}");
    }
    for path in ["", "api/chat", "/api/chat\0", "http://x/api/chat", "/api/chat HTTP/1.1\r\nX: y"] {
        let mut frames = plain(&single.gate).await;
        let head = fields(&[(":method", "POST"), (":scheme", "http"), (":authority", "x"), (":path", path)]);
        frames
            .send(&[frame(HEADERS, END_HEADERS, 1, &head), frame(DATA, END_STREAM, 1, body.as_bytes())].concat())
            .await;
        let fate = frames.fate().await;
        assert!([Some(RESET), Some(GOAWAY), None].contains(&fate), "{path:?}: {fate:?}");
    }
    assert_eq!(single.node.count(), 0);
    bystander.was_served().await;
}

/// Sends what `more` makes until the other side has had enough; how much was taken.
async fn flood<S>(frames: &mut Frames<S>, limit: Duration, mut more: impl FnMut() -> Vec<u8>) -> usize
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let (began, mut sent) = (Instant::now(), 0);
    while began.elapsed() < limit {
        let bytes = more();
        if !frames.send(&bytes).await {
            break;
        }
        sent += 1;
        tokio::task::yield_now().await;
    }
    sent
}

async fn floods(gate: &Gate, count: impl Fn() -> usize, connect: impl AsyncFn() -> Frames<crate::attack_http2::Any>) {
    let bystander = Bystander::of_admin(gate).await;
    let open = frame(HEADERS, 0, 1, &chat(&[]));
    let padded = frame(CONTINUATION, 0, 1, &fields(&[("x", &"a".repeat(1000))])).repeat(8);
    let stream = |n: &mut u32| {
        *n += 2;
        *n
    };
    // Cut off: each of them has a limit.
    for (what, start, mut more) in [
        ("CONTINUATION", open.clone(), Box::new(|| padded.clone()) as Box<dyn FnMut() -> Vec<u8>>),
        ("empty CONTINUATION", open.clone(), Box::new(|| frame(CONTINUATION, 0, 1, &[]).repeat(100))),
        ("empty DATA", frame(HEADERS, END_HEADERS, 1, &chat(&[])), Box::new(|| frame(DATA, 0, 1, &[]).repeat(100))),
        ("rapid reset", Vec::new(), {
            let mut n = 1;
            Box::new(move || {
                let n = stream(&mut n);
                [frame(HEADERS, END_HEADERS, n, &chat(&[])), frame(RESET, 0, n, &8_u32.to_be_bytes())].concat()
            })
        }),
        ("made you reset", Vec::new(), {
            let mut n = 1;
            Box::new(move || {
                let n = stream(&mut n);
                [frame(HEADERS, END_HEADERS, n, &chat(&[])), frame(WINDOW, 0, n, &[0; 4])].concat()
            })
        }),
    ] {
        let mut frames = connect().await;
        frames.send(&start).await;
        let sent = flood(&mut frames, CUT_MAX, &mut more).await;
        within_time(Duration::from_secs(10), &format!("{what} to be cut off after {sent}"), frames.ended()).await;
    }
    // Answered or ignored, as fast as the one who sends reads: harmless.
    for (what, bytes) in [
        ("PING", frame(PING, 0, 0, b"12345678")),
        ("SETTINGS", frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0])),
        ("PRIORITY", frame(PRIORITY, 0, 3, &[0, 0, 0, 0, 16])),
        ("WINDOW_UPDATE", frame(WINDOW, 0, 0, &[0, 0, 0, 1])),
        ("an unknown kind", frame(0xbe, 0, 0, b"12345678")),
    ] {
        let mut frames = connect().await;
        flood(&mut frames, FLOOD_MAX, || bytes.repeat(100)).await;
        println!("{what}: still served");
    }
    bystander.saw_memory_grow_at_most(gate, 100 * MIB);
    bystander.was_served().await;
    assert_eq!(count(), 0, "a request that was never finished reached a node");
    gate.idle().await;
}

/// A connection, plain or not.
pub type Any = Box<dyn Stream>;
pub trait Stream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send {}
impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send> Stream for S {}

#[tokio::test]
async fn floods_of_frames_are_cut_off_or_harmless() {
    let single = Single::new().await;
    let connect = async || {
        let stream: Any = Box::new(TcpStream::connect(single.gate.address()).await.expect("a connection"));
        Frames::over(stream, &[]).await
    };
    let bystander = Bystander::of(&single.gate).await;
    floods(&single.gate, || single.node.count(), connect).await;
    bystander.was_served().await;
}

#[tokio::test]
async fn floods_of_frames_over_tls_are_cut_off_or_harmless() {
    let (authority, node) = (Authority::new("ours"), node("n1").await);
    let signed = authority.signs("localhost", 2090);
    let settings = listen_tls::listen(&listen_tls::own(&signed), &listen_tls::upstream(&node));
    let gate = Gate::start(&Settings::raw(&settings)).await;
    let connect = async || {
        let stream: Any = Box::new(listen_tls::connect_http2(&gate, &authority).await);
        Frames::over(stream, &[]).await
    };
    floods(&gate, || node.count(), connect).await;
    let mut client = crate::http2::Http2::over(listen_tls::connect_http2(&gate, &authority).await).await;
    assert_eq!(client.post("/api/chat", &body().into()).await.answered().await.status, 200);
}

#[tokio::test]
async fn clients_that_give_no_room_for_answers_hold_their_places_for_the_write_limit_only() {
    let single = Single::with("timeouts: {client_write: 1s}").await;
    let hold = Hold::new();
    hold.open();
    single.node.always(Script::held(&hold).then_usual());
    let bystander = Bystander::of(&single.gate).await;
    let mut kept = Vec::new();
    for _ in 0..4 {
        let stream = TcpStream::connect(single.gate.address()).await.expect("a connection");
        // A first window of nothing for what is answered.
        let mut frames = Frames::over(stream, &[0, 4, 0, 0, 0, 0]).await;
        for stream in (1..40).step_by(2) {
            let request =
                [frame(HEADERS, END_HEADERS, stream, &chat(&[])), frame(DATA, END_STREAM, stream, body().as_bytes())];
            assert!(frames.send(&request.concat()).await);
        }
        kept.push(frames);
    }
    single.node.request(79).await;
    let parted = async {
        while single.gate.in_flight().await > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within_time(Duration::from_secs(20), "their places to be free", parted).await;
    bystander.was_served().await;
}

#[tokio::test]
async fn a_first_head_that_does_not_come_is_not_waited_for() {
    let single = Single::with("limits: {header_read: 1s}").await;
    let bystander = Bystander::of(&single.gate).await;
    let head = chat(&[]);
    let half = frame(HEADERS, END_HEADERS, 1, &head)[..20].to_vec();
    let cases: [(&str, Vec<u8>, Vec<u8>); 6] = [
        ("nothing after the preface", vec![], vec![]),
        ("half a frame", half, vec![]),
        ("a head without its end", frame(HEADERS, 0, 1, &head), vec![]),
        ("a head that goes on", frame(HEADERS, 0, 1, &head), frame(CONTINUATION, 0, 1, &fields(&[("x", "a")]))),
        ("PING now and then", vec![], frame(PING, 0, 0, b"12345678")),
        ("SETTINGS now and then", vec![], frame(SETTINGS, 0, 0, &[])),
    ];
    for (what, first, more) in cases {
        let mut frames = plain(&single.gate).await;
        let began = Instant::now();
        frames.send(&first).await;
        // Each well within any limit of a single read.
        while !frames.is_over_within(Duration::from_millis(100)).await {
            frames.send(&more).await;
            assert!(began.elapsed() < CUT_MAX, "{what}: still open");
        }
        // CONTINUATION has a limit of its own besides.
        let goes_on = more.get(3) == Some(&CONTINUATION);
        let in_time = began.elapsed() >= Duration::from_millis(900);
        assert!(in_time || goes_on, "{what}: closed after {:?}", began.elapsed());
    }
    assert_eq!(single.node.count(), 0);
    bystander.was_served().await;
}

#[tokio::test]
async fn who_has_asked_in_time_may_pause_and_bodies_that_never_come_are_told_so() {
    let single = Single::with("limits: {header_read: 1s}").await;
    let mut frames = plain(&single.gate).await;
    // Pingora's own limit for connections without a request is far longer.
    frames.send(&frame(HEADERS, END_HEADERS, 1, &chat(&[]))).await;
    let told = within_time(Duration::from_secs(40), "an answer to half a request", frames.fate()).await;
    assert_eq!(told, Some(HEADERS), "408, as over HTTP/1");
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let request = [frame(HEADERS, END_HEADERS, 3, &chat(&[])), frame(DATA, END_STREAM, 3, body().as_bytes())];
    assert!(frames.send(&request.concat()).await);
    assert_eq!(frames.fate().await, Some(HEADERS));
    single.node.request(0).await;
}
