//! A chat stream that is cut goes on at another node, where that is switched on, and is one answer.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Reply, Request};
use crate::gate::{Gate, Settings};
use crate::rig::{Pair, finished};
use crate::talk::{Dialect, MODEL, Talk};
use crate::upstream::{Hold, Model, Script, Upstream};

const ON: &str = "resilience: {resume_streams: true}";

/// The promise is 100 ms; the rest is room for a busy machine.
const AT_ONCE: Duration = Duration::from_millis(500);

/// Two nodes alike; the first request goes to one of them, which is `home` then.
struct Two {
    gate: Gate,
    home: Upstream,
    away: Upstream,
    talk: Talk,
}

impl Two {
    async fn ollamas(dialect: Dialect, yaml: &str) -> Two {
        let Pair { gate, home, away, talk } = Pair::with(dialect, yaml).await;
        Two { gate, home, away, talk }
    }

    async fn vllms(yaml: &str) -> Two {
        let model = || vec![Model::resident(MODEL)];
        let [n1, n2] = [Upstream::vllm("n1", model()).await, Upstream::vllm("n2", model()).await];
        let gate = Gate::start(&Settings::over(&[&n1, &n2]).more(yaml)).await;
        let talk = Talk::about(Dialect::OpenAi, "moss");
        let at_first = finished(&gate, &talk).await.node() == n1.name();
        let (home, away) = if at_first { (n1, n2) } else { (n2, n1) };
        Two { gate, home, away, talk: talk.then("And where?") }
    }

    /// The body of the one request that the other node got.
    async fn asked_away(&self) -> Value {
        assert_eq!(self.away.count(), 1, "requests at the other node");
        serde_json::from_slice(&self.away.request(0).await.body).expect("JSON")
    }

    async fn receipt(&self, reply: &Reply) -> Value {
        self.gate.receipt(reply.header("x-request-id").expect("an id")).await
    }
}

/// The text of a stream, and whether it says, once, that it is whole.
fn heard(dialect: Dialect, stream: &[u8]) -> (String, bool) {
    let stream = std::str::from_utf8(stream).expect("text");
    let (mut text, mut ends) = (String::new(), 0);
    for line in stream.lines().filter(|line| !line.is_empty()) {
        let line = line.strip_prefix("data: ").unwrap_or(line);
        if line == "[DONE]" {
            ends += 1;
            continue;
        }
        let frame: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line:?} in {stream}"));
        ends += usize::from(frame["done"] == true);
        let message = match dialect {
            Dialect::Ollama => &frame["message"],
            Dialect::OpenAi => &frame["choices"][0]["delta"],
        };
        text += message["content"].as_str().unwrap_or_default();
    }
    assert!(ends <= 1, "{ends} ends in {stream}");
    (text, ends == 1)
}

/// A second answer that says `words` and comes to its end.
fn rest(dialect: Dialect, words: &[&str]) -> Script {
    let script = words.iter().fold(dialect.stream(), |script, word| script.chunk(dialect.frame(word)));
    let last = match dialect {
        Dialect::Ollama => {
            json!({"model": MODEL, "message": {"role": "assistant", "content": ""}, "done": true,
            "done_reason": "stop", "prompt_eval_count": 32, "eval_count": words.len()})
            .to_string()
                + "\n"
        }
        Dialect::OpenAi => {
            let stop = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
            let counts = json!({"choices": [], "usage": {"prompt_tokens": 32, "completion_tokens": words.len()}});
            format!("data: {stop}\n\ndata: {counts}\n\ndata: [DONE]\n\n")
        }
    };
    script.chunk(last).finish()
}

/// Cuts the answer after two words and this much of the frame of a third; the other node says the rest.
async fn goes_on(dialect: Dialect, two: Two, within: usize) -> Value {
    let hold = Hold::new();
    let half = dialect.frame("lost ").slice(..within);
    let words = ["so ", "far "].map(|word| dialect.frame(word));
    let script = words.iter().fold(dialect.stream(), |script, word| script.chunk(word.clone()));
    let script = if within > 0 { script.chunk(half) } else { script };
    two.home.next(script.hold(&hold).reset());
    two.away.next(rest(dialect, &["so ", "good", "."]));

    let mut reply = two.gate.send(&two.talk.ask()).await;
    let mut stream = Vec::new();
    for word in words {
        let piece = reply.expect_piece().await;
        assert_eq!(piece, word, "{dialect:?}: frames come as they are said");
        stream.extend_from_slice(&piece);
    }
    hold.open();
    stream.extend_from_slice(&reply.whole().await);

    assert_eq!(heard(dialect, &stream), ("so far so good.".to_string(), true), "{dialect:?}, {within} bytes within");
    let receipt = two.receipt(&reply).await;
    assert_eq!(receipt["outcome"], "ok");
    assert_eq!(receipt["resumed"], 1);
    assert_eq!(receipt["node"], two.away.name());
    let attempts: Vec<&Value> = receipt["attempts"].as_array().expect("attempts").iter().collect();
    assert_eq!(attempts.len(), 2, "{receipt:#}");
    assert_eq!((&attempts[0]["failure"], &attempts[1]["failure"]), (&json!("cut"), &Value::Null));
    // Two of the 32 had been said; three more were.
    assert_eq!((&receipt["tokens"]["prompt"], &receipt["tokens"]["output"]), (&json!(30), &json!(5)));
    assert_eq!(two.gate.counter("warmgate_resumed_streams_total{result=\"ok\"}").await, 1.0);
    let asked = two.asked_away().await;

    let next = finished(&two.gate, &two.talk.clone().then("And now?")).await;
    assert_eq!((next.node(), next.affinity()), (two.away.name(), "session"), "{dialect:?}: the pin moved");
    two.gate.idle().await;
    asked
}

#[tokio::test]
async fn ret_04_a_cut_stream_goes_on_at_another_ollama_with_the_text_so_far() {
    for dialect in Dialect::BOTH {
        for within in [0, 20] {
            let two = Two::ollamas(dialect, ON).await;
            let sent: Value = serde_json::from_slice(two.talk.ask().body()).expect("JSON");
            let mut asked = goes_on(dialect, two, within).await;
            let last = asked["messages"].as_array_mut().and_then(Vec::pop).expect("a last message");
            assert_eq!(last, json!({"role": "assistant", "content": "so far"}), "{dialect:?}");
            assert_eq!(asked, sent, "{dialect:?}: nothing else was added");
        }
    }
}

#[tokio::test]
async fn ret_04_a_cut_stream_goes_on_at_another_vllm_with_the_text_so_far() {
    for within in [0, 20] {
        let two = Two::vllms(ON).await;
        let sent: Value = serde_json::from_slice(two.talk.ask().body()).expect("JSON");
        let mut asked = goes_on(Dialect::OpenAi, two, within).await;
        let last = asked["messages"].as_array_mut().and_then(Vec::pop).expect("a last message");
        assert_eq!(last, json!({"role": "assistant", "content": "so far"}));
        let fields = asked.as_object_mut().expect("an object");
        assert_eq!(fields.remove("continue_final_message"), Some(json!(true)));
        assert_eq!(fields.remove("add_generation_prompt"), Some(json!(false)));
        assert_eq!(asked, sent, "nothing else was added");
    }
}

#[tokio::test]
async fn a_stream_that_ends_with_its_connection_or_stalls_goes_on() {
    for dialect in Dialect::BOTH {
        let hold = Hold::new();
        let begun = || dialect.stream().chunk(dialect.frame("a "));
        let at_once = begun().hold(&hold).chunk(dialect.frame("b ")).chunk(dialect.frame("c ")).until_close();
        for (script, text, failure) in [(at_once, "a b c d", "cut"), (begun().hold(&Hold::new()), "a d", "stalled")] {
            let two = Two::ollamas(dialect, &format!("{ON}\ntimeouts: {{idle: 1s}}")).await;
            two.home.next(script);
            two.away.next(rest(dialect, &["d"]));
            let mut reply = two.gate.send(&two.talk.ask()).await;
            let mut stream = reply.expect_piece().await.to_vec();
            hold.open();
            stream.extend_from_slice(&reply.whole().await);
            assert_eq!(reply.node(), two.home.name());
            assert_eq!(heard(dialect, &stream), (text.to_string(), true), "{dialect:?}, {failure}");
            assert_eq!(two.receipt(&reply).await["attempts"][0]["failure"], failure, "{dialect:?}");
        }
    }
}

#[tokio::test]
async fn a_stream_may_be_cut_twice() {
    let dialect = Dialect::Ollama;
    let two = Two::ollamas(dialect, ON).await;
    let third = Upstream::ollama("n3", vec![Model::resident(MODEL)]).await;
    let gate = Gate::start(&Settings::over(&[&two.home, &two.away, &third]).more(ON)).await;
    let cut = |word: &str| dialect.stream().chunk(dialect.frame(word)).close();
    for node in [&two.home, &two.away, &third] {
        node.always(cut("x"));
    }

    let mut reply = gate.send(&two.talk.ask()).await;
    let (stream, _) = reply.rest().await;

    let (text, whole) = heard(dialect, &stream);
    assert_eq!((text.as_str(), whole), ("xxx", false), "each node said a part, and none came to an end");
    let receipt = gate.receipt(reply.header("x-request-id").expect("an id")).await;
    assert_eq!((&receipt["outcome"], &receipt["resumed"]), (&json!("cut"), &json!(2)), "{receipt:#}");
    assert_eq!(gate.counter("warmgate_resumed_streams_total{result=\"nobody\"}").await, 1.0);
    gate.idle().await;
}

#[tokio::test]
async fn ret_03_off_by_default_and_by_request_nothing_is_sent_elsewhere() {
    for dialect in Dialect::BOTH {
        for (yaml, header) in [("", None), (ON, Some("off"))] {
            let two = Two::ollamas(dialect, yaml).await;
            let request = two.talk.ask();
            let request = header.map_or(request.clone(), |value| request.header("X-Fleet-Resume", value));
            assert_cut(dialect, &two, &request, dialect.frame("a "), "a ").await;
        }
    }
}

#[tokio::test]
async fn ret_05_bound_output_and_begun_tool_calls_end_with_an_error() {
    for dialect in Dialect::BOTH {
        let two = Two::ollamas(dialect, ON).await;
        let bound = match dialect {
            Dialect::Ollama => json!({"stream": true, "format": {"type": "object"}}),
            Dialect::OpenAi => json!({"stream": true, "response_format": {"type": "json_schema", "json_schema": {}}}),
        };
        assert_cut(dialect, &two, &two.talk.ask_with(bound), dialect.frame("{"), "{").await;

        let two = Two::ollamas(dialect, ON).await;
        let message = json!({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]});
        let call = match dialect {
            Dialect::Ollama => json!({"message": message}).to_string() + "\n",
            Dialect::OpenAi => format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": message}]})),
        };
        assert_cut(dialect, &two, &two.talk.ask(), call, "").await;
        assert_eq!(two.gate.counter("warmgate_resumed_streams_total{result=\"unfit\"}").await, 1.0);
    }
}

#[tokio::test]
async fn nodes_that_are_not_known_to_go_on_are_not_asked() {
    let model = || vec![Model::resident(MODEL)];
    let vllm = Upstream::vllm("n1", model()).await;
    let openai = Upstream::openai("n2", model()).await;
    let gate = Gate::start(&Settings::over(&[&vllm, &openai]).more(ON).slots(1)).await;
    for node in [&vllm, &openai] {
        node.always(Script::sse().chunk(Dialect::OpenAi.frame("a ")).close());
    }

    for n in 0..4 {
        let talk = Talk::about(Dialect::OpenAi, &format!("moss {n}"));
        let before = openai.count();
        let mut reply = gate.send(&talk.ask()).await;
        let (stream, _) = reply.rest().await;
        let to_openai = usize::from(reply.node() == openai.name());
        assert_eq!(openai.count() - before, to_openai, "nothing went on at it");
        assert!(String::from_utf8_lossy(&stream).contains("upstream_failed"), "{stream:?}");
    }
}

#[tokio::test]
async fn can_01_a_client_that_leaves_while_its_stream_goes_on_is_noticed() {
    for begun in [false, true] {
        let dialect = Dialect::OpenAi;
        let two = Two::vllms(ON).await;
        two.home.next(dialect.stream().chunk(dialect.frame("a ")).close());
        let silent = Script::silent();
        let speaking = dialect.stream().chunk(dialect.frame("b")).hold(&Hold::new());
        two.away.next(if begun { speaking } else { silent });
        let mut reply = two.gate.send(&two.talk.ask()).await;
        reply.expect_piece().await;
        two.away.request(0).await;
        if begun {
            reply.expect_piece().await;
        }

        let left = Instant::now();
        let id = reply.header("x-request-id").expect("an id").to_string();
        drop(reply);

        let took = two.away.peer_gone(0).await.duration_since(left);
        assert!(took < AT_ONCE, "the node was told only after {took:?}");
        two.gate.idle().await;
        let receipt = two.gate.receipt(&id).await;
        assert_eq!(receipt["outcome"], "client_gone");
    }
}

#[tokio::test]
async fn a_node_that_will_not_go_on_leaves_the_stream_cut() {
    let dialect = Dialect::OpenAi;
    for script in [
        Script::json(400, &json!({"error": {"message": "no prefill here"}})),
        Script::json(503, &json!({"error": {"message": "busy"}})),
        Script::sse().chunk("data: {\"choices\":[{\"delta\":{\"reasoning\":\"hm\"}}]}\n\n").finish(),
    ] {
        let two = Two::vllms(ON).await;
        two.home.next(dialect.stream().chunk(dialect.frame("a ")).close());
        two.away.next(script);
        let mut reply = two.gate.send(&two.talk.ask()).await;
        let (stream, _) = reply.rest().await;

        assert!(stream.starts_with(&dialect.frame("a ")), "{stream:?}");
        let error = String::from_utf8_lossy(&stream);
        assert!(error.contains("upstream_failed") && !error.contains("[DONE]"), "{error}");
        assert_eq!(two.receipt(&reply).await["outcome"], "cut");
        two.gate.idle().await;
    }
}

/// The answer is cut behind this frame, ends with an error frame, and nobody else is asked.
async fn assert_cut(dialect: Dialect, two: &Two, request: &Request, frame: impl Into<bytes::Bytes>, text: &str) {
    two.home.next(dialect.stream().chunk(frame).close());
    let mut reply = two.gate.send(request).await;
    let (stream, _) = reply.rest().await;

    assert_eq!(reply.node(), two.home.name());
    assert_eq!(heard(dialect, &stream), (text.to_string(), false), "{dialect:?}");
    let last = String::from_utf8_lossy(&stream);
    let last = last.trim_end().lines().last().unwrap_or_default();
    let error: Value = serde_json::from_str(last.strip_prefix("data: ").unwrap_or(last)).unwrap_or_default();
    assert!(dialect.error_text(&error).is_some(), "{dialect:?}: {stream:?}");
    assert_eq!(two.away.count(), 0, "{dialect:?}: nothing is sent elsewhere");
    let receipt = two.receipt(&reply).await;
    assert_eq!((&receipt["outcome"], &receipt["resumed"]), (&json!("cut"), &json!(0)));
    two.gate.idle().await;
}
