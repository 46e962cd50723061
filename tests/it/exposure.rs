//! What must not get out: keys, prompts and places; and which web pages may come in.

use serde_json::json;

use crate::client::{Reply, Request};
use crate::exposition::Exposition;
use crate::gate::{Gate, Settings};
use crate::rig::{Pair, Single, finished, node};
use crate::talk::{Dialect, MODEL, Talk};
use crate::tenants::{by, tenants};
use crate::upstream::{Model, Script, Upstream};

/// Tests come from this machine, which is believed otherwise.
const NOBODY_BELIEVED: &str = "trusted_peers: []";

fn ask() -> Request {
    Talk::about(Dialect::OpenAi, "moss").ask()
}

#[tokio::test]
async fn sec_01_no_credential_goes_along_with_a_second_attempt() {
    let pair = Pair::new(Dialect::OpenAi).await;
    pair.home.next(Script::json(503, &json!({"error": "busy"})));
    let request = pair.talk.ask().header("Authorization", "Bearer canary").header("X-Api-Key", "canary");

    let mut reply = pair.gate.send(&request.header("Cookie", "session=canary")).await;
    reply.whole().await;

    assert_eq!(reply.node(), pair.away.name());
    for record in [pair.home.request(1).await, pair.away.request(0).await] {
        let head = format!("{:?}", record.head);
        assert!(!head.contains("canary"), "{head}");
    }
}

/// A node that gets the client's keys, and one that gets none and is asked only when the first cannot serve, or
/// the other way round.
async fn with_keys(forwards_first: bool) -> (Gate, Upstream, Upstream) {
    let (first, second) = (node("n1").await, node("n2").await);
    let settings = Settings::over(&[&first]);
    let settings = if forwards_first { settings.with_fields("auth: forward, api_key: {env: PATH}") } else { settings };
    let auth = if forwards_first { "replace" } else { "forward" };
    let entry =
        format!("name: n2, url: \"{}\", engine: ollama, tier: 1, auth: {auth}, api_key: {{env: PATH}}", second.url());
    (Gate::start(&settings.upstream(&entry)).await, first, second)
}

fn with_client_keys() -> Request {
    ask().header("Authorization", "Bearer cv-1").header("X-Api-Key", "cv-2").header("X-Goog-Api-Key", "cv-3")
}

/// The client's keys that came with a node's latest request.
async fn keys_at(node: &Upstream) -> Vec<&'static str> {
    let head = node.request(node.count() - 1).await.head;
    let head = format!("{head:?}");
    ["cv-1", "cv-2", "cv-3"].into_iter().filter(|key| head.contains(key)).collect()
}

#[tokio::test]
async fn sec_02_the_client_s_keys_go_to_the_node_that_checks_them_and_to_no_other() {
    for forwards_first in [true, false] {
        let (gate, first, second) = with_keys(forwards_first).await;
        first.next(Script::json(500, &json!({"error": "runner crashed"})));

        let mut reply = gate.send(&with_client_keys()).await;
        reply.whole().await;

        assert_eq!((reply.status, reply.node()), (200, "n2"));
        let (forward, replace) = if forwards_first { (&first, &second) } else { (&second, &first) };
        assert_eq!(keys_at(forward).await, ["cv-1", "cv-2"]);
        assert_eq!(keys_at(replace).await, [""; 0]);
        let polls = forward.take_polls();
        let own = format!("Bearer {}", std::env::var("PATH").unwrap());
        let is_ours = |key: &Option<String>| key.as_deref() == Some(own.as_str());
        assert!(!polls.is_empty() && polls.iter().all(|poll| is_ours(&poll.authorization)), "our own go with ours");
    }
}

#[tokio::test]
async fn sec_02_a_key_that_a_node_refuses_is_the_client_s_matter() {
    for status in [401, 403] {
        let (gate, first, second) = with_keys(true).await;
        let words = json!({"error": {"message": "key not allowed to use this model"}});
        for _ in 0..5 {
            first.next(Script::json(status, &words));
            let mut reply = gate.send(&with_client_keys()).await;
            assert_eq!((reply.status, reply.whole().await), (status, words.to_string().into()));
        }
        let mut reply = gate.send(&with_client_keys()).await;
        reply.whole().await;
        assert_eq!((reply.status, reply.node(), second.count()), (200, "n1", 0), "it is as good as before");
    }
}

/// A browser asks first, whether a page of that origin may send a request.
fn preflight(origin: &str) -> Request {
    Request::new("OPTIONS", "/api/chat")
        .header("Origin", origin)
        .header("Access-Control-Request-Method", "POST")
        .header("Access-Control-Request-Headers", "content-type, x-session-id")
}

fn leave(reply: &Reply) -> Option<&str> {
    assert!(reply.head.count("access-control-allow-origin") <= 1, "{:#?}", reply.head);
    reply.header("access-control-allow-origin")
}

#[tokio::test]
async fn sec_04_warmgate_alone_says_which_pages_may_use_it() {
    let single = Single::with("cors: {origins: [\"https://ui.test\", \"null\", \"chrome-extension://*\"]}").await;
    single.node.always(
        Script::json(200, &json!({"choices": []}))
            .header("Access-Control-Allow-Origin", "*")
            .header("Access-Control-Allow-Headers", "x-of-the-node"),
    );
    for (origin, may) in
        [("https://ui.test", true), ("null", true), ("chrome-extension://abc", true), ("https://evil.test", false)]
    {
        let before = single.gate.send(&preflight(origin)).await;
        assert_eq!(before.status, if may { 204 } else { 405 }, "{origin}");
        assert_eq!(leave(&before), may.then_some(origin), "{origin}");
        let headers = may.then_some("content-type, x-session-id");
        assert_eq!(before.header("access-control-allow-headers"), headers, "{origin}");
        let methods = before.header("access-control-allow-methods").unwrap_or_default();
        assert_eq!(methods.contains("POST"), may, "{origin}");

        let asked = single.node.count();
        let after = single.gate.send(&ask().header("Origin", origin).header("Referer", "https://ui.test/x")).await;
        assert_eq!((after.status, leave(&after)), (if may { 200 } else { 403 }, may.then_some(origin)), "{origin}");
        assert_eq!(after.header("access-control-allow-headers"), None, "the node's own are not passed on");
        if may {
            let head = single.node.request(asked).await.head;
            assert_eq!((head.get("origin"), head.get("referer")), (None, None), "{origin}");
        }

        // Our own answers, lists and refusals, are read by pages as well.
        for own in [Request::get("/api/tags"), Request::post("/api/chat", "{")] {
            assert_eq!(leave(&single.gate.send(&own.header("Origin", origin)).await), may.then_some(origin));
        }
    }
    let without = single.gate.send(&ask()).await;
    assert_eq!(leave(&without), None);
    assert_eq!(without.header("vary"), Some("Origin"), "caches must tell pages apart");
}

#[tokio::test]
async fn sec_04_no_page_may_use_it_by_default() {
    let single = Single::new().await;
    assert_eq!(single.gate.send(&preflight("https://ui.test")).await.status, 405);
    let host = single.gate.address().to_string();
    let own = format!("http://{host}");
    // The last two are what a name that leads here looks like, and a browser that keeps the origin to itself.
    for (name, value) in [
        ("Origin", "https://ui.test"),
        ("Origin", "null"),
        ("Origin", own.as_str()),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
        ("Sec-Fetch-Site", "same-origin"),
    ] {
        let mut reply = single.gate.send(&ask().header(name, value)).await;
        assert_eq!((reply.status, leave(&reply)), (403, None), "{name}: {value}");
        assert!(String::from_utf8_lossy(&reply.whole().await).contains("cors.origins"), "{name}: {value}");
    }
    assert_eq!(single.node.count(), 0);
    assert_eq!(single.gate.send(&ask().header("Sec-Fetch-Site", "none")).await.status, 200, "typed by a person");
}

#[tokio::test]
async fn sec_05_no_secret_and_no_prompt_is_logged_counted_or_told() {
    let node = node("n1").await;
    let secrets = tempfile::tempdir().expect("a directory");
    let key = secrets.path().join("key");
    std::fs::write(&key, "canary-of-the-node").expect("the key's file");
    let settings = Settings::over(&[&node]).with_fields(&format!("api_key: {{file: \"{}\"}}", key.display()));
    let gate = Gate::start(&settings.logging("trace")).await;
    let path = "/v1/chat/completions?api_key=canary-query";
    let talk = |text: &str| json!({"model": MODEL, "messages": [{"role": "user", "content": text}]}).to_string();
    let laden = |body: String| {
        Request::post(path, body)
            .header("Authorization", "Bearer canary-key")
            .header("X-Api-Key", "canary-key")
            .header("Cookie", "session=canary-cookie")
    };
    let mut told = String::new();
    let failures = [
        Script::usual(),
        Script::json(500, &json!({"error": "broken"})),
        Script::json(401, &json!({"error": "canary-refused"})),
        Script::closing(),
        Script::resetting(),
        Script::raw("canary is no HTTP\r\n\r\n"),
        Script::sse().chunk("data: {\"half\": ").reset(),
    ];
    for script in failures {
        node.next(script);
        let mut reply = gate.send(&laden(talk("canary-prompt"))).await;
        told += &String::from_utf8_lossy(&reply.rest().await.0);
    }
    for body in ["{\"model\": \"canary-model\"", "{\"messages\": \"canary-prompt\"}", "canary-prompt"] {
        let mut reply = gate.send(&laden(body.to_owned())).await;
        told += &String::from_utf8_lossy(&reply.whole().await);
    }
    let log = gate.log_of(10).await;
    for said in [told, gate.metrics().await, gate.status().await.to_string(), log] {
        let at = said.find("canary");
        assert!(
            at.is_none(),
            "…{}",
            &said[at.unwrap_or(0).saturating_sub(300)..(at.unwrap_or(0) + 60).min(said.len())]
        );
    }
}

#[tokio::test]
async fn sec_06_nodes_learn_by_which_name_they_were_asked_and_from_where() {
    let single = Single::with(NOBODY_BELIEVED).await;
    let request = ask().replacing("Host", "ai.example.test").header("X-Forwarded-For", "203.0.113.6, 198.51.100.7");
    let request = request.header("X-Forwarded-Host", "evil.test").header("X-Forwarded-Proto", "gopher");
    let request = request.header("Forwarded", "for=203.0.113.6").header("X-Real-IP", "203.0.113.6");
    // What many servers take for the same.
    let request = request.header("X_Forwarded_For", "203.0.113.6").header("X_Api_Key", "canary").header("My_Own", "x");

    single.gate.send(&request).await.whole().await;

    let head = single.node.request(0).await.head;
    assert_eq!(head.get("host"), Some(single.node.address().to_string().as_str()));
    let given =
        [("x-forwarded-host", "ai.example.test"), ("x-forwarded-proto", "http"), ("x-forwarded-for", "127.0.0.1")];
    for (name, value) in given {
        assert_eq!((head.get(name), head.count(name)), (Some(value), 1), "{name}");
    }
    assert_eq!((head.get("forwarded"), head.get("x-real-ip")), (None, None));
    assert_eq!((head.get("x_forwarded_for"), head.get("x_api_key"), head.get("my_own")), (None, None, Some("x")));
}

#[tokio::test]
async fn que_11_a_forged_address_goes_nowhere() {
    let single = Single::with(NOBODY_BELIEVED).await;
    for forged in ["203.0.113.6", "198.51.100.7, 10.0.0.1", "unknown"] {
        let asked = single.node.count();
        single.gate.send(&ask().header("X-Forwarded-For", forged)).await.whole().await;
        assert_eq!(single.node.request(asked).await.head.get("x-forwarded-for"), Some("127.0.0.1"));
    }
}

#[tokio::test]
async fn sec_07_names_that_clients_make_up_are_no_labels() {
    const NAMES: usize = 1000;
    let tenants = tenants(&[("a", "models: [\"moss*\", \"made-up-*\"]")]);
    let single = Single::with(&tenants).await;
    let first = Talk::about(Dialect::OpenAi, "moss").ask();
    single.gate.send(&by("a", first.clone())).await.whole().await;
    // Each kind once: what clients may make grow has grown by then.
    refused(&single.gate, made_up("made-up-first")).await;
    let told = async || Exposition::parse(&single.gate.metrics().await).expect("what a collector can read");
    let before = told().await;

    for n in 0..NAMES {
        refused(&single.gate, made_up(&format!("made-up-{n}-{}", "x".repeat(n % 90 * 30)))).await;
    }

    let after = told().await;
    let [before_all, after_all] = [before.series(), after.series()];
    let changed: Vec<&String> = before_all.symmetric_difference(&after_all).collect();
    assert_eq!(changed, [""; 0]);
    let text = single.gate.metrics().await;
    assert!(!text.contains("made-up"), "{text}");
    let count = |told: &Exposition, outcome| told.sum("warmgate_requests_total", &[("outcome", outcome)]);
    let kinds = made_up("").len();
    assert_eq!(
        count(&after, "client_error") - count(&before, "client_error"),
        (kinds * NAMES) as f64,
        "but are counted"
    );
    assert_eq!(count(&after, "ok"), 1.0);
}

/// Sends these, each of which must be refused.
async fn refused(gate: &Gate, requests: Vec<Request>) {
    for request in requests {
        let mut reply = gate.send(&request).await;
        assert!((400..500).contains(&reply.status), "{}", reply.status);
        reply.whole().await;
    }
}

/// Requests in which everything that a client can name is made up.
fn made_up(name: &str) -> Vec<Request> {
    let header = &name[..name.len().min(900)];
    let chat = |model: &str| json!({"model": model, "messages": [], "user": name, "metadata": {"user_id": name}});
    let laden = |request: Request| {
        let request = request.replacing("Host", header).header("X-Session-Id", header).header("User-Agent", header);
        let request = request.header("X-Request-Id", header).header("X-Fleet-Priority", header);
        request.header("traceparent", header).header("X-Forwarded-For", header).header("X-OpenWebUI-User-Name", header)
    };
    let paths = ["/v1/chat/completions", "/api/chat", "/v1/messages"];
    let mut all: Vec<Request> = paths.map(|path| by("a", laden(Request::post(path, chat(name).to_string())))).to_vec();
    let not_allowed = chat(&format!("not-{name}")).to_string();
    all.push(by("a", laden(Request::post("/v1/chat/completions", not_allowed))));
    all.push(by("a", laden(Request::get(&format!("/v1/{name}?{name}={name}")))));
    all.push(by("a", laden(Request::post("/api/pull", json!({"name": name}).to_string()))));
    let known = laden(Request::post("/v1/chat/completions", chat(MODEL).to_string()));
    all.push(known.header("Authorization", &format!("Bearer {header}")));
    all
}

#[tokio::test]
async fn sec_09_what_goes_wrong_inside_is_told_by_an_id_and_no_place() {
    let refused = {
        let mut node = node("inner-refused").await;
        let gate = Gate::start(&Settings::over(&[&node]).more("health: {interval: 1h}")).await;
        node.kill().await;
        (gate, node)
    };
    let unnamed = {
        let settings = Settings::over(&[]);
        let settings = settings.upstream("name: inner-unnamed, url: \"http://inner.invalid:9\", engine: ollama");
        (Gate::start_not_ready(&settings).await, node("unused").await)
    };
    let broken = |script: Script| async move {
        let node = node("inner-broken").await;
        node.always(script);
        let gate = Gate::start(&Settings::over(&[&node]).more("timeouts: {first_byte: 300ms}")).await;
        (gate, node)
    };
    let gates = [
        ("refused", refused),
        ("no such name", unnamed),
        ("reset", broken(Script::resetting()).await),
        ("closed", broken(Script::closing()).await),
        ("not HTTP", broken(Script::raw("SSH-2.0-inner\r\n\r\n")).await),
        ("late", broken(Script::silent()).await),
    ];
    for (what, (gate, node)) in gates {
        let mut reply = gate.send(&ask()).await;
        assert!((500..=504).contains(&reply.status), "{what}: {}", reply.status);
        let id = reply.request_id().to_owned();
        let head = format!("{:?}", reply.head);
        let body = reply.json().await.to_string();
        let port = node.address().port().to_string();
        for inner in ["127.0.0.1", "inner", port.as_str(), "pingora", "rustls", "os error", "hyper"] {
            assert!(!body.contains(inner), "{what}: {inner} in {body}");
            assert!(!head.replace(&id, "").contains(inner), "{what}: {inner} in {head}");
        }
        assert!(gate.log_of(1).await.contains(&id), "{what}: no {id} in the log");
    }
}

#[tokio::test]
async fn ret_14_a_node_s_refusal_passes_as_it_is_and_ours_have_the_form_of_the_path() {
    let single = Single::new().await;
    for status in [400, 413, 422] {
        let words = json!({"error": {"message": "bad grammar", "code": null}, "odd": [1.50]});
        single.node.next(Script::json(status, &words));
        let mut reply = single.gate.send(&ask()).await;
        assert_eq!(reply.status, status);
        assert_eq!(reply.whole().await, words.to_string(), "{status}");
    }

    let mut gone = Upstream::ollama("gone", vec![Model::resident(MODEL)]).await;
    gone.kill().await;
    let gate = Gate::start_not_ready(&Settings::over(&[&gone])).await;
    let body = json!({"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}).to_string();
    for path in ["/v1/chat/completions", "/api/chat", "/v1/messages"] {
        let mut reply = gate.post(path, body.clone()).await;
        assert_eq!(reply.status, 503, "{path}");
        let told = reply.json().await;
        match path {
            "/api/chat" => assert!(told["error"].is_string(), "{told}"),
            "/v1/messages" => assert!(told["type"] == "error" && told["error"]["message"].is_string(), "{told}"),
            _ => assert!(told["error"]["message"].is_string(), "{told}"),
        }
    }
}

#[tokio::test]
async fn ret_03_nothing_is_restarted_after_bytes_were_relayed() {
    for dialect in Dialect::BOTH {
        let pair = Pair::new(dialect).await;
        let mut script = dialect.stream();
        for text in ["a", "b", "c"] {
            script = script.chunk(dialect.frame(text));
        }
        pair.home.next(script.reset());

        let mut reply = pair.gate.send(&pair.talk.ask()).await;
        let (said, _) = reply.rest().await;

        let frames = ["a", "b", "c"].map(|text| dialect.frame(text)).concat();
        assert!(said.starts_with(&frames), "{dialect:?}: {said:?}");
        assert!(String::from_utf8_lossy(&said[frames.len()..]).contains("error"), "{dialect:?}: {said:?}");
        assert_eq!(pair.away.count(), 0, "{dialect:?}");
    }
}

#[tokio::test]
async fn ret_01_what_cannot_have_begun_is_sent_to_another_node() {
    for how in ["refused", "busy"] {
        let mut pair = Pair::new(Dialect::OpenAi).await;
        match how {
            "refused" => pair.home.kill().await,
            _ => pair.home.next(Script::json(503, &json!({"error": "busy"})).before_body()),
        }
        let reply = finished(&pair.gate, &pair.talk).await;
        assert_eq!((reply.status, reply.node()), (200, pair.away.name()), "{how}");
        assert_eq!(pair.away.count(), 1, "{how}: once");
    }
}
