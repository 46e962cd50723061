//! Who may come in and what they may ask for: keys, lists of models, priorities, and what keeps tenants apart.

use serde_json::{Value, json};
use warmgate::config::KeyHash;

use crate::client::{Reply, Request};
use crate::gate::{Gate, Settings};
use crate::rig::node;
use crate::talk::{Dialect, MODEL, Talk};
use crate::upstream::{Hold, Model, Script, Upstream};

/// The key of the tenant of that name.
pub fn key(tenant: &str) -> String {
    format!("canary-key-of-{tenant}-0123456789")
}

/// `tenants:` with these, each by its name and its further fields.
pub fn tenants(all: &[(&str, &str)]) -> String {
    let entry = |(name, fields): &(&str, &str)| {
        let comma = if fields.is_empty() { "" } else { ", " };
        format!("  - {{name: {name}, keys: [\"{}\"]{comma}{fields}}}\n", KeyHash::of(&key(name)).written())
    };
    format!("tenants:\n{}", all.iter().map(entry).collect::<String>())
}

/// The request with the tenant's key.
pub fn by(tenant: &str, request: Request) -> Request {
    request.header("Authorization", &format!("Bearer {}", key(tenant)))
}

fn chat(path: &str, model: &str) -> Request {
    let message = json!([{"role": "user", "content": "moss?"}]);
    Request::post(path, json!({"model": model, "messages": message, "max_tokens": 9, "stream": false}).to_string())
}

const CHATS: [&str; 3] = ["/api/chat", "/v1/chat/completions", "/v1/messages"];

/// The sentence of an error in the dialect of the path, and its type where it has one.
async fn told(path: &str, mut reply: Reply) -> (String, String) {
    let body = reply.json().await;
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{path}: {body}")).to_owned();
    match path {
        "/api/chat" => (text(&body["error"]), String::new()),
        "/v1/messages" => {
            assert_eq!(body["type"], "error", "{body}");
            (text(&body["error"]["message"]), text(&body["error"]["type"]))
        }
        _ => (text(&body["error"]["message"]), text(&body["error"]["type"])),
    }
}

#[tokio::test]
async fn without_a_key_there_is_nothing_but_health() {
    let n1 = node("n1").await;
    let gate = Gate::start(&Settings::over(&[&n1]).more(&tenants(&[("a", "")]))).await;

    for path in CHATS {
        for request in [chat(path, MODEL), by("nobody", chat(path, MODEL)), chat(path, MODEL).header("x-api-key", "x")]
        {
            let reply = gate.send(&request).await;
            assert_eq!((reply.status, reply.header("www-authenticate")), (401, Some("Bearer")), "{path}");
            let (sentence, kind) = told(path, reply).await;
            assert!(sentence.contains("key"), "{sentence}");
            assert!(kind.is_empty() || kind == "authentication_error", "{path}: {kind}");
        }
    }
    for path in
        ["/", "/api/version", "/api/tags", "/api/ps", "/v1/models", "/v1/models/moss:7b", "/nowhere", "/api/pull"]
    {
        assert_eq!(gate.get(path).await.status, 401, "{path}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(gate.get(path).await.status, 200, "{path}");
    }
    assert_eq!(n1.count(), 0, "no node was asked");
    assert_eq!(gate.counter("warmgate_keys_refused_total{reason=\"unknown\"}").await, 6.0);

    for request in [by("a", chat("/api/chat", MODEL)), chat("/api/chat", MODEL).header("X-Api-Key", &key("a"))] {
        assert_eq!(gate.send(&request).await.status, 200);
    }
    assert_eq!(gate.send(&by("a", Request::get("/"))).await.status, 200);
}

#[tokio::test]
async fn a_model_that_is_not_allowed_is_refused_and_not_listed() {
    let n1 = Upstream::ollama("n1", vec![Model::resident("moss:7b"), Model::resident("moss:secret")]).await;
    let n2 = Upstream::openai("n2", vec![Model::resident("Fern-3B"), Model::resident("hidden")]).await;
    let yaml = tenants(&[("some", "models: [\"moss:7*\", fern-3b]"), ("all", "")]);
    let gate = Gate::start(&Settings::over(&[&n1, &n2]).more(&yaml)).await;

    for path in CHATS {
        let reply = gate.send(&by("some", chat(path, "moss:secret"))).await;
        assert_eq!(reply.status, 403, "{path}");
        let (sentence, kind) = told(path, reply).await;
        assert!(sentence.contains("moss:secret"), "{sentence}");
        assert!(kind.is_empty() || kind == "permission_error", "{path}: {kind}");
    }
    for spelling in
        ["MOSS:secret", "library/moss:secret", "registry.ollama.ai/library/moss:secret", "Hidden", "nowhere"]
    {
        assert_eq!(gate.send(&by("some", chat("/api/chat", spelling))).await.status, 403, "{spelling}");
    }
    let show = |model: &str| Request::post("/api/show", json!({"model": model}).to_string());
    let unload = |model: &str| Request::post("/api/generate", json!({"model": model, "keep_alive": 0}).to_string());
    assert_eq!(gate.send(&by("some", show("moss:secret"))).await.status, 403);
    assert_eq!(gate.send(&by("some", unload("moss:secret"))).await.status, 403);
    let falls_back = |by_others: &str| {
        let mut body = json!({"model": "Fern-3B", "messages": [{"role": "user", "content": "hello"}]});
        body[by_others] = json!(["hidden"]);
        Request::post("/v1/chat/completions", body.to_string())
    };
    for others in ["fallbacks", "models", "context_window_fallback_dict"] {
        assert_eq!(gate.send(&by("some", falls_back(others))).await.status, 403, "{others}");
    }
    assert_eq!((n1.count(), n2.count()), (0, 0), "no node was asked");
    assert_eq!(gate.send(&by("all", falls_back("fallbacks"))).await.status, 200);
    assert_eq!(gate.send(&by("some", chat("/api/chat", "Moss:7B"))).await.status, 200);
    assert_eq!(gate.send(&by("all", chat("/api/chat", "moss:secret"))).await.status, 200);

    let mut missing = gate.send(&by("some", chat("/v1/chat/completions", "moss:7bb"))).await;
    let told = missing.json().await.to_string();
    assert!(missing.status == 404 && told.contains("moss:7b") && !told.contains("secret"), "{told}");

    for (path, list, name) in
        [("/api/tags", "models", "name"), ("/api/ps", "models", "name"), ("/v1/models", "data", "id")]
    {
        let whole = gate.send(&by("all", Request::get(path))).await.json().await;
        let part = gate.send(&by("some", Request::get(path))).await.json().await;
        let names = |seen: &Value| -> Vec<String> {
            seen[list].as_array().expect("a list").iter().map(|entry| entry[name].as_str().unwrap().into()).collect()
        };
        assert!(names(&whole).contains(&"moss:secret".to_owned()), "{path}: {whole}");
        let may = |name: &String| ["moss:7b", "Fern-3B"].contains(&name.as_str());
        assert_eq!(names(&part), names(&whole).into_iter().filter(may).collect::<Vec<_>>(), "{path}");
        assert!(!names(&part).is_empty(), "{path}");
    }
    for (id, status) in [("moss:7b", 200), ("fern-3b", 404), ("Fern-3B", 200), ("moss:secret", 404), ("hidden", 404)] {
        assert_eq!(gate.send(&by("some", Request::get(&format!("/v1/models/{id}")))).await.status, status, "{id}");
    }
}

#[tokio::test]
async fn a_tenant_may_manage_what_it_may_use_if_it_may_manage_at_all() {
    let n1 = node("n1").await;
    let yaml = tenants(&[("user", ""), ("keeper", "management: true, models: [\"moss*\"]")]);
    let gate = Gate::start(&Settings::over(&[&n1]).more(&yaml)).await;
    let call = |method: &str, path: &str, body: Value| Request::post(path, body.to_string()).by(method);
    let delete = |model: &str| call("DELETE", "/api/delete", json!({"model": model}));

    assert_eq!(gate.send(&by("user", delete(MODEL))).await.status, 403);
    assert_eq!(gate.send(&by("keeper", delete("fern:3b"))).await.status, 403);
    let create = call("POST", "/api/create", json!({"model": "moss:mine", "from": "fern:3b", "stream": false}));
    assert_eq!(gate.send(&by("keeper", create)).await.status, 403);
    let copy = |to: &str| call("POST", "/api/copy", json!({"source": MODEL, "destination": to}));
    assert_eq!(gate.send(&by("keeper", copy("fern:3b"))).await.status, 403);
    assert_eq!(n1.count(), 0, "no node was asked");
    n1.next(Script::json(200, &json!({})));
    assert_eq!(gate.send(&by("keeper", copy("moss:copy"))).await.status, 200);
    n1.next(Script::json(200, &json!({})));
    assert_eq!(gate.send(&by("keeper", delete(MODEL))).await.status, 200);
}

#[tokio::test]
async fn a_request_is_as_urgent_as_its_tenant_or_less() {
    let (n1, hold) = (node("n1").await, Hold::new());
    n1.always(Script::held(&hold).then_usual());
    let yaml = tenants(&[("patient", "priority: batch"), ("hasty", "priority: interactive")]);
    let settings = Settings::over(&[&n1]).slots(1).more("admission: {engine_queue: 0}").more(&yaml);
    let gate = Gate::start(&settings).await;
    let mut conns = Vec::new();
    let asks = [
        ("hasty", None),
        ("patient", None),
        ("patient", Some("interactive")),
        ("hasty", None),
        ("hasty", Some("batch")),
    ];
    for (n, (tenant, priority)) in asks.into_iter().enumerate() {
        let mut request = by(tenant, Talk::about(Dialect::OpenAi, &format!("topic {n}")).ask());
        if let Some(priority) = priority {
            request = request.header("X-Fleet-Priority", priority);
        }
        let mut conn = gate.connect().await;
        conn.send(&request).await;
        conns.push((conn, request));
        if n == 0 {
            n1.request(0).await;
        } else {
            gate.waiting(n as u64).await;
        }
    }

    let status = gate.status().await;

    let waiting = status["queue"]["first"].as_array().expect("who waits").iter();
    let mut classes: Vec<&str> = waiting.map(|waiter| waiter["priority"].as_str().expect("a class")).collect();
    classes.sort_unstable();
    assert_eq!(classes, ["batch", "batch", "batch", "interactive"]);
    hold.open();
    for (conn, request) in conns {
        assert_eq!(conn.reply(&request).await.status, 200);
    }
}

#[tokio::test]
async fn que_09_a_hundred_jobs_of_one_key_hold_the_next_key_up_for_two_at_most() {
    let (n1, hold) = (node("n1").await, Hold::new());
    n1.always(Script::held(&hold).then_usual());
    let settings = Settings::over(&[&n1]).slots(1).more("admission: {engine_queue: 0}");
    let gate = Gate::start(&settings.more(&tenants(&[("a", ""), ("b", "")]))).await;
    let mut conns = Vec::new();
    for n in 0..100 {
        let request = by("a", Talk::about(Dialect::OpenAi, &format!("job {n}")).ask());
        let mut conn = gate.connect().await;
        conn.send(&request).await;
        conns.push(conn);
    }
    gate.waiting(99).await;
    let mut conn = gate.connect().await;
    conn.send(&by("b", Talk::about(Dialect::OpenAi, "the one of b").ask())).await;
    gate.waiting(100).await;

    hold.release(2);

    let asked = [n1.request(0).await, n1.request(1).await, n1.request(2).await];
    let is_b = |body: &[u8]| String::from_utf8_lossy(body).contains("the one of b");
    assert!(asked.iter().any(|record| is_b(&record.body)), "b is among the first three that run");
    drop((conn, conns));
    gate.idle().await;
}

#[tokio::test]
async fn a_conversation_of_one_tenant_is_not_that_of_another() {
    let n1 = node("n1").await;
    let gate = Gate::start(&Settings::over(&[&n1]).more(&tenants(&[("a", ""), ("b", "")]))).await;
    let talk = Talk::about(Dialect::OpenAi, "moss");
    gate.send(&by("a", talk.ask())).await.whole().await;
    let talk = talk.then("And where?");

    let mut of_b = gate.send(&by("b", talk.ask())).await;
    of_b.whole().await;
    let mut of_a = gate.send(&by("a", talk.ask())).await;
    of_a.whole().await;

    assert_eq!((of_b.affinity(), of_a.affinity()), ("new", "session"));
    let receipt = gate.receipt(of_a.request_id()).await;
    assert_eq!(receipt["tenant"], "a");
}

#[tokio::test]
async fn a_cache_is_salted_for_those_tenants_and_engines_that_want_it() {
    let vllm = Upstream::vllm("vllm", vec![Model::resident("Fern-3B")]).await;
    let ollama = node("ollama").await;
    let yaml = tenants(&[("a", "cache_salt: true"), ("b", "cache_salt: true"), ("open", "")]);
    let gate = Gate::start(&Settings::over(&[&vllm, &ollama]).more(&yaml)).await;
    let mut asked = 0;
    let mut salt = async |tenant: &str, path: &str, fields: Value| {
        let mut body = json!({"model": "Fern-3B", "messages": [{"role": "user", "content": "moss?"}], "stream": false});
        fields.as_object().into_iter().flatten().for_each(|(name, value)| body[name] = value.clone());
        let body = body.to_string();
        let mut reply = gate.send(&by(tenant, Request::post(path, body.clone()))).await;
        assert_eq!(reply.status, 200);
        reply.whole().await;
        asked += 1;
        let sent = vllm.request(asked - 1).await.body;
        let seen: Value = serde_json::from_slice(&sent).expect("JSON");
        assert!(!String::from_utf8_lossy(&sent).contains("canary"), "no key is in it");
        let salt = seen["cache_salt"].as_str().map(str::to_owned);
        if salt.is_none() && path == "/v1/chat/completions" {
            assert_eq!(sent, body, "untouched");
        }
        salt
    };
    let path = "/v1/chat/completions";
    let [a, again] = [salt("a", path, json!({})).await, salt("a", path, json!({"seed": 7})).await];
    let b = salt("b", path, json!({})).await;
    let [a_own, b_own] =
        [salt("a", path, json!({"cache_salt": "x"})).await, salt("b", path, json!({"cache_salt": "x"})).await];
    let translated = salt("a", "/api/chat", json!({})).await;
    let open = salt("open", path, json!({})).await;
    let opens_own = salt("open", path, json!({"cache_salt": "x"})).await;

    assert!(a.is_some() && a == again && a == translated, "{a:?} {again:?} {translated:?}");
    let all = [a, b, a_own, b_own, open.clone(), opens_own.clone()];
    for (n, one) in all.iter().enumerate() {
        assert!(!all[n + 1..].contains(one), "{all:?}");
    }
    assert_eq!((open, opens_own.as_deref()), (None, Some("x")));
    let request = by("a", Talk::about(Dialect::OpenAi, "moss").ask());
    gate.send(&request).await.whole().await;
    assert_eq!(&ollama.request(0).await.body, request.body(), "Ollama knows no salts");
}

#[tokio::test]
async fn who_wants_a_salt_gets_no_engine_that_takes_none_on_the_path() {
    let vllm = Upstream::vllm("vllm", vec![Model::resident("Fern-3B")]).await;
    let sglang = Upstream::openai("sglang", vec![Model::resident("Moss-7B"), Model::resident("Fern-3B")]).await;
    let keys = format!("name: sglang, url: \"{}\", engine: sglang", sglang.url());
    let yaml = tenants(&[("a", "cache_salt: true"), ("open", "")]);
    let gate = Gate::start(&Settings::over(&[&vllm]).upstream(&keys).more(&yaml)).await;
    let ask = async |tenant: &str, model: &str, path: &str| {
        let messages = json!([{"role": "user", "content": "moss?"}]);
        let body = json!({"model": model, "messages": messages, "max_tokens": 8}).to_string();
        let mut reply = gate.send(&by(tenant, Request::post(path, body))).await;
        (reply.status, String::from_utf8_lossy(&reply.whole().await).into_owned())
    };
    for asked in 0..4 {
        assert_eq!(ask("a", "Fern-3B", "/v1/messages").await.0, 200);
        let seen: Value = serde_json::from_slice(&vllm.request(asked).await.body).expect("JSON");
        assert!(seen["cache_salt"].is_string(), "{seen}");
    }
    assert_eq!(sglang.count(), 0);
    let (status, said) = ask("a", "Moss-7B", "/v1/messages").await;
    assert!(status == 400 && said.contains("`cache_salt`") && said.contains("/v1/chat/completions"), "{status} {said}");
    assert_eq!(sglang.count(), 0);

    assert_eq!(ask("a", "Moss-7B", "/v1/chat/completions").await.0, 200);
    assert!(String::from_utf8_lossy(&sglang.request(0).await.body).contains("cache_salt"));
    assert_eq!(ask("open", "Moss-7B", "/v1/messages").await.0, 200);
}

#[tokio::test]
async fn who_wants_a_salt_gets_no_vllm_that_would_drop_it_in_silence() {
    let old = Upstream::vllm("old", vec![Model::resident("Fern-3B")]).await;
    old.set_version("0.26.0");
    let yaml = tenants(&[("a", "cache_salt: true"), ("open", "")]) + "\ntelemetry: {interval: 200ms}";
    let gate = Gate::start(&Settings::over(&[&old]).more(&yaml)).await;
    let body =
        json!({"model": "Fern-3B", "messages": [{"role": "user", "content": "moss?"}], "max_tokens": 8}).to_string();
    let ask = async |tenant: &str, path: &str| gate.send(&by(tenant, Request::post(path, body.clone()))).await;

    let mut refused = ask("a", "/v1/messages").await;
    let said = String::from_utf8_lossy(&refused.whole().await).into_owned();
    assert!(refused.status == 400 && said.contains("`cache_salt`"), "{} {said}", refused.status);
    let receipt = gate.receipt(refused.request_id()).await;
    assert_eq!((old.count(), receipt["outcome"].as_str()), (0, Some("client_error")), "{receipt:#}");
    assert_eq!(ask("a", "/v1/chat/completions").await.status, 200, "on this path all of them take it");
    assert_eq!(ask("open", "/v1/messages").await.status, 200);

    old.set_version("0.33.0");
    old.polled("/version", 2).await;
    assert_eq!(ask("a", "/v1/messages").await.status, 200, "it was renewed");
}

#[tokio::test]
async fn sec_05_no_key_of_a_tenant_is_logged_counted_told_or_sent_on() {
    let [n1, n2] = [node("n1").await, node("n2").await];
    let yaml = tenants(&[("a", "models: [\"moss*\"], limits: {rpm: 3}")]);
    let gate = Gate::start(&Settings::over(&[&n1, &n2]).more(&yaml).logging("trace")).await;
    let path = "/v1/chat/completions";
    n1.next(Script::json(503, &json!({"error": "busy"})));
    n2.next(Script::json(503, &json!({"error": "busy"})));
    let mut said = String::new();
    let talk = |text: &str| {
        Request::post(path, json!({"model": MODEL, "messages": [{"role": "user", "content": text}]}).to_string())
    };
    let requests = [
        by("a", talk("canary-prompt")),
        by("a", talk("canary-prompt")).header("X-Api-Key", &key("a")),
        talk("canary-prompt").header("x-api-key", &key("a")),
        by("a", talk("canary-prompt")),
        by("b", talk("canary-prompt")),
        by("a", chat(path, "fern:3b")),
    ];
    let mut statuses = Vec::new();
    for request in requests {
        let mut reply = gate.send(&request).await;
        statuses.push(reply.status);
        said += &format!("{:?}", reply.head);
        said += &String::from_utf8_lossy(&reply.whole().await);
    }
    assert_eq!(statuses[1..], [200, 200, 429, 401, 429], "the first may be a 503: both nodes were busy");
    for node in [&n1, &n2] {
        for n in 0..node.count() {
            let head = format!("{:?}", node.request(n).await.head);
            assert!(!head.contains("canary"), "{head}");
        }
    }
    let receipts = gate.admin("/fleet/receipts").await.to_string();
    let hash = KeyHash::of(&key("a")).written();
    let log = gate.log_of(6).await;
    assert!(log.contains("\"tenant\":\"a\""), "the access log tells whose request it was");
    for said in [said, receipts, gate.metrics().await, gate.status().await.to_string(), log] {
        for secret in ["canary", hash.trim_start_matches("sha256:")] {
            let at = said.find(secret);
            assert!(
                at.is_none(),
                "…{}",
                &said[at.unwrap_or(0).saturating_sub(200)..(at.unwrap_or(0) + 60).min(said.len())]
            );
        }
    }
}

/// A request as Open WebUI and a proxy in front send it.
fn for_a_user() -> Request {
    Talk::about(Dialect::OpenAi, "moss")
        .ask()
        .header("X-OpenWebUI-User-Name", "ada")
        .header("X-OpenWebUI-User-Email", "ada@example.test")
        .header("X-Forwarded-User", "ada")
        .header("X-OpenWebUI-Chat-Id", "chat-1")
        .header("X-Forwarded-For", "203.0.113.6, 198.51.100.7")
        .header("X-Forwarded-Proto", "https")
        .header("X-Forwarded-Host", "ai.example.test")
}

#[tokio::test]
async fn only_those_who_are_trusted_are_believed_about_users_and_addresses() {
    for (yaml, trusted) in [("", true), ("trusted_peers: [127.0.0.0/8]", true), ("trusted_peers: [10.0.0.0/8]", false)]
    {
        let n1 = node("n1").await;
        let gate = Gate::start(&Settings::over(&[&n1]).more(yaml)).await;

        gate.send(&for_a_user()).await.whole().await;

        let head = n1.request(0).await.head;
        let told = |name| head.get(name).map(str::to_owned);
        let users = ["x-openwebui-user-name", "x-openwebui-user-email", "x-forwarded-user"].map(told);
        let places = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"].map(told);
        let expected = |values: [&str; 3]| values.map(|value| Some(value.to_owned()));
        if trusted {
            assert_eq!(users, expected(["ada", "ada@example.test", "ada"]), "{yaml}");
            assert_eq!(places, expected(["198.51.100.7", "https", "ai.example.test"]), "{yaml}");
        } else {
            assert_eq!(users, [None, None, None], "{yaml}");
            assert_eq!(places, expected(["127.0.0.1", "http", "warmgate.test"]), "{yaml}");
        }
        assert_eq!(head.get("x-openwebui-chat-id"), Some("chat-1"), "a conversation is no user");
    }
}
