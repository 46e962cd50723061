//! What each limit of time is for, and what it is not for.

use std::time::{Duration, Instant};

use crate::client::Conn;
use crate::gate::{Gate, Settings};
use crate::rig::{Single, finished, node};
use crate::talk::{Dialect, Talk};
use crate::upstream::{Hold, Script};

fn talk(dialect: Dialect) -> Talk {
    Talk::about(dialect, "moss")
}

async fn pause(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

#[tokio::test]
async fn tmo_01_a_first_byte_may_take_longer_than_anything_else() {
    let single = Single::with("timeouts: {connect: 200ms, first_byte: 30s, idle: 300ms, client_write: 300ms}").await;
    let hold = Hold::new();
    single.node.next(Script::held(&hold).then_usual());
    let request = talk(Dialect::OpenAi).ask();
    let mut conn = single.gate.connect().await;
    conn.send(&request).await;
    single.node.request(0).await;

    pause(1_500).await;
    hold.open();

    assert_eq!(conn.reply(&request).await.status, 200);
    assert_eq!(single.node.count(), 1);
}

#[tokio::test]
async fn tmo_01_an_address_that_swallows_connections_costs_the_connect_limit() {
    let mut hole = node("hole").await;
    let yaml = "timeouts: {connect: 300ms, first_byte: 60s}\nhealth: {interval: 1h}\ntelemetry: {interval: 1h, stale_after: 1h}";
    let gate = Gate::start(&Settings::over(&[&hole]).more(yaml)).await;
    hole.kill().await;
    let _swallowing = hole.swallow().await;

    let asked = Instant::now();
    let alone = gate.send(&talk(Dialect::OpenAi).ask()).await;

    assert_eq!(alone.status, 502);
    assert!(asked.elapsed() < Duration::from_secs(5), "after {:?}", asked.elapsed());
}

#[tokio::test]
async fn tmo_02_an_answer_that_flows_may_take_as_long_as_it_takes() {
    let limits =
        "timeouts: {connect: 300ms, first_byte: 800ms, idle: 800ms, client_write: 800ms}\nlimits: {header_read: 1s}";
    for dialect in Dialect::BOTH {
        let single = Single::with(limits).await;
        let hold = Hold::new();
        let mut script = dialect.stream();
        for n in 0..12 {
            script = script.chunk(dialect.frame(&format!("{n} "))).hold(&hold);
        }
        single.node.next(script.chunk(dialect.last_frame()).finish());
        let mut reply = single.gate.send(&talk(dialect).ask()).await;
        for n in 0..12 {
            assert_eq!(reply.expect_piece().await, dialect.frame(&format!("{n} ")), "{dialect:?}");
            pause(200).await;
            hold.release(1);
        }
        assert_eq!(reply.whole().await, dialect.last_frame(), "{dialect:?}: longer than each limit, and whole");
    }
}

#[tokio::test]
async fn tmo_03_a_pause_within_the_limit_is_waited_for_and_a_longer_one_is_told() {
    for dialect in Dialect::BOTH {
        let single = Single::with("timeouts: {idle: 1s}").await;
        let hold = Hold::new();
        let script = dialect.stream().chunk(dialect.frame("a")).hold(&hold).chunk(dialect.frame("b"));
        single.node.next(script.hold(&Hold::new()));
        let mut reply = single.gate.send(&talk(dialect).ask()).await;
        reply.expect_piece().await;
        pause(600).await;
        hold.open();
        assert_eq!(reply.expect_piece().await, dialect.frame("b"), "{dialect:?}");

        let silent = Instant::now();
        let (rest, _) = reply.rest().await;

        assert!(silent.elapsed() >= Duration::from_millis(900), "{dialect:?}: after {:?}", silent.elapsed());
        let text = String::from_utf8_lossy(&rest);
        assert!(text.contains("\"error\""), "{dialect:?}: {text}");
        single.node.peer_gone(0).await;
        single.gate.idle().await;
    }
}

#[tokio::test]
async fn tmo_05_a_request_s_head_that_dribbles_is_not_waited_for() {
    let single = Single::with("limits: {header_read: 1s}").await;
    let heads = ["", "POST /api/chat HTTP/1.1\r\nHost: x\r\nX-Long: "];
    for head in heads {
        let mut conn = single.gate.connect().await;
        conn.write(head.as_bytes()).await;
        let began = Instant::now();
        let dribbling = async {
            // One byte at a time, each well within any limit of a single read.
            while conn.try_write(b"a", Duration::from_millis(100)).await {
                pause(50).await;
                assert!(began.elapsed() < Duration::from_secs(8), "still open");
            }
        };
        dribbling.await;
        assert!(began.elapsed() >= Duration::from_millis(900), "closed after {:?}", began.elapsed());
    }
    assert_eq!(single.node.count(), 0);
}

#[tokio::test]
async fn tmo_05_a_connection_that_says_nothing_is_closed_and_a_kept_one_may_pause() {
    let single = Single::with("limits: {header_read: 1s}").await;
    let mut mute: Conn = single.gate.connect().await;
    let request = talk(Dialect::OpenAi).ask();
    let kept = single.gate.connect().await.exchange(&request).await.reuse().await;

    assert!(mute.is_closed().await);
    pause(1_200).await;

    assert_eq!(kept.exchange(&request).await.status, 200, "between two requests there is time");
}

#[tokio::test]
async fn tmo_05_an_answer_s_head_that_dribbles_is_504_at_the_first_byte_s_limit() {
    let single = Single::with("timeouts: {first_byte: 1s}").await;
    let hold = Hold::new();
    let mut script = Script::raw("HTTP/1.1 200 OK\r\nX-Long: ");
    for _ in 0..200 {
        script = script.hold(&hold).chunk("a");
    }
    single.node.next(script);
    let dribbling = tokio::spawn(async move {
        loop {
            pause(50).await;
            hold.release(1);
        }
    });

    let asked = Instant::now();
    let reply = finished(&single.gate, &talk(Dialect::OpenAi)).await;

    assert_eq!(reply.status, 504);
    assert!(asked.elapsed() < Duration::from_secs(5), "after {:?}", asked.elapsed());
    single.node.peer_gone(0).await;
    dribbling.abort();
}
