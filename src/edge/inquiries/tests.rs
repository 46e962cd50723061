//! Questions about models, counted at the node.

use serde_json::{Value, json};

use super::*;
use crate::config::{Plan, Upstream};
use crate::edge::ingress::Ingress;
use crate::edge::node::Node;
use crate::edge::telemetry::Telemetry;
use crate::edge::testbed::{Desk, PATIENCE};

/// One Ollama with so many models, each with its digest.
struct Bench {
    desk: Desk,
    ingress: Ingress,
    telemetry: Telemetry,
}

fn tags(models: usize, digest: &str) -> String {
    let entry = |n: usize| json!({"name": format!("m{n}:1b"), "size": 1, "digest": digest});
    json!({"models": (0..models).map(entry).collect::<Vec<Value>>()}).to_string()
}

impl Bench {
    async fn over(models: usize) -> Bench {
        let desk = Desk::open().await;
        desk.say("/api/tags", 200, &tags(models, "d1"));
        desk.say("/api/ps", 200, r#"{"models":[{"name":"m9:1b","digest":"d1"}]}"#);
        let upstream = Upstream { engine: Some("ollama"), ..Upstream::new("n1".into(), desk.url.parse().unwrap()) };
        let ingress = Ingress::new(Plan { upstreams: vec![upstream], ..Plan::default() }).unwrap();
        let (fleet, fetcher) = (ingress.fleet.clone(), ingress.fetcher.clone());
        let (timeout, interval) = (Duration::from_millis(300), Duration::from_secs(2));
        Bench { desk, ingress, telemetry: Telemetry { fleet, fetcher, timeout, interval } }
    }

    fn node(&self) -> Arc<Node> {
        self.ingress.roster.nodes().iter().next().unwrap().clone()
    }

    /// Polls once, waits for the questions that follow, and counts them.
    async fn poll(&self) -> usize {
        let node = self.node();
        self.telemetry.poll(&node.site).await;
        let idle = async {
            while node.inquiries.under_way.load(Ordering::Acquire) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, idle).await.expect("the questions to end");
        self.desk.asked().iter().filter(|path| *path == "/api/show").count()
    }

    /// Trained lengths known now.
    fn known(&self) -> usize {
        let id = self.node().id;
        self.telemetry
            .fleet
            .with(|fleet, _| fleet.holdings_of(id).filter(|held| held.runner.trained_tokens == Some(7)).count())
    }
}

const SHOWN: &str = r#"{"model_info":{"general.architecture":"a","a.context_length":7}}"#;

#[tokio::test]
async fn a_few_are_asked_about_after_each_poll_and_each_once() {
    let bench = Bench::over(10).await;
    bench.desk.say("/api/show", 200, SHOWN);
    assert_eq!([bench.poll().await, bench.poll().await, bench.poll().await, bench.poll().await], [4, 4, 2, 0]);
    assert_eq!(bench.known(), 10);
}

#[tokio::test]
async fn those_in_memory_come_first() {
    let bench = Bench::over(20).await;
    bench.desk.say("/api/show", 200, SHOWN);
    assert_eq!(bench.poll().await, 4);
    let node = bench.node();
    let known = node.inquiries.known.lock();
    assert!(known.contains_key("m9:1b"), "{:?}", known.keys());
}

#[tokio::test]
async fn a_new_edition_is_asked_about_anew_and_what_is_gone_is_forgotten() {
    let bench = Bench::over(2).await;
    bench.desk.say("/api/ps", 200, r#"{"models":[]}"#);
    bench.desk.say("/api/show", 200, SHOWN);
    assert_eq!([bench.poll().await, bench.poll().await], [2, 0]);
    bench.desk.say("/api/tags", 200, &tags(1, "d2"));
    assert_eq!([bench.poll().await, bench.poll().await], [1, 0]);
    assert_eq!(bench.node().inquiries.known.lock().len(), 1);
}

#[tokio::test]
async fn a_node_that_will_not_tell_is_left_in_peace() {
    let bench = Bench::over(10).await;
    assert_eq!([bench.poll().await, bench.poll().await, bench.poll().await, bench.poll().await], [4, 4, 2, 0], "404");
    assert_eq!(bench.known(), 0);
    let failing = Bench::over(2).await;
    failing.desk.say("/api/ps", 200, r#"{"models":[]}"#);
    failing.desk.say("/api/show", 500, "oops");
    let mut asked = 0;
    for _ in 0..9 {
        asked += failing.poll().await;
    }
    assert_eq!(asked, 6, "three times about each, one a poll");
}

#[tokio::test]
async fn an_answer_that_hangs_delays_no_poll() {
    let bench = Bench::over(4).await;
    bench.desk.hang("/api/show");
    let node = bench.node();
    let polls = async {
        for _ in 0..3 {
            bench.telemetry.poll(&node.site).await;
        }
    };
    polls.await;
    let asked = bench.desk.asked();
    assert_eq!(asked.iter().filter(|path| *path == "/api/tags").count(), 3);
    assert!(asked.iter().filter(|path| *path == "/api/show").count() <= 1, "one task at a time: {asked:?}");
    assert!(node.inquiries.under_way.load(Ordering::Acquire), "the three polls did not wait for it");
}
