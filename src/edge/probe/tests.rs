//! Probes of servers that answer as engines do, or do not.

use super::*;
use crate::config::{Plan, Upstream};
use crate::edge::ingress::Ingress;
use crate::edge::testbed::{Desk, refusing};
use crate::routing::fleet::Fleet;

/// One node that is believed to run `engine`.
struct Bench {
    ingress: Ingress,
    prober: Prober,
}

impl Bench {
    fn over(url: &str, engine: &'static str) -> Bench {
        let upstream = Upstream { engine: Some(engine), ..Upstream::new("n1".into(), url.parse().unwrap()) };
        let ingress = Ingress::new(Plan { upstreams: vec![upstream], ..Plan::default() }).unwrap();
        let (fleet, fetcher) = (ingress.fleet.clone(), ingress.fetcher.clone());
        Bench { ingress, prober: Prober { fleet, fetcher, timeout: Duration::from_millis(300) } }
    }

    /// Probes once. Whether that counts as a good check, whether the node may be used, and what is wrong.
    async fn probe(&self) -> (bool, bool, String) {
        let node = &self.ingress.roster.nodes().sites().next().unwrap().clone();
        let good = self.prober.probe(node).await.is_ok();
        let up = self.ingress.fleet.with(|fleet: &mut Fleet, _| fleet.upstream(node.rows[0]).unwrap().healthy);
        (good, up, node.problem.load().to_string())
    }
}

#[track_caller]
fn check(got: (bool, bool, String), expected: (bool, bool, &str)) {
    assert_eq!((got.0, got.1, got.2.as_str()), expected);
}

const UP: (bool, bool, &str) = (true, true, "");

#[tokio::test]
async fn each_engine_is_asked_its_own_question() {
    let desk = Desk::open().await;
    desk.say("/health", 200, "");
    check(Bench::over(&desk.url, "vllm").probe().await, UP);
    check(Bench::over(&desk.url, "sglang").probe().await, UP);
    assert_eq!(desk.asked(), ["/health", "/ready", "/health"], "an old SGLang");
    desk.say("/ready", 200, "{}");
    check(Bench::over(&desk.url, "sglang").probe().await, UP);
    desk.say("/health/liveliness", 200, "\"I'm alive!\"");
    check(Bench::over(&desk.url, "litellm").probe().await, UP);
    desk.say("/health", 200, r#"{"status":"ok"}"#);
    check(Bench::over(&desk.url, "llama_cpp").probe().await, UP);
    assert_eq!(desk.asked(), ["/ready", "/health/liveliness", "/health"]);
}

#[tokio::test]
async fn hlt_03_a_node_that_loads_is_not_up_and_has_not_failed() {
    let desk = Desk::open().await;
    desk.say("/health", 503, r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#);
    let bench = Bench::over(&desk.url, "llama_cpp");
    for _ in 0..3 {
        check(bench.probe().await, (true, false, "loading"));
    }
    desk.say("/health", 200, r#"{"status":"ok"}"#);
    check(bench.probe().await, UP);
    desk.say("/health", 503, r#"{"error":{"code":503,"message":"Loading model"}}"#);
    check(bench.probe().await, (true, false, "loading"));
}

#[tokio::test]
async fn hlt_04_a_page_is_not_an_engine() {
    let desk = Desk::open().await;
    for path in ["/health", "/ready", "/health/liveliness", "/api/version", "/v1/models"] {
        desk.say(path, 200, "<!doctype html><title>Welcome</title>");
    }
    for engine in crate::engines::ROSTER {
        let problem = format!("what answers there is not {}: see `engine` and `url`", engine.name);
        check(Bench::over(&desk.url, engine.name).probe().await, (false, false, &problem));
    }
}

#[tokio::test]
async fn what_is_wrong_is_said_in_words() {
    let desk = Desk::open().await;
    desk.say("/api/version", 401, "no");
    check(Bench::over(&desk.url, "ollama").probe().await, (false, false, "it refuses our key (401): see `api_key`"));
    desk.say("/health", 503, "");
    check(Bench::over(&desk.url, "vllm").probe().await, (false, false, "it answers 503 to GET /health"));
    let gone = format!("http://{}", refusing().await);
    check(Bench::over(&gone, "ollama").probe().await, (false, false, "connection refused"));
    desk.hang("/api/version");
    check(Bench::over(&desk.url, "ollama").probe().await, (false, false, "no answer within 300ms"));
}

#[tokio::test]
async fn hlt_02_a_late_probe_of_a_node_that_serves_is_no_failure() {
    use crate::routing::ask::Ask;
    use crate::routing::report::{ModelReport, Report};
    use crate::routing::select::{Query, decide};

    let desk = Desk::open().await;
    desk.hang("/api/version");
    let bench = Bench::over(&desk.url, "ollama");
    let (fleet, id, ask) =
        (bench.ingress.fleet.clone(), bench.ingress.roster.nodes().iter().next().unwrap().id, Ask::plain());
    let lease = fleet.with(|fleet, now| {
        let models = vec![ModelReport { name: ask.model.clone(), resident: true, ..ModelReport::default() }];
        fleet.learn_health(id, true, now);
        fleet.learn_report(id, &Report { models, ..Report::default() }, fleet.asked(id, now), now);
        let decision = decide(fleet, &Query { ask: ask.clone(), tried: vec![], request: 1 }, now);
        fleet.book(&decision.rows[0], &ask, now)
    });
    let serving = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        fleet.with(|fleet, now| fleet.first_byte(lease, &ask, now));
    };
    let (probed, ()) = tokio::join!(bench.probe(), serving);
    assert_eq!((probed.0, probed.1), (true, true));
    assert!(!bench.probe().await.0, "nothing was served meanwhile");
}
