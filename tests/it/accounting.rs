//! What an answer cost is known, nothing of it is touched on the way, and each request counts once.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::client::Request;
use crate::exposition::{Exposition, Sample};
use crate::gate::{Gate, Settings};
use crate::rig::{Pair, Single, finished, node};
use crate::talk::{Dialect, MODEL, Talk};
use crate::upstream::{Hold, Model, Script, Upstream};

const PROBE: &str = "usage_probe: on";
const ASKS: &str = r#""stream_options":{"include_usage":true}"#;
const COUNTS: &str = "data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

#[tokio::test]
async fn acc_01_counts_that_nobody_asked_for_are_learnt_and_not_passed_on() {
    let single = Single::with(PROBE).await;
    let word = frame("one");
    // The event of counts with its neighbours, alone, and cut anywhere.
    let stream = format!("{word}{COUNTS}{DONE}");
    let pieces = |cuts: &[usize]| {
        let (mut pieces, mut from) = (Vec::new(), 0);
        for &cut in cuts.iter().chain([&stream.len()]) {
            pieces.push(stream[from..cut].to_owned());
            from = cut;
        }
        pieces
    };
    let (begin, end) = (word.len(), word.len() + COUNTS.len());
    for cuts in [vec![], vec![begin, end], vec![begin + 20, end - 1], vec![5, begin + 1, end + 3]] {
        let script = pieces(&cuts).into_iter().fold(Script::sse(), |script, piece| script.chunk(piece));
        single.node.next(script.finish());
        let request = talk().ask();

        let mut reply = single.gate.send(&request).await;
        let got = reply.whole().await;

        assert_eq!(got, format!("{word}{DONE}"), "cut at {cuts:?}");
        let receipt = single.gate.receipt(reply.request_id()).await;
        assert_eq!((&receipt["tokens"]["prompt"], &receipt["tokens"]["output"]), (&json!(9), &json!(4)), "{cuts:?}");
        let asked = single.node.request(single.node.count() - 1).await;
        let text = String::from_utf8_lossy(&asked.body).into_owned();
        assert_eq!(text.replacen(&format!("{ASKS},"), "", 1).as_bytes(), request.body(), "nothing else changed");
        assert!(text.contains(ASKS));
        assert_eq!(asked.head.get("content-length"), Some(asked.body.len().to_string().as_str()));
    }
}

#[tokio::test]
async fn acc_01_whoever_asks_gets_the_counts() {
    let single = Single::with(PROBE).await;
    for options in [json!({"include_usage": true}), json!({"include_usage": true, "x": 1})] {
        let request = talk().ask_with(json!({"stream": true, "stream_options": options}));
        untouched(&single.gate, &single.node, &request).await;
    }
}

#[tokio::test]
async fn acc_01_engines_that_are_not_known_and_operators_who_did_not_say_so_are_not_probed() {
    let unknown = Upstream::openai("unknown", vec![Model::resident(MODEL)]).await;
    let gate = Gate::start(&Settings::over(&[&unknown]).more(PROBE)).await;
    untouched(&gate, &unknown, &talk().ask()).await;

    let by_default = Single::new().await;
    untouched(&by_default.gate, &by_default.node, &talk().ask()).await;
}

#[tokio::test]
async fn acc_01_a_probed_stream_passes_each_event_at_once_and_a_cut_one_whole() {
    let single = Single::with(PROBE).await;
    let hold = Hold::new();
    let half = &COUNTS[..30];
    let script = Script::sse().chunk(frame("one")).hold(&hold).chunk(frame("two")).hold(&hold);
    single.node.next(script.chunk(half).hold(&hold).reset());
    let mut reply = single.gate.send(&talk().ask()).await;

    assert_eq!(reply.expect_piece().await, frame("one"));
    hold.release(1);
    assert_eq!(reply.expect_piece().await, frame("two"));
    hold.open();
    let (rest, _) = reply.rest().await;

    let text = String::from_utf8_lossy(&rest);
    let error = text.strip_prefix(half).unwrap_or_else(|| panic!("the half event is gone: {text:?}"));
    assert!(error.trim_start().starts_with("data: {\"error\""), "{text:?}");
}

#[tokio::test]
async fn acc_02_what_ollama_does_not_count_is_unknown_and_not_zero() {
    let single = Single::new().await;
    let last = json!({"model": MODEL, "done": true, "done_reason": "stop", "eval_count": 31});
    let script = Script::ndjson().chunk(Dialect::Ollama.frame("one")).chunk(format!("{last}\n"));
    single.node.next(script.finish());
    let reply = finished(&single.gate, &Talk::about(Dialect::Ollama, "moss")).await;
    let tokens = single.gate.receipt(reply.request_id()).await["tokens"].clone();
    assert_eq!((&tokens["output"], &tokens["prompt"]), (&json!(31), &Value::Null));

    let vectors = json!({"model": MODEL, "embeddings": [[0.1]], "prompt_eval_count": 7});
    single.node.next(Script::json(200, &vectors));
    let mut reply = single.gate.post("/api/embed", json!({"model": MODEL, "input": "x"}).to_string()).await;
    reply.whole().await;
    let tokens = single.gate.receipt(reply.request_id()).await["tokens"].clone();
    assert_eq!((&tokens["output"], &tokens["prompt"]), (&Value::Null, &json!(7)));
}

#[tokio::test]
async fn acc_03_fragments_of_tool_calls_pass_untouched_and_each_at_once() {
    let single = Single::new().await;
    let hold = Hold::new();
    let fragments: Vec<Bytes> = (0..60).map(fragment).collect();
    let script = fragments.iter().fold(Script::sse(), |script, bytes| script.hold(&hold).chunk(bytes.clone()));
    single.node.next(script.hold(&hold).chunk(DONE).finish());
    let request = talk().ask();
    let mut conn = single.gate.connect().await;
    conn.send(&request).await;
    hold.release(1);
    let mut reply = conn.reply(&request).await;

    for (n, bytes) in fragments.iter().enumerate() {
        assert_eq!(reply.expect_piece().await, bytes, "fragment {n}, before the next is written");
        hold.release(1);
    }
    assert_eq!(reply.whole().await, DONE);
}

/// Two calls at once, odd white space, and now and then no index.
fn fragment(n: usize) -> Bytes {
    let call = match n % 20 {
        13 => json!({"function": {"arguments": "{\"a\":"}}),
        _ => json!({"index": n % 2, "function": {"arguments": format!("\u{e9}{n}")}}),
    };
    let space = " ".repeat(n % 3);
    format!("data:{space}{{\"choices\":[{{\"index\":0,\"delta\":{{\"tool_calls\":[{call}]}}}}], \"x\":1e2}}\n\n").into()
}

#[tokio::test]
async fn acc_04_a_batch_goes_as_one_to_one_node_and_comes_back_as_it_was() {
    let pair = Pair::new(Dialect::Ollama).await;
    let mut inputs: Vec<String> = (0..498).map(|n| format!("text {n}")).collect();
    inputs.extend(["".into(), "text 1".into()]);
    for (path, count) in [("/v1/embeddings", 500), ("/api/embed", 500), ("/v1/embeddings", 499)] {
        let before = pair.home.count() + pair.away.count();
        let vector = |n: usize| json!({"index": n, "object": "embedding", "embedding": [n, 0.10]});
        let answer = json!({"data": (0..count).map(vector).collect::<Vec<_>>(), "usage": {"prompt_tokens": 9}});
        pair.home.always(Script::json(200, &answer));
        pair.away.always(Script::json(200, &answer));
        let body = json!({"model": MODEL, "input": inputs}).to_string();

        let mut reply = pair.gate.post(path, body.clone()).await;

        assert_eq!(reply.whole().await, answer.to_string(), "{path}, {count} vectors");
        assert_eq!(pair.home.count() + pair.away.count(), before + 1, "{path}: one request");
        let by_home = reply.node() == pair.home.name();
        let node = if by_home { &pair.home } else { &pair.away };
        assert_eq!(node.request(node.count() - 1).await.body, body, "{path}");
    }
}

#[tokio::test]
async fn acc_05_each_request_counts_in_one_class() {
    let mut gone = Upstream::ollama("gone", vec![Model::resident("fern:3b")]).await;
    gone.kill().await;
    let node = node("n1").await;
    let gate = Gate::start(&Settings::over(&[&node, &gone]).more("timeouts: {idle: 400ms, first_byte: 400ms}")).await;
    let one = || Script::ndjson().chunk(Dialect::Ollama.frame("one"));
    let error = |status| Script::json(status, &json!({"error": "no"}));
    let scripts = [
        ("ok", Script::usual()),
        ("client_error", error(400)),
        ("backend_error", error(500)),
        ("cut", one().reset()),
        ("empty", Script::ndjson().finish()),
        ("stalled", one().hold(&Hold::new())),
        ("stream_error", one().chunk("{\"error\":\"runner stopped\"}\n").finish()),
    ];
    let mut expected = Classes::default();
    for (class, script) in scripts {
        node.next(script);
        let mut reply = gate.send(&Talk::about(Dialect::Ollama, class).ask()).await;
        let _ = reply.rest().await;
        expected.rise(class);
        assert_eq!(Classes::settled(&gate, &expected).await, expected, "{class}");
        let receipt = gate.receipt(reply.request_id()).await;
        assert_eq!(receipt["outcome"], class);
    }

    node.next(one().hold(&Hold::new()));
    let mut reply = gate.send(&Talk::about(Dialect::Ollama, "leaving").ask()).await;
    reply.expect_piece().await;
    drop(reply);
    expected.rise("client_gone");
    assert_eq!(Classes::settled(&gate, &expected).await, expected);

    let body = json!({"model": "fern:3b", "messages": [{"role": "user", "content": "hello"}]}).to_string();
    assert_eq!(gate.post("/api/chat", body).await.status, 503);
    expected.rise("refused");
    assert_eq!(Classes::settled(&gate, &expected).await, expected);
    assert_eq!(expected.0.len(), 10, "the queue's class is there, too");
    assert_eq!(expected.0.values().sum::<u64>(), 9, "as many as there were requests");
}

/// Requests in Ollama's dialect by class, at 0 from the start.
#[derive(Debug, PartialEq)]
struct Classes(std::collections::BTreeMap<String, u64>);

impl Default for Classes {
    fn default() -> Classes {
        let classes = [
            "ok",
            "client_error",
            "backend_error",
            "cut",
            "empty",
            "stalled",
            "client_gone",
            "refused",
            "queue_timeout",
            "stream_error",
        ];
        Classes(classes.map(|class| (class.to_owned(), 0)).into())
    }
}

impl Classes {
    fn rise(&mut self, class: &str) {
        *self.0.get_mut(class).expect("a known class") += 1;
    }

    fn of(metrics: &str) -> Classes {
        let told = Exposition::parse(metrics).expect("what a collector can read");
        let mut classes = std::collections::BTreeMap::new();
        let of_ollama =
            |sample: &&Sample| sample.name == "warmgate_requests_total" && sample.labels["dialect"] == "ollama";
        for sample in told.samples().filter(of_ollama) {
            *classes.entry(sample.labels["outcome"].clone()).or_default() += sample.value as u64;
        }
        Classes(classes)
    }

    /// What is counted as soon as it is as expected; after a while, whatever it is.
    async fn settled(gate: &Gate, expected: &Classes) -> Classes {
        for _ in 0..200 {
            let classes = Classes::of(&gate.metrics().await);
            if classes == *expected {
                return classes;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        Classes::of(&gate.metrics().await)
    }
}

/// The request and an answer with counts pass as they are.
async fn untouched(gate: &Gate, node: &Upstream, request: &Request) {
    let stream = format!("{}{COUNTS}{DONE}", frame("one"));
    node.next(Script::sse().chunk(stream.clone()).finish());
    let got = gate.send(request).await.whole().await;
    assert_eq!(got, stream);
    assert_eq!(&node.request(node.count() - 1).await.body, request.body());
}

fn frame(text: &str) -> String {
    String::from_utf8_lossy(&Dialect::OpenAi.frame(text)).into_owned()
}

fn talk() -> Talk {
    Talk::about(Dialect::OpenAi, "moss")
}
