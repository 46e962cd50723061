//! Busy is not broken: a node that has no place is left alone for a while and nothing is held against it.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::Reply;
use crate::gate::{Gate, Settings};
use crate::patience::PATIENCE;
use crate::rig::{Pair, Single, finished, node};
use crate::talk::{Dialect, MODEL, Talk};
use crate::upstream::{Hold, Model, Script, Upstream};

/// What finds no place is refused at once and does not line up.
const NOBODY_WAITS: &str = "admission: {max_queue: 0}";

/// A conversation that nobody has seen.
fn stranger(n: usize) -> Talk {
    Talk::about(Dialect::OpenAi, &format!("{n} is the number of"))
}

fn busy(status: u16) -> Script {
    Script::json(status, &json!({"error": {"message": "busy"}}))
}

async fn ask(gate: &Gate, n: usize) -> Reply {
    finished(gate, &stranger(n)).await
}

fn retry_after(reply: &Reply) -> u64 {
    reply.header("retry-after").and_then(|value| value.parse().ok()).expect("Retry-After")
}

#[tokio::test]
async fn hlt_08_the_latest_of_several_waits_holds() {
    let single = Single::with(NOBODY_WAITS).await;
    let hold = Hold::new();
    let mut waiting = Vec::new();
    for (n, secs) in ["1", "4", "4", "1"].into_iter().enumerate() {
        let answer = busy(429).header("Retry-After", secs);
        single.node.next(Script {
            steps: [Script::held(&hold).steps, answer.steps].concat(),
            before_body: false,
            deaf: false,
        });
        let mut conn = single.gate.connect().await;
        conn.send(&stranger(n).ask()).await;
        single.node.request(n).await;
        waiting.push((n, conn));
    }
    let told = Instant::now();
    hold.open();
    for (n, conn) in waiting {
        assert_eq!(conn.reply(&stranger(n).ask()).await.status, 429, "nobody else has it, so the client is told");
    }

    let refused = ask(&single.gate, 9).await;
    assert_eq!(refused.status, 503);
    assert!((3..=4).contains(&retry_after(&refused)), "{}", retry_after(&refused));
    assert_eq!(single.node.count(), 4, "nothing is sent there meanwhile");
    while ask(&single.gate, 10).await.status != 200 {
        assert!(told.elapsed() < PATIENCE, "it is used again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(told.elapsed() >= Duration::from_millis(3900), "after {:?}", told.elapsed());
    assert_eq!(single.node.count(), 5);
}

#[tokio::test]
async fn hlt_09_all_cooling_says_when_the_first_may_be_asked() {
    let [n1, n2] = [node("n1").await, node("n2").await];
    n1.next(busy(503).header("Retry-After", "9"));
    n2.next(busy(503).header("Retry-After", "4"));
    let gate = Gate::start(&Settings::over(&[&n1, &n2]).more(NOBODY_WAITS)).await;
    assert_eq!(ask(&gate, 0).await.status, 503, "both were asked, and the last answer is told");

    let reply = ask(&gate, 1).await;

    assert_eq!(reply.status, 503);
    assert!((3..=4).contains(&retry_after(&reply)), "{}", retry_after(&reply));
    assert_eq!((n1.count(), n2.count()), (1, 1));
    let status = gate.status().await;
    let model = &status["nodes"][0]["models"][0]["standing"];
    assert_eq!((model["state"].as_str(), model["until_ms"].is_u64()), (Some("cooling"), true), "ops_11 {model}");
}

#[tokio::test]
async fn hlt_11_a_node_that_refuses_fast_is_not_idle() {
    for status in [503, 500] {
        let [n1, n2] = [node("n1").await, node("n2").await];
        let hold = Hold::new();
        n1.always(busy(status));
        n2.always(Script::held(&hold).then_usual());
        let gate = Gate::start(&Settings::over(&[&n1, &n2])).await;
        let mut waiting = Vec::new();
        for n in 0..80 {
            let mut conn = gate.connect().await;
            conn.send(&stranger(n).ask()).await;
            n2.request(n).await;
            waiting.push((n, conn));
            if n >= 8 {
                hold.release(1);
            }
        }
        hold.open();
        for (n, conn) in waiting {
            assert_eq!(conn.reply(&stranger(n).ask()).await.status, 200, "{status}, request {n}");
        }
        assert!(n1.count() <= 8, "{} attempts at the node that says {status}", n1.count());
    }
}

#[tokio::test]
async fn ret_08_retries_do_not_feed_an_overload() {
    let [n1, n2] = [node("n1").await, node("n2").await];
    n1.always(busy(503));
    n2.always(busy(503));
    let gate = Gate::start(&Settings::over(&[&n1, &n2]).more(NOBODY_WAITS).more("resilience: {attempts: 2}")).await;
    for n in 0..200 {
        let began = Instant::now();
        let reply = ask(&gate, n).await;
        assert_eq!(reply.status, 503, "request {n}: the last answer is told");
        assert!(began.elapsed() < Duration::from_secs(1), "request {n} failed at once");
    }
    let attempts = n1.count() + n2.count();
    assert!((200..=200 + 40 + 10 + 1).contains(&attempts), "{attempts} attempts for 200 requests");
}

#[tokio::test]
async fn ret_11_the_only_node_is_asked_as_soon_as_it_has_a_place() {
    let single = Single::new().await;
    single.node.always(busy(503));
    for n in 0..10 {
        assert_eq!(ask(&single.gate, n).await.status, 503);
    }
    single.node.always(Script::usual());
    assert_eq!(ask(&single.gate, 10).await.status, 200);
}

#[tokio::test]
async fn que_08_a_limit_that_only_one_node_can_tell_is_told_with_its_headers() {
    let node = Upstream::openai("only", vec![Model::resident(MODEL)]).await;
    let limit = || busy(429).header("x-ratelimit-remaining-requests", "0");
    let gate = Gate::start(&Settings::over(&[&node])).await;
    node.next(limit().header("Retry-After", "soon"));
    let silly = ask(&gate, 0).await;
    node.next(limit().header("Retry-After", "30"));
    let told = ask(&gate, 1).await;

    assert_eq!((silly.status, silly.header("retry-after")), (429, None));
    assert_eq!((told.status, retry_after(&told)), (429, 30));
    assert_eq!(told.header("x-ratelimit-remaining-requests"), Some("0"));
}

#[tokio::test]
async fn ret_13_what_says_no_place_is_the_engines_matter() {
    let pair = Pair::new(Dialect::OpenAi).await;
    pair.home.next(busy(409));
    assert_eq!(finished(&pair.gate, &pair.talk).await.status, 409, "relayed");
    assert_eq!(pair.away.count(), 0);
    pair.home.next(busy(429).header("Retry-After", "9"));
    let moved = finished(&pair.gate, &pair.talk).await;
    assert_eq!((moved.status, moved.node()), (200, pair.away.name()), "no client's limit, and another node is idle");

    let litellm = Upstream::litellm("litellm", vec![Model::resident(MODEL)]).await;
    let other = Upstream::openai("other", vec![Model::resident(MODEL)]).await;
    litellm.always(busy(429));
    let gate = Gate::start(&Settings::over(&[&litellm, &other])).await;
    for n in 0..20 {
        assert_eq!(ask(&gate, n).await.status, 200);
    }
    assert_eq!(other.count(), 20);
    assert!((1..=4).contains(&litellm.count()), "all-cooled is busy: it moves on and is left alone");
}
