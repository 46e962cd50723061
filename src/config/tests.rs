//! Whole texts in, plans or lists of problems out.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::units::Span;

fn read(text: &str) -> Result<Plan, Problems> {
    parse(text, Path::new("x.yaml"))
}

/// The problems of a text, exactly, without the name of the file in front.
#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let shown = read(text).map_or_else(|problems| problems.to_string(), |_| String::new());
    let shown: Vec<&str> = shown.lines().map(|line| line.trim_start_matches("x.yaml:")).collect();
    assert_eq!(shown, expected, "{text}");
}

#[track_caller]
fn check_plan(text: &str, expected: impl FnOnce(&mut Plan)) {
    let mut plan = Plan::default();
    expected(&mut plan);
    assert_eq!(read(text), Ok(plan), "{text}");
}

#[test]
fn nothing_written_is_the_default() {
    check_plan("", |_| {});
    check_plan("# only a comment\n", |_| {});
    check_plan("upstreams:\nlimits:\n  body:\n", |_| {});
    check_plan("upstreams: []\nrouting: {signals: {session: }}\n", |_| {});
}

#[test]
fn values_reach_the_plan() {
    check_plan("timeouts: {connect: 250ms}", |plan| plan.timeouts.connect = "250ms".parse().unwrap());
    check_plan("routing: {policy: shuffle}", |plan| plan.routing.policy = Policy::Shuffle);
    check_plan("resilience: {max_fallbacks: 0}", |plan| plan.resilience.max_fallbacks = 0);
    check_plan("log: {access: off}", |plan| plan.log.access = AccessLog::Off);
    check_plan("shutdown: {grace: 0s}", |plan| plan.shutdown.grace = Span::from_secs(0));
    check_plan("listen: [{address: '[::1]:0'}]", |plan| {
        plan.listen = vec![Listen::plain("[::1]:0".parse().unwrap())];
    });
    check_plan("affinity: {headers: [X-A]}", |plan| plan.affinity.headers = vec!["x-a".parse().unwrap()]);
    check_plan("upstreams: [{name: a, url: 'http://a:1', engine: openai, weight: 2, tier: 1}]", |plan| {
        let mut upstream = Upstream::new("a".into(), "http://a:1".parse().unwrap());
        upstream.engine = Some("openai");
        upstream.weight = 2.0;
        upstream.tier = 1;
        plan.upstreams = vec![upstream];
    });
}

#[test]
fn policies_and_what_litellm_calls_them() {
    let theirs = [
        ("simple-shuffle", Policy::Shuffle),
        ("least-busy", Policy::LeastBusy),
        ("latency-based-routing", Policy::Latency),
        ("usage-based-routing", Policy::Usage),
        ("usage-based-routing-v2", Policy::Usage),
        ("cost-based-routing", Policy::Cost),
    ];
    for (name, policy) in Policy::NAMES.into_iter().chain(theirs) {
        check_plan(&format!("routing: {{policy: {name}}}"), |plan| plan.routing.policy = policy);
    }
    for (name, policy) in Policy::NAMES {
        assert_eq!(serde_yaml::to_value(policy).unwrap(), name);
    }
    check(
        "routing: {policy: least-bussy}",
        &["1: routing.policy: `least-bussy` is not known; did you mean least_busy?"],
    );
    check(
        "routing: {policy: [cost]}",
        &[
            "1: routing.policy: expected one of fleet, expected_ttft, shuffle, least_busy, latency, usage, cost, found a list",
        ],
    );
}

#[test]
fn every_problem_is_reported_at_once() {
    let text = "\
listen:
  - adress: 127.0.0.1:1
upstreams:
  - name: two words
    url: ftp://a
    slotz: 1
  - just text
  - url: http://b
    weight: -1
    weight: 2
timeouts: {connect: 0s, idle: 5}
";
    check(
        text,
        &[
            "2: listen[0].adress: unknown key; did you mean address?",
            "2: listen[0].address: missing; write it like 127.0.0.1:11435",
            "4: upstreams[0].name: must be 1 to 64 visible ASCII characters without spaces; it goes into headers as it is",
            "5: upstreams[0].url: only http and https are spoken; write it like http://10.0.0.5:11434 or https://models.example.org",
            "6: upstreams[0].slotz: unknown key; did you mean slots?",
            "7: upstreams[1]: expected a section with keys, found text",
            "8: upstreams[2].name: missing; a short name for headers and screens, like studio",
            "9: upstreams[2].weight: must not be negative; 0 takes it out of the shuffle",
            "10: upstreams[2].weight: written twice; keep one of them",
            "11: timeouts.idle: `5` is not a duration; write it like 250ms, 30s or 15m",
            "11: timeouts.connect: must be more than zero",
        ],
    );
}

#[test]
fn unknown_keys() {
    check(
        "health: {colour: red}",
        &["1: health.colour: unknown key; known here: interval, timeout, unhealthy_after, healthy_after"],
    );
    check("slots: 1", &["1: slots: unknown key; it belongs at upstreams[].slots"]);
    check("signals: {}", &["1: signals: unknown key; it belongs at routing.signals"]);
    check("interval: 1s", &["1: interval: unknown key; it belongs at health.interval or telemetry.interval"]);
    check("- a", &[" expected a section with keys, found a list"]);
    check(
        "? [a]\n: 1",
        &[
            "1: ?: unknown key; known here: listen, admin, upstreams, models, routing, affinity, admission, resilience, timeouts, health, telemetry, limits, cors, usage_probe, management, routing_headers, trusted_peers, tenants, jwt, cache_salt, cache_salt_key, cluster, server, shutdown, log, tracing, state_file",
        ],
    );
}

#[test]
fn kinds() {
    check("routing_headers: yes", &["1: routing_headers: expected true or false, found text"]);
    check("server: {threads: -1}", &["1: server.threads: `-1` is not a whole number from 0 to 4294967295"]);
    check("server: {threads: 1.5}", &["1: server.threads: `1.5` is not a whole number from 0 to 4294967295"]);
    check(
        "cors: {origins: [ui.test, \"https://ui.test/\", \"null\", \"*\"]}",
        &[
            "1: cors.origins[0]: `ui.test` is not the origin of a page; write it like https://chat.example.org, or * for every page",
            "1: cors.origins[1]: `https://ui.test/` is not the origin of a page; write it like https://chat.example.org, or * for every page",
        ],
    );
    check("limits: {header_read: 0s}", &["1: limits.header_read: must be more than zero"]);
    check("limits: {body: 128}", &["1: limits.body: `128` is not a size; write it like 64MiB or 24GiB"]);
    check("limits: {body: [1]}", &["1: limits.body: expected a value like 64MiB, found a list"]);
    check("routing: {policy: flet}", &["1: routing.policy: `flet` is not known; did you mean fleet?"]);
    check(
        "routing: {policy: expected_ttft, externality_weight: 0.5}",
        &[
            "1: routing.externality_weight: must be from 1 to 64; 1 looks at the request alone, more also at those behind it",
        ],
    );
    let share = "1: tracing.sample: must be from 0 to 1; the share of traces that is kept; 1 keeps all";
    check("tracing: {otlp: 'http://a:4318', sample: 1.5}", &[share]);
    check(
        "affinity: {headers: [a b]}",
        &["1: affinity.headers[0]: `a b` is not a header name; write it like X-Session-Id"],
    );
    check(
        "upstreams: [{name: 7, url: 'http://a'}]",
        &["1: upstreams[0].name: expected text, found a number; put it in quotes"],
    );
    check(
        "upstreams: [{name: a, url: 'http://a', weight: .inf}]",
        &["1: upstreams[0].weight: must be a finite number"],
    );
    check("log: !x {access: off}", &["1: log: expected a section with keys, found a value with a tag"]);
}

#[test]
fn bounds_of_one_value() {
    check("listen: []", &["1: listen: has 0 items; write 1 to 64"]);
    check("resilience: {attempts: 17}", &["1: resilience.attempts: must be from 1 to 16"]);
    check("resilience: {max_fallbacks: 17}", &["1: resilience.max_fallbacks: must be from 0 to 16"]);
    check("resilience: {attempts: 0}", &["1: resilience.attempts: must be from 1 to 16"]);
    check("affinity: {ttl: 9000h}", &["1: affinity.ttl: must be at most a year (8760h)"]);
    check("upstreams: [{name: a, url: 'http://a', slots: 0}]", &["1: upstreams[0].slots: must be from 1 to 65536"]);
    check(
        "upstreams: [{name: a, url: 'http://a', memory: 0GB}]",
        &["1: upstreams[0].memory: must be more than zero; leave it out if it is not known"],
    );
    let many = format!("upstreams: [{}]", "{name: a, url: 'http://a'},".repeat(4097));
    assert!(read(&many).unwrap_err().to_string().starts_with("x.yaml:1: upstreams: has 4097 items"));
}

#[test]
fn paths_are_beside_the_file_and_not_empty() {
    let text = "server: {upgrade_sock: up.sock, pid_file: /run/pid}\nstate_file: state\n";
    let plan = parse(text, Path::new("/etc/warmgate/x.yaml")).unwrap();
    assert_eq!(plan.server.upgrade_sock.as_deref(), Some(Path::new("/etc/warmgate/up.sock")));
    assert_eq!(plan.server.pid_file.as_deref(), Some(Path::new("/run/pid")));
    assert_eq!(plan.state_file.as_deref(), Some(Path::new("/etc/warmgate/state")));
    check(
        "server: {upgrade_sock: ''}\nstate_file: ''\n",
        &[
            "1: server.upgrade_sock: must not be empty; leave it out, or write null, for none",
            "2: state_file: must not be empty; leave it out, or write null, for none",
        ],
    );
    let long = "x".repeat(200);
    check(
        &format!("server: {{upgrade_sock: {long}}}"),
        &["1: server.upgrade_sock: must not be longer than 96 characters; sockets cannot have longer names"],
    );
}

#[test]
fn an_admin_port_for_others_has_a_token() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "t0ken\n").unwrap();
    let text = "admin: {address: '0.0.0.0:9435', token: {file: token}}";
    let plan = parse(text, &folder.path().join("x.yaml")).unwrap();
    assert_eq!(plan.admin.token.as_ref().map(Secret::expose), Some("t0ken"));
    assert!(!format!("{plan:?}{}", plan.explain()).contains("t0ken"));
    assert!(plan.explain().contains("READABLE on the way"), "{}", plan.explain());
    check(
        "admin: {address: '0.0.0.0:9435', token: {file: none}}",
        &["1: admin.token: the file cannot be read: No such file or directory (os error 2)"],
    );
    check(
        "admin: {token: t0ken}",
        &["1: admin.token: expected the place of a secret, never the secret itself; write {env: NAME} or {file: PATH}"],
    );
}

#[test]
fn values_that_clash() {
    check(
        "listen: [{address: '0.0.0.0:9435'}]",
        &[" admin.address: is taken by listen; clients and administration need a port each"],
    );
    check(
        "admin: {address: '0.0.0.0:9435'}",
        &[
            "1: admin.address: needs admin.token where it is not on the loopback interface; whoever reaches it elsewhere could drain nodes; write 127.0.0.1:9435, or a token like {env: WARMGATE_ADMIN_TOKEN}",
        ],
    );
    check(
        "listen:\n  - address: 127.0.0.1:1\n  - address: 127.0.0.1:1\n",
        &["1: listen: has 127.0.0.1:1 more than once"],
    );
    check(
        "telemetry: {interval: 1m}",
        &[
            "1: telemetry.stale_after: must not be below telemetry.interval; a reading would be too old before the next one comes",
        ],
    );
    check(
        "limits: {body: 2GiB}",
        &["1: limits.memory_for_bodies: must not be below limits.body; the largest body could never be held"],
    );
    check(
        "upstreams:\n  - {name: a, url: 'http://B:80/'}\n  - {name: a, url: 'http://b'}\n",
        &["3: upstreams[1].name: the same as upstreams[0].name", "3: upstreams[1].url: the same as upstreams[0].url"],
    );
}

#[test]
fn switches_and_spans_that_may_be_off() {
    check_plan("usage_probe: on", |plan| plan.usage_probe = plan::UsageProbe::On);
    check_plan("usage_probe: off", |_| {});
    check("usage_probe: true", &["1: usage_probe: `true` is not known; known here: off, on"]);
    check_plan("timeouts: {heartbeat: 15s}", |plan| {
        plan.timeouts.heartbeat = plan::Heartbeat(Some(Span::from_secs(15)));
    });
    check_plan("timeouts: {heartbeat: off}", |_| {});
    check("timeouts: {heartbeat: 0s}", &["1: timeouts.heartbeat: must be more than zero"]);
    check(
        "timeouts: {heartbeat: no}",
        &["1: timeouts.heartbeat: `no` is not a duration; write it like 250ms, 30s or 15m"],
    );
}

#[test]
fn constants_of_signals() {
    check_plan("routing: {signals: {session: {max: 30}, queue_depth: {per_depth: 0.5}}}", |plan| {
        plan.routing.signals.session.max = 30.0;
        plan.routing.signals.queue_depth.per_depth = 0.5;
    });
    check_plan("routing: {signals: {model_loaded: {recent_for: 1h}}}", |plan| {
        plan.routing.signals.model_loaded.recent_for = Span::from_secs(3600);
    });
    let text = "\
routing:
  signals:
    sesion: {max: 1}
    session:
      maximum: 1
      max: .nan
    model_loaded: {recent_for: 30, loaded: much}
    latency: {seconds_per_point: 0, max: 1e9}
    queue_depth: {per_depth: -1}
    role: {large: [1]}
";
    check(
        text,
        &[
            "3: routing.signals.sesion: unknown key; did you mean session?",
            "5: routing.signals.session.maximum: unknown key; known here: max, prefix_max, home_max, per_depth",
            "6: routing.signals.session.max: must be a finite number",
            "7: routing.signals.model_loaded.loaded: expected a number, found text",
            "7: routing.signals.model_loaded.recent_for: `30` is not a duration; write it like 250ms, 30s or 15m",
            "8: routing.signals.latency.max: must be at most a million either way",
            "8: routing.signals.latency.seconds_per_point: must be more than zero: it divides",
            "9: routing.signals.queue_depth.per_depth: must not be negative: load never makes a node likelier",
            "10: routing.signals.role.large: expected a value like 20GB, found a list",
        ],
    );
}

#[test]
fn secrets_stay_hidden() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("key"), "hunter2\n").unwrap();
    let text = "upstreams: [{name: a, url: 'http://a', api_key: {file: key}}]";
    let plan = parse(text, &folder.path().join("x.yaml")).unwrap();
    assert_eq!(plan.upstreams[0].api_key.as_ref().map(Secret::expose), Some("hunter2"));
    for shown in [format!("{plan:?}"), serde_yaml::to_string(&plan).unwrap(), plan.explain()] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    check(
        "upstreams: [{name: a, url: 'http://a', api_key: hunter2}]",
        &[
            "1: upstreams[0].api_key: expected the place of a secret, never the secret itself; write {env: NAME} or {file: PATH}",
        ],
    );
    check(
        "upstreams: [{name: a, url: 'http://a', auth: both}]",
        &["1: upstreams[0].auth: `both` is not known; known here: replace, forward"],
    );
    let key = format!("sha256:{:064}", 1);
    check(
        &format!("upstreams: [{{name: b, url: 'http://b', auth: forward}}]\ntenants: [{{name: t, keys: ['{key}']}}]"),
        &[
            "1: upstreams[0].auth: must not be `forward` beside `tenants`; the keys of clients are those of `tenants`, which nobody else may see; take one of the two out",
        ],
    );
    check(
        "upstreams: [{name: a, url: 'http://a', api_key: {env: WARMGATE_NO_SUCH_VARIABLE}}]",
        &["1: upstreams[0].api_key: the environment variable is not set"],
    );
    check(
        "upstreams: [{name: a, url: 'http://u:hunter2@a'}]",
        &[
            "1: upstreams[0].url: credentials do not belong in the URL; use api_key; write it like http://10.0.0.5:11434 or https://models.example.org",
        ],
    );
}

#[test]
fn a_plan_written_out_is_a_configuration() {
    let text = "\
upstreams:
  - {name: a, url: 'https://a.example/x', engine: ollama, slots: 2, memory: 24GB, memory_bandwidth: 400GB/s, tier: 1}
  - {name: b, url: 'http://[::1]:1', weight: 0.5, drain: true}
models:
  - {name: 'x*', targets: [{upstream: a, model: 'y*', weight: 0, rpm: 1, tpm: 2, cost: 0.5}, {upstream: b, model: z}]}
  - {name: w, targets: [{upstream: b, model: z}], fallbacks: [x1], policy: least_busy}
routing: {policy: shuffle, signals: {latency: {max: 5}}}
log: {access: text}
server: {threads: 3}
";
    let plan = read(text).unwrap();
    assert_eq!(read(&serde_yaml::to_string(&plan).unwrap()), Ok(plan));
}

#[test]
fn a_text_that_grows_without_end_is_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let before = format!("*a{}, ", level - 1).repeat(10);
        text += &format!("a{level}: &a{level} [{before}]\n");
    }
    assert!(read(&text).unwrap_err().to_string().contains("repetition limit"));
    assert!(read(&"[".repeat(100_000)).is_err());
}

#[test]
fn text_that_is_no_yaml() {
    let problems = read("listen:\n  - address: [\n").unwrap_err();
    assert_eq!(problems.list.len(), 1);
    assert!(problems.to_string().starts_with("x.yaml:2: not YAML: "), "{problems}");
}

#[test]
fn files() {
    let folder = tempfile::tempdir().unwrap();
    let [none, bad, good] = ["none.yaml", "bad.yaml", "good.yaml"].map(|name| folder.path().join(name));
    fs::write(&bad, b"\xff").unwrap();
    fs::write(&good, "server: {threads: 2}").unwrap();

    assert!(load(&none).unwrap_err().to_string().contains("none.yaml: cannot be read: No such file"));
    assert!(load(&bad).unwrap_err().to_string().contains("bad.yaml: cannot be read: "));
    assert_eq!(load(&good).unwrap().server.threads, 2);

    assert_eq!(first_of(&[&none]), None);
    assert_eq!(first_of(&[&none, &good]), Some(good.as_path()));
    assert!(load(first_of(&[&bad, &good]).unwrap()).is_err());
}

#[track_caller]
fn check_any(text: &str) {
    let Err(problems) = read(text) else { return };
    assert!(!problems.list.is_empty());
    assert_eq!(problems.to_string().lines().count(), problems.list.len());
    for problem in &problems.list {
        let lines = text.lines().count().max(1);
        assert!(problem.line.is_none_or(|line| (1..=lines).contains(&line)), "{problem:?} in {text:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_gives_a_plan_or_problems(text in "\\PC{0,200}") {
        check_any(&text);
    }

    #[test]
    fn any_yaml_like_text_does_too(text in "([a-c]|[0-9]|[-:,{}\\[\\]'\"#&*!|>%@?~.]|[ \n\r\t]|(: )|(\n- )|(\n  )){0,60}") {
        check_any(&text);
    }

    #[test]
    fn so_does_the_shipped_file_with_a_piece_replaced(at in 0usize..20_000, cut in 0usize..40, put in "\\PC{0,12}") {
        let shipped: Vec<char> = shipped::TEXT.chars().collect();
        let at = at % shipped.len();
        let text: String = shipped[..at].iter().copied().chain(put.chars()).chain(shipped.iter().skip(at + cut).copied()).collect();
        check_any(&text);
    }
}

#[test]
fn an_upstream_that_is_warmgate_itself_is_refused() {
    let back = "a request would come back here without end; write the engine's own port, like 11434 for Ollama";
    let loops = |listen: &str, url: &str, address: &str| {
        let text = format!("listen: [{{address: '{listen}'}}]\nupstreams:\n  - {{name: a, url: '{url}'}}");
        check(&text, &[&format!("3: upstreams[0].url: is where Warmgate listens itself ({address}); {back}")]);
    };
    for url in ["http://127.0.0.1:80", "http://LOCALHOST/v1", "https://0.0.0.0:80", "http://[::ffff:127.0.0.1]"] {
        loops("127.0.0.1:80", url, "127.0.0.1:80");
    }
    for url in ["http://127.0.0.1:80", "http://localhost", "http://127.9.9.9", "http://[::1]", "http://0.0.0.0"] {
        loops("0.0.0.0:80", url, "0.0.0.0:80");
        loops("[::]:80", url, "[::]:80");
    }
    loops("10.0.0.5:80", "http://10.0.0.5", "10.0.0.5:80");
    check(
        "upstreams: [{name: ok, url: 'http://a'}, {name: a, url: 'http://localhost:11435'}, {url: 'http://b'}]",
        &[
            &format!("1: upstreams[1].url: is where Warmgate listens itself (127.0.0.1:11435); {back}"),
            "1: upstreams[2].name: missing; a short name for headers and screens, like studio",
        ],
    );
    check(
        "upstreams: [{name: a, url: 'http://localhost:9435'}]",
        &["1: upstreams[0].url: is Warmgate's own admin.address (127.0.0.1:9435); no engine can be there; write the \
           engine's own port, like 11434 for Ollama"],
    );
}

#[test]
fn an_upstream_beside_warmgate_is_none_of_itself() {
    for (listen, url) in [
        ("127.0.0.1:80", "http://127.0.0.1:81"),
        ("127.0.0.1:80", "http://127.0.0.2:80"),
        ("127.0.0.1:80", "http://10.0.0.5:80"),
        ("10.0.0.5:80", "http://localhost:80"),
        ("10.0.0.5:80", "http://0.0.0.0:80"),
        ("0.0.0.0:80", "http://10.0.0.5:80"),
        ("127.0.0.1:0", "http://127.0.0.1:11435"),
    ] {
        check(&format!("listen: [{{address: '{listen}'}}]\nupstreams: [{{name: a, url: '{url}'}}]"), &[]);
    }
}

#[test]
fn names_that_nobody_could_address_are_refused() {
    for (name, expected) in [
        ("ALL", "this name has a meaning of its own; in X-Fleet-Nodes it stands for every node"),
        ("Warmgate", "this name has a meaning of its own; in X-Fleet-Node it marks what Warmgate answers itself"),
        ("'a,b'", "must not have a comma; X-Fleet-Nodes has commas between names"),
    ] {
        let text = format!("upstreams: [{{name: {name}, url: 'http://a'}}]");
        check(&text, &[&format!("1: upstreams[0].name: {expected}")]);
    }
    for name in ["all2", "warmgate-2", "a;b"] {
        check(&format!("upstreams: [{{name: '{name}', url: 'http://a'}}]"), &[]);
    }
}
