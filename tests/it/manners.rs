//! What passes between a client and a node, and what does not: faults of one are not the other's.

use serde_json::json;

use crate::client::{Conn, Request};
use crate::gate::{Gate, Settings};
use crate::rig::{Pair, Single, finished, node};
use crate::talk::{Dialect, MODEL, Talk};
use crate::upstream::{Model, Script, Upstream};

#[tokio::test]
async fn ret_09_a_conversation_does_not_stay_with_a_node_that_answers_500() {
    let pair = Pair::new(Dialect::Ollama).await;
    pair.home.next(Script::json(500, &json!({"error": "llama runner process has terminated"})));

    let moved = finished(&pair.gate, &pair.talk).await;
    let talk = pair.talk.clone().then("Since when?");
    let after = finished(&pair.gate, &talk).await;

    assert_eq!((moved.status, moved.node(), moved.affinity()), (200, pair.away.name(), "moved"));
    assert_eq!((after.status, after.node(), after.affinity()), (200, pair.away.name(), "session"));
}

#[tokio::test]
async fn ret_14_the_last_node_s_500_is_the_client_s_to_read() {
    let single = Single::new().await;
    let words = json!({"error": "out of memory"});
    single.node.next(Script::json(500, &words));

    let mut reply = single.gate.send(&Talk::about(Dialect::Ollama, "moss").ask()).await;

    assert_eq!(reply.status, 500);
    assert_eq!(reply.json().await, words);
}

#[tokio::test]
async fn a_redirect_or_a_refused_key_is_no_answer_for_a_client() {
    for status in [302, 401, 403] {
        let pair = Pair::new(Dialect::OpenAi).await;
        pair.home.next(Script::json(status, &json!({"error": {"message": "see http://10.0.0.5/secret"}})));
        let reply = finished(&pair.gate, &pair.talk).await;
        assert_eq!((reply.status, reply.node()), (200, pair.away.name()), "{status}");

        let single = Single::new().await;
        single.node.next(Script::json(status, &json!({"error": {"message": "see http://10.0.0.5/secret"}})));
        let mut reply = single.gate.send(&Talk::about(Dialect::OpenAi, "moss").ask()).await;
        assert_eq!(reply.status, 502, "{status}");
        assert!(!reply.json().await.to_string().contains("10.0.0.5"), "{status}: sec_09");
    }
}

#[tokio::test]
async fn a_model_s_name_that_no_header_can_carry_harms_nobody() {
    let pair = Pair::new(Dialect::Ollama).await;
    for name in ["moss:7b\n", "moss:7b\r\nX-Evil: 1", "moss:7b\u{b}", "\u{1b}[31m"] {
        let body = json!({"model": name, "messages": [{"role": "user", "content": "hello"}]}).to_string();
        let reply = pair.gate.post("/api/chat", body).await;
        assert!((400..=404).contains(&reply.status), "{name:?}: {}", reply.status);
    }

    let reply = finished(&pair.gate, &pair.talk).await;

    assert_eq!(reply.node(), pair.home.name());
    assert_eq!(pair.away.count(), 0, "nothing was sent to the other node");
    let receipt = pair.gate.receipt(reply.request_id()).await;
    for candidate in receipt["decision"]["candidates"].as_array().expect("candidates") {
        assert_eq!(candidate["signals"]["availability"], 10.0, "no node is blamed");
    }
}

#[tokio::test]
async fn a_404_for_embeddings_does_not_take_the_model_from_its_chats() {
    let pair = Pair::new(Dialect::Ollama).await;
    pair.home.always(Script::json(404, &json!({"error": "404 page not found"})));
    pair.away.always(Script::json(404, &json!({"error": "404 page not found"})));
    let body = json!({"model": MODEL, "input": "x"}).to_string();
    assert_eq!(pair.gate.post("/v1/embeddings", body).await.status, 404);
    pair.home.always(Script::usual());
    pair.away.always(Script::usual());

    let reply = finished(&pair.gate, &pair.talk).await;

    assert_eq!((reply.node(), reply.affinity()), (pair.home.name(), "session"));
}

#[tokio::test]
async fn bod_12_nothing_is_read_behind_a_broken_chunk() {
    let single = Single::new().await;
    let mut conn = single.gate.connect().await;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    conn.write(format!("{head}zz\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await;

    let reply = conn.reply(&Request::post("/v1/chat/completions", "")).await;

    assert_eq!(reply.status, 400);
    assert!(reply.closes_after().await, "the connection is closed after the refusal");
}

#[tokio::test]
async fn a_refusal_says_whether_its_connection_goes_on() {
    let single = Single::new().await;
    for (body, status) in [("{}", 400), (r#"{"model": "nowhere", "messages": []}"#, 404)] {
        for path in ["/api/chat", "/v1/chat/completions", "/v1/messages"] {
            let request = Request::post(path, body);
            let reply = single.gate.connect().await.exchange(&request).await;
            assert_eq!(reply.status, status, "{path} {body}");
            if reply.header("connection") == Some("close") {
                assert!(reply.closes_after().await, "{path} {body}");
            } else {
                let again = reply.reuse().await.exchange(&request).await;
                assert_eq!(again.status, status, "{path} {body}");
            }
        }
    }
}

#[tokio::test]
async fn sec_01_no_credential_of_the_client_s_reaches_a_node() {
    let single = Single::new().await;
    let mut request = Talk::about(Dialect::OpenAi, "moss").ask();
    let names = [
        "Authorization",
        "X-Api-Key",
        "Api-Key",
        "X-Goog-Api-Key",
        "Proxy-Authorization",
        "Cookie",
        "X-LiteLLM-Api-Key",
        "Ocp-Apim-Subscription-Key",
        "X-Auth-Token",
    ];
    for name in names {
        request = request.header(name, "Bearer canary");
    }
    single.gate.send(&request).await.whole().await;
    let body = json!({"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}).to_string();
    single.gate.post("/v1/chat/completions?api_key=canary", body).await.whole().await;

    for n in 0..2 {
        let record = single.node.request(n).await;
        let head = format!("{:?}", record.head);
        assert!(!head.contains("canary"), "{head}");
    }
}

#[tokio::test]
async fn a_target_that_is_no_path_is_refused_and_not_taken_for_the_root() {
    let single = Single::new().await;
    for target in ["foo", "v1/models", "127.0.0.1:80"] {
        let mut reply = single.gate.get(target).await;
        assert_eq!(reply.status, 400, "{target}");
        let said = String::from_utf8_lossy(&reply.whole().await).into_owned();
        assert!(said.contains("begins with a slash"), "{target}: {said}");
    }
    for target in ["/v1/models", "http://warmgate.test/v1/models", "//v1/models"] {
        assert_ne!(single.gate.get(target).await.status, 400, "{target}");
    }
}

#[tokio::test]
async fn keys_that_differ_are_refused_whoever_would_have_read_which() {
    let single = Single::new().await;
    let ask = || Talk::about(Dialect::OpenAi, "moss").ask().header("Authorization", "Bearer one");
    assert_eq!(single.gate.send(&ask().header("Authorization", "Bearer two")).await.status, 400);
    assert_eq!(single.gate.send(&ask().header("Authorization", "Bearer one")).await.status, 200);
    assert_eq!(single.node.count(), 1);
}

#[tokio::test]
async fn a_model_is_not_declared_unknown_while_a_node_has_not_answered() {
    let lively = node("lively").await;
    let mut gone = Upstream::ollama("gone", vec![Model::resident("fern:3b")]).await;
    gone.kill().await;
    let gate = Gate::start(&Settings::over(&[&lively, &gone])).await;

    let body = json!({"model": "fern:3b", "messages": [{"role": "user", "content": "hello"}]}).to_string();
    let mut reply = gate.post("/api/chat", body).await;

    assert_eq!(reply.status, 503);
    assert!(reply.header("retry-after").is_some());
    assert!(reply.json().await["error"].is_string());
}

#[tokio::test]
async fn readiness_says_what_is_wrong_without_saying_where() {
    let mut gone = node("gone").await;
    gone.kill().await;
    let gate = Gate::start_not_ready(&Settings::over(&[&gone])).await;

    let mut reply = gate.get("/readyz").await;

    assert_eq!(reply.status, 503);
    let text = reply.json().await.to_string();
    assert!(!text.contains("127.0.0.1"), "{text}");
}

#[tokio::test]
async fn the_admin_port_minds_by_which_name_it_is_asked() {
    let single = Single::new().await;
    for (host, status) in [("localhost", 200), ("127.0.0.1:9435", 200), ("[::1]:1", 200), ("evil.test", 403)] {
        let conn = Conn::open(single.gate.admin_address()).await;
        let reply = conn.exchange(&Request::get_as(host, "/fleet/status")).await;
        assert_eq!(reply.status, status, "{host}");
    }
}
