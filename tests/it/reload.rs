//! Another configuration while requests run: how it is noticed, what it changes, and what it leaves alone.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::client::{Conn, Reply, Request};
use crate::gate::{Gate, Settings};
use crate::patience::within;
use crate::rig::{Single, finished, node};
use crate::talk::{Dialect, MODEL, Talk};
use crate::upstream::{Hold, Model, Script, Upstream};

/// Longer than it takes until a change of the file is seen, and then some.
const SEEN_BY_NOW: Duration = Duration::from_millis(1500);

fn connect_in(seconds: u32) -> String {
    format!("timeouts: {{connect: {seconds}s}}")
}

fn stream(dialect: Dialect, hold: &Hold) -> Script {
    dialect.stream().chunk(dialect.frame("all is")).hold(hold).chunk(dialect.last_frame()).finish()
}

/// One more reload than before, by that cause, which set the time to connect; and not another one.
async fn one_more(gate: &Gate, before: usize, cause: &str, seconds: u32) {
    gate.reloads(before + 1).await;
    tokio::time::sleep(SEEN_BY_NOW).await;
    let reloads = gate.reloads(before + 1).await;
    assert_eq!(reloads.len(), before + 1, "exactly one more: {reloads:#?}");
    assert_eq!((&reloads[0]["outcome"], &reloads[0]["cause"]), (&json!("applied"), &json!(cause)));
    assert_eq!(reloads[0]["changes"][0]["key"], "timeouts.connect");
    assert_eq!(gate.admin("/fleet/config").await["timeouts"]["connect"], format!("{seconds}s"));
}

/// Writes a file in two halves 100 ms apart; false if this machine was too slow for that.
async fn write_in_halves(path: &Path, text: &str) -> bool {
    let began = Instant::now();
    std::fs::write(path, &text[..text.len() / 2]).expect("the first half");
    tokio::time::sleep(Duration::from_millis(100)).await;
    std::fs::write(path, text).expect("all of it");
    began.elapsed() < Duration::from_millis(400)
}

#[tokio::test]
async fn ops_02_each_way_to_write_the_file_is_one_reload() {
    let n1 = node("n1").await;
    let settings = |seconds: u32| Settings::over(&[&n1]).more(&connect_in(seconds));
    let gate = Gate::start(&settings(2)).await;
    let beside = |name: &str| gate.config().with_file_name(name);

    gate.write(&settings(3));
    one_more(&gate, 0, "file", 3).await;

    // As editors do it: beside, then over it.
    std::fs::write(beside(".warmgate.yaml.new"), settings(4).yaml()).expect("the new file");
    std::fs::rename(beside(".warmgate.yaml.new"), gate.config()).expect("to put it there");
    one_more(&gate, 1, "file", 4).await;

    let in_time = write_in_halves(&gate.config(), &settings(5).yaml()).await;
    if in_time {
        one_more(&gate, 2, "file", 5).await;
    }
    tokio::time::sleep(SEEN_BY_NOW).await;
    let before = gate.reloads(1).await.len();

    // As Kubernetes does it: the folder behind a link is another one. What that changes first is nothing.
    for (folder, seconds) in [("..2026_1", 5), ("..2026_2", 6)] {
        std::fs::create_dir(beside(folder)).expect("a folder");
        std::fs::write(beside(folder).join("warmgate.yaml"), settings(seconds).yaml()).expect("a file");
    }
    symlink("..2026_1", beside("..data")).expect("a link");
    symlink("..data/warmgate.yaml", beside("link")).expect("a link");
    std::fs::rename(beside("link"), gate.config()).expect("to put it there");
    tokio::time::sleep(SEEN_BY_NOW).await;
    assert_eq!(gate.reloads(0).await.len(), before, "another way to the same text changes nothing");
    symlink("..2026_2", beside("..data_tmp")).expect("a link");
    std::fs::rename(beside("..data_tmp"), beside("..data")).expect("to swap them");
    one_more(&gate, before, "file", 6).await;

    // And the file behind the links, where it lies.
    std::fs::write(beside("..2026_2").join("warmgate.yaml"), settings(7).yaml()).expect("the file");
    one_more(&gate, before + 1, "file", 7).await;

    // Asked for, it is there at once, and the file watch has nothing to add.
    gate.write(&settings(8));
    gate.signal(Signal::HUP);
    one_more(&gate, before + 2, "SIGHUP", 8).await;
    gate.write(&settings(9));
    assert_eq!(gate.reload().await["lines"], json!(["in force", "timeouts.connect: 8s -> 9s"]));
    one_more(&gate, before + 3, "request", 9).await;
    assert_eq!(gate.reload().await["outcome"], "unchanged");
}

#[tokio::test]
async fn ops_03_a_bad_file_changes_nothing_and_is_seen_everywhere() {
    let single = Single::with(&connect_in(7)).await;
    let gate = &single.gate;
    let before = gate.admin("/fleet/config").await;
    let n1 = format!("{{name: n1, url: \"{}\"}}", single.node.url());
    let bad = [
        ("timeouts: {connect: [", 1, "not YAML"),
        ("\ntimeots: {connect: 3s}", 2, "unknown key; did you mean timeouts?"),
        (&format!("upstreams:\n  - {n1}\n  - {n1}"), 3, ""),
        (
            &format!("upstreams: [{{name: n1, url: \"{}\", api_key: {{file: none}}}}]", single.node.url()),
            1,
            "No such file",
        ),
    ];
    for (n, (text, line, what)) in bad.iter().enumerate() {
        std::fs::write(gate.config(), text).expect("the file");
        let mut reply = gate.order("/fleet/reload").await;
        let told = reply.json().await;
        assert_eq!((reply.status, &told["outcome"]), (422, &json!("refused")), "{told:#}");
        assert_eq!(told["problems"][0]["line"], *line, "{told:#}");
        let lines = told["lines"].to_string();
        assert!(lines.contains(&format!("warmgate.yaml:{line}:")) && lines.contains(what), "{lines}");
        assert_eq!(gate.counter("warmgate_reloads_total{outcome=\"refused\"}").await, (n + 1) as f64);
    }
    std::fs::remove_file(gate.config()).expect("to remove it");
    let mut reply = gate.order("/fleet/reload").await;
    assert!(reply.json().await["lines"].to_string().contains("cannot be read: No such file"));

    assert_eq!(reply.status, 422);
    assert_eq!(gate.admin("/fleet/config").await, before);
    assert_eq!(gate.status().await["last_reload"]["outcome"], "refused");
    assert_eq!(gate.counter("warmgate_config_last_reload_success").await, 0.0);
    assert!(gate.log().contains("did you mean timeouts?"), "{}", gate.log());
    assert_eq!(finished(gate, &Talk::about(Dialect::Ollama, "moss")).await.status, 200);

    gate.write(&Settings::over(&[&single.node]).more(&connect_in(7)));
    assert_eq!(gate.reload().await["outcome"], "unchanged", "what is in force is what it was all the time");
    assert_eq!(gate.counter("warmgate_config_last_reload_success").await, 1.0);
    assert!(gate.counter("warmgate_config_last_reload_success_timestamp_seconds").await > 1.7e9);
}

#[tokio::test]
async fn hlt_13_cat_07_a_removed_node_finishes_what_runs_and_is_left_alone() {
    let [n1, n2] = [node("n1").await, Upstream::ollama("n2", vec![Model::resident("fern:3b")]).await];
    let gate = Gate::start(&Settings::over(&[&n1, &n2])).await;
    let hold = Hold::new();
    n1.next(stream(Dialect::Ollama, &hold));
    let mut running = gate.send(&Talk::about(Dialect::Ollama, "moss").ask()).await;
    running.expect_piece().await;

    gate.write(&Settings::over(&[&n2]));
    let told = gate.reload().await;
    assert_eq!((&told["changes"][0]["key"], &told["changes"][0]["what"]), (&json!("upstreams[n1]"), &json!("removed")));
    let refused = gate.send(&Talk::about(Dialect::Ollama, "fern").ask()).await;
    assert_eq!(refused.status, 404, "its model is gone at once");
    let listed = |list: &Value| list["models"].as_array().is_some_and(|models| models.len() == 1);
    gate.list_once("/api/tags", "the list without its model", listed).await;
    let polled = n1.polls().len();
    hold.open();
    running.rest().await.1.expect("the running answer comes to its end");
    gate.idle().await;
    tokio::time::sleep(SEEN_BY_NOW).await;

    assert_eq!(n1.polls().len(), polled, "not a byte more");
    assert_eq!(n1.count(), 1);
    assert_eq!(gate.status().await["nodes"].as_array().map(Vec::len), Some(1));
    assert!(!gate.metrics().await.contains("warmgate_breaker_state{node=\"n1\"}"), "no state of who is not there");

    gate.write(&Settings::over(&[&n1, &n2]));
    gate.reload().await;
    gate.node_once("n1", "n1 to be back", |node| node["healthy"] == true && node["models"][0].is_object()).await;
    assert_eq!(finished(&gate, &Talk::about(Dialect::Ollama, "moss")).await.node(), "n1");
}

#[tokio::test]
async fn ops_02_a_stream_and_all_that_was_learnt_outlive_twenty_reloads() {
    let nodes = [node("n1").await, node("n2").await];
    let [n1, n2] = &nodes;
    let gate = Gate::start(&Settings::over(&[n1, n2])).await;
    let talk = Talk::about(Dialect::OpenAi, "moss");
    let home = finished(&gate, &talk).await.node().to_owned();
    let (at_home, away) = if home == "n1" { (n1, n2) } else { (n2, n1) };
    let hold = Hold::new();
    at_home.next(stream(Dialect::OpenAi, &hold));
    let mut running = gate.send(&talk.ask()).await;
    running.expect_piece().await;
    let since = gate.node_once(&home, "its state", |_| true).await["standing"]["since_ms"].as_u64();

    for n in 1..=20u32 {
        let entry =
            |node: &Upstream| format!("name: {}, url: \"{}\", engine: ollama, slots: {n}", node.name(), node.url());
        let mut settings = Settings::default().upstream(&entry(at_home));
        if n % 2 == 0 {
            settings = settings.upstream(&entry(away));
        }
        let models = format!("models: [{{name: alias-{n}, targets: [{{upstream: {home}, model: \"{MODEL}\"}}]}}]");
        gate.write(&settings.more(&models).more(&format!("affinity: {{max_sessions: {}}}", 100 + n)));
        assert_eq!(gate.reload().await["outcome"], "applied");
        let mut alias = gate
            .post(
                "/api/chat",
                json!({"model": format!("alias-{n}"), "messages": [{"role": "user", "content": "x"}], "stream": false})
                    .to_string(),
            )
            .await;
        assert_eq!((alias.status, alias.node()), (200, home.as_str()));
        alias.whole().await;
    }
    hold.open();
    running.rest().await.1.expect("the stream comes to its end");
    let next = finished(&gate, &talk.then("And where?")).await;
    let state = gate.node_once(&home, "its state", |_| true).await;

    assert_eq!((next.node(), next.affinity()), (home.as_str(), "session"));
    assert_eq!((&state["healthy"], &state["state"]), (&json!(true), &json!("up")));
    let now = state["standing"]["since_ms"].as_u64();
    assert!(now.zip(since).is_some_and(|(now, since)| now.abs_diff(since) < 100), "up since {since:?}, then {now:?}");
    assert_eq!(gate.counter("warmgate_reloads_total{outcome=\"applied\"}").await, 20.0);
}

#[tokio::test]
async fn a_new_key_is_used_at_once_and_by_itself() {
    let (n1, secrets) = (node("n1").await, tempfile::tempdir().expect("a directory"));
    let key = secrets.path().join("key");
    std::fs::write(&key, "first-key").expect("the key");
    let settings = Settings::over(&[&n1]).with_fields(&format!("api_key: {{file: \"{}\"}}", key.display()));
    let gate = Gate::start(&settings).await;
    let hold = Hold::new();
    n1.next(stream(Dialect::Ollama, &hold));
    let mut running = gate.send(&Talk::about(Dialect::Ollama, "moss").ask()).await;
    running.expect_piece().await;
    // Refused often enough, it is left alone for want of a key.
    for n in 0..3 {
        n1.next(Script::json(401, &json!({"error": "who are you?"})));
        finished(&gate, &Talk::about(Dialect::Ollama, &format!("fern {n}"))).await;
    }
    gate.node_once("n1", "the key to be refused", |node| node["state"] == "auth").await;

    std::fs::write(&key, "second-key\n").expect("the key");
    let told = gate.reloads(1).await.remove(0);
    assert_eq!(
        (&told["cause"], &told["lines"]),
        (&json!("file"), &json!(["in force", "upstreams[n1].api_key: changed"]))
    );
    assert_eq!(finished(&gate, &Talk::about(Dialect::Ollama, "heath")).await.status, 200, "it is trusted again");
    hold.open();
    running.rest().await.1.expect("the running answer comes to its end");

    let sent = n1.request(n1.count() - 1).await.head;
    assert_eq!(sent.get("authorization"), Some("Bearer second-key"));
    let shown = [gate.log(), gate.admin_text("/fleet/config").await, gate.admin_text("/fleet/reloads").await].concat();
    assert!(!shown.contains("-key\"") && !shown.contains("second-key") && shown.contains("(hidden)"), "{shown}");
}

#[tokio::test]
async fn a_request_keeps_the_times_that_it_began_with() {
    let single = Single::new().await;
    let (gate, hold) = (&single.gate, Hold::new());
    single.node.next(Script::held(&hold).then_usual());
    let request = Talk::about(Dialect::Ollama, "moss").ask();
    let mut early = gate.connect().await;
    early.send(&request).await;
    single.node.request(0).await;

    gate.write(&Settings::over(&[&single.node]).more("timeouts: {first_byte: 300ms}"));
    gate.reload().await;
    single.node.next(Script::silent());
    let late = gate.send(&Talk::about(Dialect::Ollama, "fern").ask()).await;
    assert_eq!(late.status, 504, "who comes now has the new times");
    hold.open();
    assert_eq!(early.reply(&request).await.status, 200, "who was there has the old");
}

#[tokio::test]
async fn what_needs_a_new_process_is_said_and_the_rest_applied() {
    let single = Single::new().await;
    let gate = &single.gate;
    let over = |more: &str| Settings::over(&[&single.node]).more(more).yaml();
    let moved = over("server: {threads: 3}\nlimits: {body: 1KiB, memory_for_bodies: 1MiB}\nrouting_headers: false\ncors: {origins: [\"https://ui.test\"]}")
        .replacen("127.0.0.1:0", "127.0.0.1:1", 1);
    std::fs::write(gate.config(), moved).expect("the file");
    let told = gate.reload().await;
    let held: Vec<&Value> =
        told["needs_new_process"].as_array().into_iter().flatten().map(|change| &change["key"]).collect();
    assert_eq!(held, ["listen[127.0.0.1:0]", "listen[127.0.0.1:1]", "server.threads"]);
    assert!(gate.log().contains("needs a new process, and is as it was: server.threads: 0 -> 3"), "{}", gate.log());

    let large = Talk::about(Dialect::Ollama, &"moss ".repeat(1000)).ask();
    assert_eq!(gate.send(&large).await.status, 413);
    let page = gate.send(&Talk::about(Dialect::Ollama, "moss").ask().header("Origin", "https://ui.test")).await;
    assert_eq!((page.status, page.header("x-fleet-node")), (200, None));
    assert_eq!(page.header("access-control-allow-origin"), Some("https://ui.test"));
    let config = gate.admin("/fleet/config").await;
    assert_eq!((&config["server"]["threads"], &config["listen"][0]["address"]), (&json!(0), &json!("127.0.0.1:0")));
    assert_eq!(gate.reload().await["needs_new_process"].as_array().map(Vec::len), Some(3), "said until it is so");
    std::fs::write(gate.config(), over("")).expect("the file");
    gate.reload().await;
    assert_eq!(gate.send(&large).await.status, 200);
}

#[tokio::test]
async fn who_waits_stays_in_a_queue_that_becomes_shorter() {
    let n1 = node("n1").await;
    let settings = |queue: u32| {
        Settings::over(&[&n1]).slots(1).more(&format!("admission: {{engine_queue: 0.0, max_queue: {queue}}}"))
    };
    let gate = Gate::start(&settings(8)).await;
    let hold = Hold::new();
    n1.next(Script::held(&hold).then_usual());
    let talk = |n: usize| Talk::about(Dialect::Ollama, &format!("moss {n}")).ask();
    let mut waiting: Vec<(Conn, Request)> = Vec::new();
    for n in 0..4 {
        let (mut conn, request) = (gate.connect().await, talk(n));
        conn.send(&request).await;
        waiting.push((conn, request));
        if n == 0 {
            n1.request(0).await;
        } else {
            gate.waiting(n as u64).await;
        }
    }

    gate.write(&settings(1));
    gate.reload().await;
    assert_eq!(gate.send(&talk(9)).await.status, 503, "it is full for those who come now");
    hold.open();
    for (conn, request) in waiting {
        let mut reply: Reply = conn.reply(&request).await;
        assert_eq!(reply.status, 200);
        reply.whole().await;
    }
}

#[tokio::test]
async fn without_a_file_a_reload_says_so() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_warmgate"))
        .args(["demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("the program");
    let mut lines = BufReader::new(demo.stdout.take().expect("its output")).lines();
    let admin = within("the admin address", async {
        loop {
            let line = lines.next_line().await.expect("output").expect("a line");
            if let Some(address) = line.strip_prefix("warmgate: admin on http://") {
                return address.parse().expect("an address");
            }
        }
    })
    .await;
    let request = Request::post("/fleet/reload", "").replacing("Host", "localhost");
    let mut reply = Conn::open(admin).await.exchange(&request).await;
    let told = reply.json().await;
    assert_eq!((reply.status, &told["outcome"]), (409, &json!("no_file")));
    assert!(told["lines"][0].as_str().is_some_and(|line| line.contains("start with -c FILE")), "{told:#}");
}
