//! Ollama's managing calls: refused unless allowed, then to stated nodes, and never twice.

mod blobs;
mod unload;

use serde_json::{Value, json};

use crate::client::{Reply, Request};
use crate::gate::{Gate, Settings};
use crate::rig::node;
use crate::talk::MODEL;
use crate::upstream::{Hold, Model, Script, Upstream};

const ON: &str = "management: true";

/// Two Ollama nodes and one of another engine, with managing allowed.
struct Trio {
    gate: Gate,
    n1: Upstream,
    n2: Upstream,
    other: Upstream,
}

impl Trio {
    async fn new() -> Trio {
        let [n1, n2] = [node("n1").await, node("n2").await];
        let other = Upstream::openai("other", vec![Model::resident("ash-1b")]).await;
        let gate = Gate::start(&Settings::over(&[&n1, &n2, &other]).more(ON)).await;
        Trio { gate, n1, n2, other }
    }
}

#[tokio::test]
async fn sec_08_without_leave_nothing_is_managed() {
    let n1 = node("n1").await;
    let gate = Gate::start(&Settings::over(&[&n1])).await;
    let model = json!({"model": MODEL, "name": MODEL, "source": MODEL, "destination": "x"}).to_string();
    for (method, path) in [
        ("DELETE", "/api/delete"),
        ("POST", "/api/pull"),
        ("POST", "/api/push"),
        ("POST", "/api/create"),
        ("POST", "/api/copy"),
        ("POST", "/api/blobs/x"),
        ("POST", &blobs::path(1)),
    ] {
        let mut reply = gate.send(&with_body(method, path, &model)).await;
        assert_eq!(reply.status, 403, "{method} {path}");
        let error = reply.json().await["error"].as_str().expect("Ollama's form").to_owned();
        assert!(error.contains("management: true"), "{error}");
    }
    assert_eq!(gate.send(&Request::new("HEAD", &blobs::path(1))).await.status, 403);
    for path in
        ["/api/me", "/api/signout", "/api/experimental/web_search", "/slots/0", "/metrics", "/v1/load_lora_adapter"]
    {
        assert_eq!(gate.send(&with_body("POST", path, &model)).await.status, 404, "{path}");
    }
    assert_eq!((n1.count(), n1.blob_calls()), (0, 0), "no node was asked");
}

#[tokio::test]
async fn sec_03_no_spelling_of_a_path_gets_through() {
    let trio = Trio::new().await;
    let body = json!({"model": MODEL}).to_string();
    for path in [
        "//api/delete",
        "/v1/../api/delete",
        "/api/%64elete",
        "/api/x/..%2fdelete",
        "/API/delete",
        "/api/delete/",
        "/api/delete;x",
        "/api/blobs/..%2f..%2fdelete",
        "/api/blobs/../delete",
        "/api/blobs/sha256:0",
        "/api/user/keys/k",
    ] {
        let status = trio.gate.send(&with_body("DELETE", path, &body)).await.status;
        assert!(matches!(status, 400 | 404 | 405), "{path}: {status}");
    }
    let status = trio.gate.post("/api/blobs/sha256:..%2f..%2fdelete", body).await.status;
    assert_eq!(status, 400);
    assert_eq!((trio.n1.count(), trio.n2.count()), (0, 0));
    assert_eq!((trio.n1.blob_calls(), trio.n2.blob_calls()), (0, 0));
}

#[tokio::test]
async fn cat_09_a_pull_at_two_nodes_succeeds_when_both_have() {
    let trio = Trio::new().await;
    let hold = Hold::new();
    trio.n1.next(progress(&["pulling"]).hold(&hold).chunk(line("success")).finish());
    trio.n2.next(progress(&["pulling", "success"]).finish());

    let mut reply = trio.pull("new:1b", "n1,n2").await;
    assert_eq!((reply.status, reply.header("x-fleet-node")), (200, Some("n1,n2")));
    let mut early = Vec::new();
    while early.len() < 3 {
        early.extend(lines(&reply.expect_piece().await));
    }
    assert!(early.iter().all(|line| line["status"] != "success"), "{early:?}");
    assert!(early.iter().any(|line| line["node"] == "n2" && line["status"] == "done"), "{early:?}");
    assert!(early.iter().any(|line| line["node"] == "n1" && line["status"] == "pulling"), "{early:?}");
    trio.n1.set_models(vec![Model::resident(MODEL), Model::on_disk("new:1b")]);
    hold.open();

    let rest = lines(&reply.whole().await);
    assert_eq!(rest.last(), Some(&json!({"status": "success"})));
    let tags = trio.gate.get("/api/tags").await.json().await;
    assert!(tags.to_string().contains("new:1b"), "the lists have it at once: {tags}");
    assert_eq!(trio.other.count(), 0, "another engine was asked");
    let receipt = trio.gate.receipt(reply.request_id()).await;
    assert_eq!((&receipt["outcome"], &receipt["node"]), (&json!("ok"), &json!("n1,n2")));
}

#[tokio::test]
async fn cat_09_a_node_that_fails_is_named_in_the_last_line() {
    let trio = Trio::new().await;
    trio.n1.next(progress(&["pulling", "success"]).finish());
    trio.n2.next(progress(&["pulling"]).chunk("{\"error\":\"no such manifest\"}\n").finish());

    let mut reply = trio.pull("new:1b", "all").await;
    let told = lines(&reply.whole().await);

    assert_eq!(told.last(), Some(&json!({"error": "not pulled on n2: no such manifest; pulled on n1"})));
    assert_eq!(told.iter().filter(|line| line.get("error").is_some()).count(), 1);
    assert_eq!(trio.gate.receipt(reply.request_id()).await["outcome"], "stream_error");

    for script in [progress(&["pulling"]).close(), progress(&["pulling"]).finish()] {
        trio.n1.next(progress(&["success"]).finish());
        trio.n2.next(script);
        let told = lines(&trio.pull("new:1b", "all").await.whole().await);
        let error = told.last().expect("a last line")["error"].as_str().expect("an error").to_owned();
        assert!(error.starts_with("not pulled on n2: ") && error.ends_with("pulled on n1"), "{error}");
    }
    trio.n1.next(Script::json(400, &json!({"error": "invalid model name"})));
    trio.n2.next(Script::json(400, &json!({"error": "invalid model name"})));
    let reply = trio.pull("new:1b", "all").await;
    assert_eq!(reply.status, 400);
    assert_eq!((trio.n1.count(), trio.n2.count()), (4, 4), "nothing was sent twice");
}

#[tokio::test]
async fn cat_09_a_whole_answer_waits_for_all() {
    let trio = Trio::new().await;
    trio.n1.next(Script::json(200, &json!({"status": "success"})));
    trio.n2.next(Script::json(200, &json!({"status": "success"})));
    let body = json!({"model": "new:1b", "stream": false}).to_string();
    let request = with_body("POST", "/api/pull", &body).header("X-Fleet-Nodes", "all");

    let mut reply = trio.gate.send(&request).await;

    assert_eq!(reply.json().await, json!({"status": "success"}));
    assert_eq!((trio.n1.count(), trio.n2.count()), (1, 1));
}

#[tokio::test]
async fn cat_09_a_new_model_goes_to_one_node_with_its_own_words() {
    let n1 = Upstream::ollama("n1", vec![Model::resident(MODEL), Model::on_disk("oak:70b")]).await;
    let n2 = node("n2").await;
    let gate = Gate::start(&Settings::over(&[&n1, &n2]).more(ON)).await;
    n2.next(progress(&["pulling", "success"]).finish());
    let asked = json!({"model": "new:1b", "insecure": true}).to_string();

    let mut reply = gate.post("/api/pull", asked.clone()).await;

    assert_eq!(reply.node(), "n2", "it has fewer bytes of models");
    assert_eq!(lines(&reply.whole().await), [json!({"status": "pulling"}), json!({"status": "success"})]);
    assert_eq!(n2.request(0).await.body, asked);
    assert_eq!(n1.count(), 0);
    for (nodes, status) in [("n3", 400), ("n1,n3", 400)] {
        let request = with_body("POST", "/api/pull", &asked).header("X-Fleet-Nodes", nodes);
        assert_eq!(gate.send(&request).await.status, status, "{nodes}");
    }
}

#[tokio::test]
async fn cat_09_a_client_that_leaves_stops_the_pull_everywhere() {
    for nodes in ["n1,n2", "n1"] {
        let trio = Trio::new().await;
        for node in [&trio.n1, &trio.n2] {
            node.next(progress(&["pulling"]).hold(&Hold::new()));
        }
        let mut reply = trio.pull("new:1b", nodes).await;
        reply.expect_piece().await;
        trio.n1.request(0).await;
        if nodes.contains("n2") {
            trio.n2.request(0).await;
        }

        let left = std::time::Instant::now();
        drop(reply);

        let mut took = trio.n1.peer_gone(0).await.duration_since(left);
        if nodes.contains("n2") {
            took = took.max(trio.n2.peer_gone(0).await.duration_since(left));
        }
        assert!(took.as_millis() < 500, "{nodes}: told only after {took:?}");
    }
}

#[tokio::test]
async fn cat_09_a_delete_goes_to_every_holder_in_its_own_spelling() {
    let n1 = Upstream::ollama("n1", vec![Model::resident("Moss:7b")]).await;
    let n2 = node("n2").await;
    let n3 = Upstream::ollama("n3", vec![Model::resident("fern:3b")]).await;
    let gate = Gate::start(&Settings::over(&[&n1, &n2, &n3]).more(ON)).await;
    let asked = Hold::new();
    let done = Script::held(&asked).then_head(200, 0);
    n1.next(done.clone());
    n2.next(done);
    let request = with_body("DELETE", "/api/delete", &json!({"name": "moss:7B"}).to_string());

    let conn = gate.connect().await;
    let reply = tokio::spawn({
        let request = request.clone();
        async move { conn.exchange(&request).await }
    });
    for node in [&n1, &n2] {
        node.request(0).await;
        node.set_models(vec![]);
    }
    asked.open();
    let mut reply = reply.await.expect("an answer");

    assert_eq!((reply.status, reply.whole().await.len()), (200, 0));
    assert_eq!(n1.request(0).await.body, json!({"name": "Moss:7b"}).to_string());
    let record = n2.request(0).await;
    assert_eq!((record.method.as_str(), record.path.as_str()), ("DELETE", "/api/delete"));
    assert_eq!(record.body, json!({"name": "moss:7b"}).to_string());
    assert_eq!(n3.count(), 0);
    let tags = gate.get("/api/tags").await.json().await.to_string();
    assert!(tags.contains("fern:3b") && !tags.to_lowercase().contains("moss:7b"), "{tags}");
    assert_eq!(gate.send(&request).await.status, 404, "it is gone");
}

#[tokio::test]
async fn cat_09_a_holder_that_does_not_delete_is_named() {
    let mut trio = Trio::new().await;
    let request = with_body("DELETE", "/api/delete", &json!({"model": MODEL}).to_string());
    trio.n1.next(Script::json_head(200, 0));
    trio.n2.kill().await;

    let mut reply = trio.gate.send(&request).await;
    let body = reply.json().await;

    assert_eq!(reply.status, 502);
    assert_eq!(body, json!({"error": "not deleted on n2: connection refused; deleted on n1"}));
    assert!(!body.to_string().contains(&trio.n2.address().port().to_string()), "sec_09");
}

#[tokio::test]
async fn cat_09_a_copy_goes_to_every_holder_of_its_source() {
    let trio = Trio::new().await;
    trio.n1.next(Script::json_head(200, 0));
    trio.n2.next(Script::json_head(200, 0));
    let body = json!({"source": "MOSS:7b", "destination": "mine"}).to_string();

    assert_eq!(trio.gate.post("/api/copy", body).await.status, 200);

    for node in [&trio.n1, &trio.n2] {
        let asked: Value = serde_json::from_slice(&node.request(0).await.body).expect("JSON");
        assert_eq!(asked, json!({"source": MODEL, "destination": "mine"}));
    }
    let body = json!({"source": "none", "destination": "mine"}).to_string();
    assert_eq!(trio.gate.post("/api/copy", body).await.status, 404);
}

#[tokio::test]
async fn cat_09_a_push_goes_to_one_holder_and_is_never_repeated() {
    let trio = Trio::new().await;
    trio.n1.next(progress(&["pushing", "success"]).finish());
    let body = json!({"model": MODEL}).to_string();
    let mut reply = trio.gate.post("/api/push", body.clone()).await;
    assert_eq!((reply.status, reply.node()), (200, "n1"));
    reply.whole().await;

    for script in [Script::closing(), Script::json(500, &json!({"error": "boom"}))] {
        trio.n1.next(script);
        let mut reply = trio.gate.post("/api/push", body.clone()).await;
        assert!(matches!(reply.status, 500 | 502), "{}", reply.status);
        assert!(reply.json().await["error"].is_string());
    }
    assert_eq!((trio.n1.count(), trio.n2.count()), (3, 0));
}

#[tokio::test]
async fn cat_09_the_node_s_own_key_goes_along_and_the_client_s_does_not() {
    let n1 = node("n1").await;
    let key = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(key.path(), "n1-key\n").expect("a key");
    let yaml = format!(
        "listen: [{{address: \"127.0.0.1:0\"}}]\nadmin: {{address: \"127.0.0.1:0\"}}\nmanagement: true\nupstreams:\n  \
         - {{name: n1, url: \"{}\", engine: ollama, api_key: {{file: \"{}\"}}}}\n",
        n1.url(),
        key.path().display()
    );
    let gate = Gate::start(&Settings::raw(&yaml)).await;
    n1.next(progress(&["success"]).finish());
    let body = json!({"model": "new:1b"}).to_string();
    let request = with_body("POST", "/api/pull", &body).header("Authorization", "Bearer mine");
    gate.send(&request).await.whole().await;
    n1.next(Script::json(200, &json!({"done": true})));
    let body = json!({"model": MODEL, "keep_alive": 0}).to_string();
    gate.send(&with_body("POST", "/api/generate", &body).header("Authorization", "Bearer mine")).await.whole().await;
    for n in 0..2 {
        assert_eq!(n1.request(n).await.head.get("authorization"), Some("Bearer n1-key"), "request {n}");
    }
}

#[tokio::test]
async fn nodes_that_are_named_unreadably_are_not_taken_for_every_holder() {
    let trio = Trio::new().await;
    let body = json!({"model": MODEL}).to_string();
    for nodes in ["", " ", ",", " , ", "n\u{e9}"] {
        let request = with_body("DELETE", "/api/delete", &body).header("X-Fleet-Nodes", nodes);
        let mut reply = trio.gate.send(&request).await;
        assert_eq!(reply.status, 400, "{nodes:?}");
        let error = reply.json().await["error"].as_str().expect("Ollama's form").to_owned();
        assert!(error.contains("write `all`, or names"), "{error}");
    }
    let request = with_body("DELETE", "/api/delete", &body).header("X-Fleet-Nodes", "n9");
    let error = trio.gate.send(&request).await.json().await;
    assert_eq!(error, json!({"error": "there is no node 'n9'; its name may be misspelt"}), "no path of another port");
    assert_eq!((trio.n1.count(), trio.n2.count()), (0, 0), "no node was asked");

    let several = with_body("DELETE", "/api/delete", &body);
    let several = several.header("X-Fleet-Nodes", "n1").header("X-Fleet-Nodes", "n2");
    trio.n1.next(Script::json_head(200, 0));
    trio.n2.next(Script::json_head(200, 0));
    assert_eq!(trio.gate.send(&several).await.status, 200);
    assert_eq!((trio.n1.count(), trio.n2.count()), (1, 1), "every line of the header counts");
}

#[tokio::test]
async fn clients_that_do_not_end_their_calls_keep_no_place_from_others() {
    let trio = Trio::new().await;
    let mut slow = Vec::new();
    for _ in 0..33 {
        let mut conn = trio.gate.connect().await;
        conn.write(b"POST /api/pull HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 50\r\n\r\n{").await;
        // Told to go on: its body is being read.
        assert_eq!(conn.interim().await, 100);
        slow.push(conn);
    }
    trio.n1.next(Script::json_head(200, 0));
    let request = with_body("DELETE", "/api/delete", &json!({"model": MODEL}).to_string());
    assert_eq!(trio.gate.send(&request.header("X-Fleet-Nodes", "n1")).await.status, 200);
}

#[tokio::test]
async fn long_calls_leave_places_for_short_ones() {
    let trio = Trio::new().await;
    trio.n1.always(progress(&["pulling"]).hold(&Hold::new()));
    let mut pulls = Vec::new();
    for n in 0..24 {
        let reply = trio.pull("new:1b", "n1").await;
        assert_eq!(reply.status, 200, "pull {n}");
        pulls.push(reply);
    }
    let refused = trio.pull("new:1b", "n1").await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(trio.gate.post(&blobs::path(1), "x").await.status, 503, "an upload is one too");
    assert_eq!(trio.gate.send(&Request::new("HEAD", &blobs::path(1))).await.status, 404, "the node's own answer");

    trio.n1.next(Script::json_head(200, 0));
    let request = with_body("DELETE", "/api/delete", &json!({"model": MODEL}).to_string());
    assert_eq!(trio.gate.send(&request.header("X-Fleet-Nodes", "n1")).await.status, 200);
}

impl Trio {
    async fn pull(&self, model: &str, nodes: &str) -> Reply {
        let body = json!({"model": model}).to_string();
        self.gate.send(&with_body("POST", "/api/pull", &body).header("X-Fleet-Nodes", nodes)).await
    }
}

fn with_body(method: &str, path: &str, body: &str) -> Request {
    Request::post(path, body.to_owned()).by(method)
}

fn progress(statuses: &[&str]) -> Script {
    statuses.iter().fold(Script::ndjson(), |script, status| script.chunk(line(status)))
}

fn line(status: &str) -> String {
    json!({"status": status}).to_string() + "\n"
}

fn lines(bytes: &[u8]) -> Vec<Value> {
    let text = String::from_utf8_lossy(bytes);
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
}
