//! Other dialects: Ollama's at an engine that speaks OpenAI, and those that pass as they are.

use serde_json::{Value, json};

use crate::gate::{Gate, Settings};
use crate::rig::{Single, node};
use crate::talk::MODEL;
use crate::upstream::{Hold, Model, Script, Upstream};

/// A gate over one OpenAI-type server with `Fern-3B`.
async fn openai() -> (Gate, Upstream) {
    let node = Upstream::openai("gpu", vec![Model::resident("Fern-3B")]).await;
    let gate = Gate::start(&Settings::over(&[&node])).await;
    (gate, node)
}

fn chat(fields: Value) -> String {
    let mut body = json!({"model": "Fern-3B", "messages": [{"role": "user", "content": "hello"}]});
    body.as_object_mut().expect("an object").extend(fields.as_object().expect("fields").clone());
    body.to_string()
}

fn lines(text: &[u8]) -> Vec<Value> {
    String::from_utf8_lossy(text).lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
}

#[tokio::test]
async fn an_ollama_chat_streams_from_an_openai_server() {
    let (gate, node) = openai().await;

    let mut reply = gate.post("/api/chat", chat(json!({"options": {"num_predict": 7}}))).await;

    assert_eq!((reply.status, reply.node()), (200, "gpu"));
    assert_eq!(reply.header("content-type"), Some("application/x-ndjson"));
    let lines = lines(&reply.whole().await);
    let said: String = lines.iter().filter_map(|line| line["message"]["content"].as_str()).collect();
    assert_eq!(said, "all is well");
    let last = lines.last().expect("lines");
    assert_eq!(
        (&last["done"], &last["done_reason"], &last["model"]),
        (&json!(true), &json!("stop"), &json!("Fern-3B"))
    );
    let record = node.request(0).await;
    assert_eq!(record.path, "/v1/chat/completions");
    let asked: Value = serde_json::from_slice(&record.body).expect("JSON");
    assert_eq!((&asked["max_tokens"], &asked["stream"]), (&json!(7), &json!(true)));
}

#[tokio::test]
async fn str_01_a_translated_line_leaves_as_its_event_comes() {
    let (gate, node) = openai().await;
    let hold = Hold::new();
    let event = |text: &str| format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": text}}]}));
    node.next(Script::sse().chunk(event("one")).hold(&hold).chunk(event("two")).chunk("data: [DONE]\n\n").finish());

    let mut reply = gate.post("/api/chat", chat(json!({}))).await;
    let first = reply.expect_piece().await;
    hold.open();

    assert_eq!(lines(&first)[0]["message"]["content"], "one");
    assert_eq!(lines(&reply.whole().await).last().expect("a last line")["done"], true);
}

#[tokio::test]
async fn plain_answers_and_errors_are_translated_too() {
    let (gate, node) = openai().await;

    let whole = gate.post("/api/chat", chat(json!({"stream": false}))).await.json().await;
    node.next(Script::json(400, &json!({"error": {"message": "too long"}})));
    let mut refused = gate.post("/api/chat", chat(json!({"stream": false}))).await;

    assert_eq!((&whole["message"]["content"], &whole["done"]), (&json!("all is well"), &json!(true)));
    assert_eq!((refused.status, refused.json().await), (400, json!({"error": "too long"})));
}

#[tokio::test]
async fn what_the_model_writes_is_no_failure_of_a_node() {
    let [one, two] = ["one", "two"].map(|name| Upstream::openai(name, vec![Model::resident("Fern-3B")]));
    let (one, two) = (one.await, two.await);
    let quick = "resilience: {breaker: {failures: 2}}";
    let gate = Gate::start(&Settings::over(&[&one, &two]).more(quick)).await;
    let calls = json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"x\":"}}]);
    let whole = json!({"choices": [{"message": {"tool_calls": calls.clone()}, "finish_reason": "tool_calls"}]});
    let event = json!({"choices": [{"delta": {"tool_calls": calls}, "finish_reason": "tool_calls"}]});
    for n in 0..8 {
        let stream = n % 2 == 1;
        for node in [&one, &two] {
            node.always(match stream {
                true => Script::sse().chunk(format!("data: {event}\n\n")).chunk("data: [DONE]\n\n").finish(),
                false => Script::json(200, &whole),
            });
        }
        let mut reply = gate.post("/api/chat", chat(json!({"stream": stream}))).await;

        let told = lines(&reply.whole().await);
        assert_eq!((reply.status, told.len()), (if stream { 200 } else { 500 }, 1), "{told:?}");
        assert!(told[0]["error"].as_str().expect("an error").contains("arguments"), "{told:?}");
        assert_eq!(reply.header("x-should-retry"), (!stream).then_some("false"));
        assert_eq!(one.count() + two.count(), n + 1, "asked once");
    }
    for node in &gate.status().await["nodes"].as_array().expect("nodes")[..] {
        assert_eq!(node["models"][0]["standing"]["state"], "up", "{node}");
    }
}

#[tokio::test]
async fn a_translated_stream_that_fails_says_so_once() {
    let (gate, node) = openai().await;
    let event = json!({"choices": [{"index": 0, "delta": {"content": "one"}}]});
    node.next(Script::sse().chunk(format!("data: {event}\n\n")).chunk("data: {\n\ndata: [DONE]\n\n").finish());

    let told = lines(&gate.post("/api/chat", chat(json!({}))).await.whole().await);

    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[1]["error"].is_string(), "{told:?}");
}

#[tokio::test]
async fn str_10_a_translated_stream_that_is_cut_says_so() {
    let (gate, node) = openai().await;
    let hold = Hold::new();
    let event = format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": "one"}}]}));
    node.next(Script::sse().chunk(event).hold(&hold).reset());

    let mut reply = gate.post("/api/chat", chat(json!({}))).await;
    reply.expect_piece().await;
    hold.open();
    let (rest, _) = reply.rest().await;

    let rest = lines(&rest);
    assert!(rest.last().expect("an error line")["error"].is_string(), "{rest:?}");
    assert!(rest.iter().all(|line| line["done"] != true), "{rest:?}");
    gate.idle().await;
}

#[tokio::test]
async fn what_cannot_be_said_there_is_refused_by_its_name() {
    let (gate, node) = openai().await;
    let body = json!({"model": "Fern-3B", "prompt": "x", "context": [1, 2]}).to_string();

    let mut reply = gate.post("/api/generate", body).await;

    assert_eq!(reply.status, 400);
    let text = reply.json().await["error"].to_string();
    assert!(text.contains("context"), "{text}");
    assert_eq!(node.count(), 0);
}

#[tokio::test]
async fn a_request_to_load_needs_no_node_where_all_is_loaded() {
    let (gate, node) = openai().await;

    let mut reply = gate.post("/api/generate", json!({"model": "Fern-3B"}).to_string()).await;

    assert_eq!(reply.status, 200);
    let answer = reply.json().await;
    assert_eq!((&answer["done"], &answer["done_reason"]), (&json!(true), &json!("load")));
    assert_eq!(node.count(), 0);
    gate.idle().await;
}

#[tokio::test]
async fn cat_12_a_native_holder_is_never_replaced_by_translation() {
    let mut native = node("native").await;
    let other = Upstream::openai("other", vec![Model::resident(MODEL)]).await;
    let gate = Gate::start(&Settings::over(&[&native, &other])).await;
    let body = json!({"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}).to_string();

    for _ in 0..10 {
        assert_eq!(gate.post("/api/chat", body.clone()).await.node(), "native");
    }
    native.kill().await;
    let mut down = gate.post("/api/chat", body).await;

    assert!((502..=503).contains(&down.status), "{}", down.status);
    assert!(down.json().await["error"].is_string());
    assert_eq!(other.count(), 0);
}

#[tokio::test]
async fn models_that_are_reached_by_translation_are_listed() {
    let (gate, _) = openai().await;
    let tags = gate.get("/api/tags").await.json().await;
    assert_eq!(tags["models"][0]["name"], "Fern-3B");
    assert!(tags["models"][0]["details"].is_object());
}

#[tokio::test]
async fn anthropic_messages_pass_as_they_are() {
    let single = Single::new().await;
    let said = json!({"type": "message", "content": [{"type": "text", "text": "hi"}], "usage": {"input_tokens": 3}});
    single.node.next(Script::json(200, &said));
    let body =
        r#"{"model":"moss:7b","max_tokens":9,"system":"Be brief","messages":[{"role":"user","content":"hello"}]}"#;

    let mut reply = single.gate.post("/v1/messages?beta=true", body).await;

    assert_eq!(reply.status, 200);
    assert_eq!(reply.json().await, said);
    let record = single.node.request(0).await;
    assert_eq!((record.path.as_str(), &record.body[..]), ("/v1/messages?beta=true", body.as_bytes()));
    let mut refused = single.gate.post("/v1/messages", "{}").await;
    assert_eq!(refused.json().await["type"], "error", "Anthropic's own form");
}

#[tokio::test]
async fn tokens_are_counted_here_for_an_engine_that_does_not() {
    let single = Single::new().await;
    let body = r#"{"model":"moss:7b","messages":[{"role":"user","content":"Hello world"}]}"#;

    let mut reply = single.gate.post("/v1/messages/count_tokens", body).await;

    assert_eq!((reply.status, reply.node()), (200, "warmgate"), "marked as no engine's");
    assert_eq!(reply.json().await, json!({"input_tokens": 6}));
    assert_eq!(single.node.count(), 0);
}

#[tokio::test]
async fn bod_09_a_form_is_routed_by_its_model_wherever_it_stands() {
    let node = Upstream::openai("ears", vec![Model::resident("quill-asr")]).await;
    let gate = Gate::start(&Settings::over(&[&node])).await;
    let file = format!(
        "--edge\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n{}\r\n",
        "\u{0}\u{1}--edg".repeat(100_000)
    );
    let model = "--edge\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nquill-asr\r\n";
    for (n, form) in
        [format!("{file}{model}--edge--\r\n"), format!("{model}{file}--edge--\r\n")].into_iter().enumerate()
    {
        let request = crate::client::Request::post("/v1/audio/transcriptions", form.clone());
        let request = request.replacing("Content-Type", "multipart/form-data; boundary=edge");
        let reply = gate.send(&request).await;
        assert_eq!((reply.status, reply.node()), (200, "ears"));
        assert!(node.request(n).await.body == form.as_bytes(), "other bytes arrived");
    }
}
