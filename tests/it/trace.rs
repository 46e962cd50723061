//! Traces: what goes on to nodes, and what a collector is told.

use std::collections::HashMap;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Given;
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::{Value, json};

use crate::client::Request;
use crate::gate::{Gate, Settings};
use crate::patience::within;
use crate::rig::{Single, finished, node};
use crate::talk::{Dialect, MODEL, Talk};
use crate::upstream::{Hold, Script, Upstream};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn traced(talk: &Talk) -> Request {
    talk.ask().header("traceparent", &format!("00-{TRACE}-{PARENT}-01")).header("tracestate", "theirs=1")
}

/// A server that takes whatever is sent to it.
async fn collector() -> Upstream {
    let collector = Upstream::openai("collector", Vec::new()).await;
    collector.always(Script::json(200, &json!({})));
    collector
}

fn told_to(collector: &Upstream) -> String {
    format!("tracing: {{otlp: \"{}\"}}", collector.url())
}

/// The spans that came, once there are as many.
async fn spans(collector: &Upstream, count: usize) -> Vec<Span> {
    let mut spans = Vec::new();
    for n in 0.. {
        let sent = collector.request(n).await;
        assert_eq!((sent.method.as_str(), sent.path.as_str()), ("POST", "/v1/traces"));
        let sent: ExportTraceServiceRequest = serde_json::from_slice(&sent.body).expect("OTLP in JSON");
        let resource = &sent.resource_spans[0].resource.as_ref().expect("who sends it").attributes;
        assert!(resource.iter().any(|given| given.key == "service.name"), "{resource:?}");
        spans.extend(sent.resource_spans.into_iter().flat_map(|of| of.scope_spans).flat_map(|of| of.spans));
        if spans.len() >= count {
            break;
        }
    }
    spans
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn given(span: &Span) -> HashMap<&str, Value> {
    let value = |given: &Given| match given {
        Given::StringValue(text) => json!(text),
        Given::IntValue(number) => json!(number),
        Given::DoubleValue(number) => json!(number),
        other => panic!("{other:?}"),
    };
    let all = span.attributes.iter();
    all.map(|it| (it.key.as_str(), value(it.value.as_ref().and_then(|it| it.value.as_ref()).expect("a value"))))
        .collect()
}

#[tokio::test]
async fn a_request_its_attempts_and_what_nodes_are_told_are_one_trace() {
    let (n1, n2, collector) = (node("n1").await, node("n2").await, collector().await);
    let gate = Gate::start(&Settings::over(&[&n1, &n2]).more(&told_to(&collector))).await;
    let counted = json!({"model": MODEL, "done": true, "prompt_eval_count": 40, "eval_count": 3});
    let answer = || Script::ndjson().chunk(Dialect::Ollama.frame("one")).chunk(format!("{counted}\n")).finish();
    n1.always(answer());
    n2.always(answer());
    let talk = Talk::about(Dialect::Ollama, "moss");
    let home = finished(&gate, &talk).await.node().to_owned();
    // The one that is asked first has no place.
    if home == "n1" { &n1 } else { &n2 }.next(Script::json(503, &json!({"error": "busy"})));
    let mut reply = gate.send(&traced(&talk.then("And then?"))).await;
    let answered = (reply.status, reply.node().to_owned(), reply.request_id().to_owned());
    assert_eq!(reply.header("traceparent"), None);
    reply.whole().await;
    gate.idle().await;
    let receipt = gate.receipt(&answered.2).await;
    let attempts = receipt["attempts"].as_array().expect("attempts").len();

    // A turn before had an attempt as well, in a trace of its own.
    let mut spans = spans(&collector, 2 + 1 + attempts).await;
    spans.retain(|span| hex(&span.trace_id) == TRACE);

    assert_eq!((attempts, spans.len()), (2, 3));

    assert!(spans.iter().all(|span| span.end_time_unix_nano >= span.start_time_unix_nano));
    let served = spans.iter().find(|span| span.name == "POST /api/chat").expect("the request");
    assert_eq!((hex(&served.parent_span_id).as_str(), served.kind), (PARENT, 2), "the client's child, a server");
    let tried: Vec<&Span> = spans.iter().filter(|span| span.name == "attempt").collect();
    assert_eq!(tried.len(), attempts);
    assert!(tried.iter().all(|span| span.parent_span_id == served.span_id));
    let failed = |span: &Span| span.status.as_ref().is_some_and(|status| status.code == 2);
    assert_eq!(
        tried.iter().map(|span| failed(span)).collect::<Vec<_>>(),
        [vec![true; attempts - 1], vec![false]].concat()
    );
    assert_eq!(given(served)["warmgate.node"], answered.1.as_str());
    assert_eq!(given(served)["warmgate.score"], receipt["score"]);
    assert_eq!(given(served)["warmgate.attempts"], attempts);
    assert_eq!(given(served)["gen_ai.request.model"], MODEL);
    assert_eq!(given(served)["gen_ai.operation.name"], "chat");
    assert_eq!(
        (&given(served)["gen_ai.usage.input_tokens"], &given(served)["gen_ai.usage.output_tokens"]),
        (&json!(40), &json!(3))
    );
    assert_eq!(given(served)["http.response.status_code"], answered.0);

    // The node that answered was told of the span of its own attempt.
    let asked = if answered.1 == "n1" { &n1 } else { &n2 };
    let told = asked.request(asked.count() - 1).await.head;
    let last = tried.last().expect("the last");
    assert_eq!(told.get("traceparent"), Some(format!("00-{TRACE}-{}-01", hex(&last.span_id)).as_str()));
    assert_eq!(told.get("tracestate"), Some("theirs=1"));
    assert_eq!(receipt["trace_id"], TRACE);
    let log = gate.log_of(2).await;
    let line = log.lines().find(|line| line.contains(&answered.2) && line.contains("total_ms")).expect("its line");
    for field in [
        "trace_id",
        "tenant",
        "session",
        "model",
        "node",
        "score",
        "affinity",
        "queue_ms",
        "first_byte_ms",
        "total_ms",
        "prompt_tokens",
        "cached_tokens",
        "output_tokens",
        "outcome",
    ] {
        assert!(line.contains(&format!("\"{field}\":")), "no {field} in {line}");
    }
}

#[tokio::test]
async fn a_wait_for_a_node_is_a_span() {
    let (n1, collector) = (node("n1").await, collector().await);
    let settings = Settings::over(&[&n1]).slots(1).more("admission: {engine_queue: 0}").more(&told_to(&collector));
    let gate = Gate::start(&settings).await;
    let hold = Hold::new();
    n1.next(Script::held(&hold).then_usual());
    let (first, second) = (Talk::about(Dialect::Ollama, "moss"), Talk::about(Dialect::Ollama, "fern"));
    let (running, waiting) = (gate.connect().await, gate.connect().await);
    let ask = first.ask();
    let running = tokio::spawn(async move { running.exchange(&ask).await.whole().await });
    n1.request(0).await;
    let ask = traced(&second);
    let waiting = tokio::spawn(async move { waiting.exchange(&ask).await.whole().await });
    gate.waiting(1).await;
    hold.open();
    running.await.expect("the first");
    waiting.await.expect("the second");

    // Two requests, an attempt each, and the wait.
    let spans = spans(&collector, 5).await;

    let wait = spans.iter().find(|span| span.name == "queue").expect("the wait");
    let served = spans.iter().find(|span| span.span_id == wait.parent_span_id).expect("its request");
    let attempt = spans.iter().find(|span| span.name == "attempt" && span.parent_span_id == served.span_id);
    assert_eq!(hex(&wait.trace_id), TRACE);
    assert!(served.start_time_unix_nano <= wait.start_time_unix_nano);
    assert_eq!(
        wait.end_time_unix_nano,
        attempt.expect("its attempt").start_time_unix_nano,
        "it ends as the node is booked"
    );
    assert!(spans.iter().any(|span| hex(&span.trace_id) != TRACE), "the other began a trace of its own");
}

#[tokio::test]
async fn without_a_collector_a_sound_parent_goes_on_and_no_other() {
    let single = Single::new().await;
    let talk = Talk::about(Dialect::Ollama, "moss");
    let mut sound = single.gate.send(&traced(&talk)).await;
    sound.whole().await;
    let odd = talk.ask().header("traceparent", "00-hello-world-01").header("tracestate", "theirs=1");
    let mut unsound = single.gate.send(&odd).await;
    unsound.whole().await;

    let first = single.node.request(0).await.head;
    let second = single.node.request(1).await.head;
    assert_eq!(first.get("traceparent"), Some(format!("00-{TRACE}-{PARENT}-01").as_str()));
    assert_eq!((second.get("traceparent"), second.get("tracestate")), (None, None));
    assert_eq!((unsound.header("traceparent"), unsound.status), (None, 200));
    assert_eq!(single.gate.receipt(sound.request_id()).await["trace_id"], TRACE);
    assert_eq!(single.gate.receipt(unsound.request_id()).await["trace_id"], Value::Null);
    assert!(!single.gate.log().contains("hello-world"));
}

#[tokio::test]
async fn a_process_that_stops_tells_what_it_has_first() {
    let (n1, collector) = (node("n1").await, collector().await);
    let mut gate = Gate::start(&Settings::over(&[&n1]).more(&told_to(&collector))).await;
    finished(&gate, &Talk::about(Dialect::Ollama, "moss")).await;
    gate.signal(rustix::process::Signal::TERM);
    assert_eq!(spans(&collector, 2).await.len(), 2);
    assert_eq!(gate.ended().await, Some(0));
}

#[tokio::test]
async fn a_collector_that_is_down_costs_no_request_and_is_seen() {
    let (n1, mut collector) = (node("n1").await, collector().await);
    let gate = Gate::start(&Settings::over(&[&n1]).more(&told_to(&collector))).await;
    collector.kill().await;
    for n in 0..3 {
        assert_eq!(finished(&gate, &Talk::about(Dialect::Ollama, &format!("moss {n}"))).await.status, 200);
    }
    within("the failure to be counted", async {
        while gate.counter("warmgate_spans_total{outcome=\"failed\"}").await < 6.0 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(gate.counter("warmgate_spans_total{outcome=\"sent\"}").await, 0.0);
}
