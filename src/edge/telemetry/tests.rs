//! Rounds of questions to servers that answer well, badly or not.

use super::*;
use crate::config::{Plan, Upstream};
use crate::edge::ingress::Ingress;
use crate::edge::testbed::Desk;

/// One node, its engine known or to be found out.
struct Bench {
    ingress: Ingress,
    telemetry: Telemetry,
}

impl Bench {
    fn over(url: &str, engine: Option<&'static str>) -> Bench {
        let upstream = Upstream { engine, ..Upstream::new("n1".into(), url.parse().unwrap()) };
        let ingress = Ingress::new(Plan { upstreams: vec![upstream], ..Plan::default() }).unwrap();
        let (fleet, fetcher) = (ingress.fleet.clone(), ingress.fetcher.clone());
        let (timeout, interval) = (Duration::from_millis(300), Duration::from_secs(2));
        Bench { ingress, telemetry: Telemetry { fleet, fetcher, timeout, interval } }
    }

    /// Asks once: the models that are known then, the requests of others, and what is wrong.
    async fn poll(&self) -> (Vec<String>, u32, String) {
        let node = &self.ingress.roster.nodes().sites().next().unwrap().clone();
        self.telemetry.poll(node).await;
        let (models, foreign) = self.telemetry.fleet.with(|fleet, now| {
            let foreign = fleet.upstream(node.rows[0]).unwrap().foreign_requests(now, Duration::from_secs(15));
            (fleet.holdings_of(node.rows[0]).map(|held| held.name.clone()).collect(), foreign)
        });
        (models, foreign, node.problem.load().to_string())
    }
}

const MODELS: &str = r#"{"object":"list","data":[{"id":"org/moss","owned_by":"vllm","max_model_len":4096}]}"#;
const METRICS: &str = "vllm:num_requests_running{engine=\"0\",model_name=\"org/moss\"} 2.0\n\
                       vllm:num_requests_waiting{engine=\"0\",model_name=\"org/moss\"} 1.0\n";

#[track_caller]
fn check(got: (Vec<String>, u32, String), models: &[&str], foreign: u32, problem: &str) {
    assert_eq!((got.1, got.2.as_str()), (foreign, problem));
    assert_eq!(got.0, models);
}

#[tokio::test]
async fn load_is_learnt_and_its_absence_changes_nothing() {
    let desk = Desk::open().await;
    desk.say("/v1/models", 200, MODELS);
    let bench = Bench::over(&desk.url, Some("vllm"));
    check(bench.poll().await, &["org/moss"], 0, "");
    desk.say("/metrics", 200, METRICS);
    check(bench.poll().await, &["org/moss"], 3, "");
    desk.say("/metrics", 500, "oops");
    check(bench.poll().await, &["org/moss"], 3, "");
}

#[tokio::test]
async fn hlt_17_metrics_that_hang_delay_one_round_by_one_timeout() {
    let desk = Desk::open().await;
    desk.say("/v1/models", 200, &MODELS.replace("vllm", "sglang"));
    for path in ["/metrics", "/server_info", "/v1/loads?include=core"] {
        desk.hang(path);
    }
    let bench = Bench::over(&desk.url, Some("sglang"));
    let began = std::time::Instant::now();
    check(bench.poll().await, &["org/moss"], 0, "");
    assert!(began.elapsed() < 2 * bench.telemetry.timeout, "asked one after the other: {:?}", began.elapsed());
}

#[tokio::test]
async fn cat_08_a_failed_poll_is_not_an_empty_node() {
    let desk = Desk::open().await;
    desk.say("/v1/models", 200, MODELS);
    let bench = Bench::over(&desk.url, Some("vllm"));
    check(bench.poll().await, &["org/moss"], 0, "");
    desk.hang("/v1/models");
    check(bench.poll().await, &["org/moss"], 0, "no answer within 300ms");
    desk.say("/v1/models", 500, "oops");
    check(bench.poll().await, &["org/moss"], 0, "it answers 500 to GET /v1/models");
    desk.say("/v1/models", 200, "<html>");
    assert!(bench.poll().await.2.starts_with("/v1/models: not JSON"));
    desk.say("/v1/models", 200, &MODELS[..60]);
    let got = bench.poll().await;
    assert!(got.2.starts_with("/v1/models: not JSON") && got.0 == ["org/moss"], "{got:?}");
    desk.say("/v1/models", 200, r#"{"object":"list","data":[]}"#);
    check(bench.poll().await, &[], 0, "");
}

#[tokio::test]
async fn an_engine_is_recognised_and_each_path_asked_once() {
    let desk = Desk::open().await;
    desk.say("/v1/models", 200, MODELS);
    let bench = Bench::over(&desk.url, None);
    check(bench.poll().await, &["org/moss"], 0, "");
    assert_eq!(bench.ingress.roster.nodes().sites().next().unwrap().engine.get().unwrap().name, "vllm");
    let asked = desk.asked();
    assert_eq!(asked[..4], ["/health/liveliness", "/props", "/api/version", "/v1/models"], "{asked:?}");
    assert_eq!(asked.len(), 7, "then the round itself: {asked:?}");
}

#[tokio::test]
async fn what_is_not_recognised_says_why() {
    let desk = Desk::open().await;
    let nothing = "nothing there answers like an engine we know; set `engine:` if it is one";
    check(Bench::over(&desk.url, None).poll().await, &[], 0, nothing);
    desk.say("/v1/models", 401, "no");
    check(Bench::over(&desk.url, None).poll().await, &[], 0, "it refuses our key (401): see `api_key`");
    desk.say("/health/liveliness", 503, "starting");
    let starting = "it answers 503 to GET /health/liveliness";
    check(Bench::over(&desk.url, None).poll().await, &[], 0, starting);
    desk.hang("/health/liveliness");
    desk.asked();
    check(Bench::over(&desk.url, None).poll().await, &[], 0, "no answer within 300ms");
    assert_eq!(desk.asked(), ["/health/liveliness"], "not six times in vain");
}
