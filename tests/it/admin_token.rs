//! Who may ask the admin port.

use tokio::process::Command;

use crate::client::{Conn, Reply, Request};
use crate::gate::{Gate, Settings};
use crate::listen_tls;
use crate::rig::node;
use crate::tls::Authority;

async fn ask(gate: &Gate, request: Request) -> Reply {
    Conn::open(gate.admin_address()).await.exchange(&request).await
}

#[tokio::test]
async fn with_a_token_nobody_asks_without_it() {
    let node = node("n1").await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("token");
    std::fs::write(&file, "canary-token\n").expect("the token's file");
    let yaml = format!(
        "listen: [{{address: \"127.0.0.1:0\"}}]\nadmin: {{address: \"127.0.0.1:0\", token: {{file: \"{}\"}}}}\n\
         upstreams: [{{name: n1, url: \"{}\", engine: ollama}}]\n",
        file.display(),
        node.url()
    );
    let gate = Gate::start(&Settings::raw(&yaml)).await;
    for path in ["/help", "/metrics", "/fleet/status", "/fleet/receipts", "/none"] {
        let request = || Request::get_as("gate.example.org", path);
        for given in
            [None, Some("canary-token"), Some("Bearer canary-toke"), Some("Bearer "), Some("Basic canary-token")]
        {
            let request = given.map_or_else(request, |given| request().header("Authorization", given));
            let mut refused = ask(&gate, request).await;
            assert_eq!(refused.status, 401, "{path} with {given:?}");
            assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
            let said = refused.whole().await;
            assert!(String::from_utf8_lossy(&said).contains("admin.token"), "{said:?}");
        }
        let known = ask(&gate, request().header("Authorization", "bearer canary-token")).await;
        assert_eq!(known.status, if path == "/none" { 404 } else { 200 }, "{path}");
    }
    for path in ["/", "/dashboard.js", "/dashboard.css"] {
        assert_eq!(ask(&gate, Request::get_as("gate.example.org", path)).await.status, 200, "the page tells nothing");
    }
    assert!(!gate.log().contains("canary"), "{}", gate.log());
    assert_eq!(gate.get("/healthz").await.status, 200, "clients are not asked for it");
}

#[tokio::test]
async fn without_a_token_only_this_machine_s_names_are_answered() {
    let node = node("n1").await;
    let gate = Gate::start(&Settings::over(&[&node])).await;
    for (host, status) in [("localhost", 200), ("127.0.0.1:9435", 200), ("rebound.example.org", 403)] {
        assert_eq!(ask(&gate, Request::get_as(host, "/fleet/status")).await.status, status, "{host}");
    }
}

#[tokio::test]
async fn the_admin_port_closes_on_who_says_nothing() {
    let node = node("n1").await;
    let gate = Gate::start(&Settings::over(&[&node]).more("limits: {header_read: 300ms}")).await;
    let mut mute = Conn::open(gate.admin_address()).await;
    mute.write(b"GET / HT").await;
    assert!(mute.is_closed().await);
}

/// A command, where it asks, the token in its surroundings, and what comes of it.
type Asked<'a> = (&'a [&'a str], &'a [&'a str], Option<&'a str>, i32, &'a str);

#[tokio::test]
async fn the_commands_show_the_token_over_tls_to_whom_they_believe() {
    let node = node("n1").await;
    let authority = Authority::new("ours");
    let signed = authority.signs("localhost", 2090);
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let token = file("token", "canary-token\n");
    let body = file("body.json", r#"{"model": "moss:7b", "messages": [{"role": "user", "content": "a"}]}"#);
    let yaml = format!(
        "listen: [{{address: \"127.0.0.1:0\"}}]\nadmin: {{address: \"127.0.0.1:0\", token: {{file: \"{token}\"}}, \
         tls: {{{}}}}}\nupstreams: [{{name: n1, url: \"{}\", engine: ollama}}]\n",
        listen_tls::own(&signed),
        node.url()
    );
    let gate = Gate::start(&Settings::raw(&yaml)).await;
    let admin = format!("https://localhost:{}", gate.admin_address().port());
    // As the one that runs has it, but for the port that the system chose.
    let config = file("asked.yaml", &yaml);
    let ca = authority.file().display().to_string();
    let other = Authority::new("other");
    let others = other.file().display().to_string();
    let port = gate.admin_address().port();
    let (number, unsecured) = (format!("https://127.0.0.1:{port}"), format!("http://localhost:{port}"));
    let (by_number, plain) = (["--ca", &ca, "--admin", &number], ["--admin", &unsecured]);
    let explain = ["explain", "--request", &body];
    let cases: [Asked; 14] = [
        (&["reload"], &["--ca", &ca, "--token", "canary-token"], None, 0, "nothing has changed"),
        (&["reload"], &["--ca", &ca], Some("canary-token"), 0, "nothing has changed"),
        (&["reload"], &["--ca", &ca, "-c", &config], None, 0, "nothing has changed"),
        (&["drain", "n1"], &["--ca", &ca], Some("canary-token"), 0, "n1 drains"),
        (&["resume", "n1"], &["--ca", &ca], Some("canary-token"), 0, "n1 takes new work"),
        (&explain, &["--ca", &ca], Some("canary-token"), 0, "it would go to n1 now"),
        (&explain, &["--ca", &ca], None, 1, "asks for its admin token"),
        (&["reload"], &["--ca", &ca], Some("canary-other"), 1, "asks for its admin token"),
        (&["reload"], &[], Some("canary-token"), 1, "nobody whom this machine trusts; --ca FILE names who signed it"),
        (&["top", "--once"], &[], Some("canary-token"), 1, "--ca FILE names who signed it"),
        (&["drain", "n1"], &["--ca", &others], Some("canary-token"), 1, "nobody whom the file of --ca holds"),
        (&["drain", "n1"], &by_number, Some("canary-token"), 1, "its certificate is for localhost; name it so in"),
        (&["reload"], &plain, Some("canary-token"), 1, "it speaks TLS; write https in --admin"),
        (&["reload"], &["--ca", &token], None, 2, "holds no certificate"),
    ];
    for (command, more, variable, code, expected) in cases {
        let mut program = Command::new(env!("CARGO_BIN_EXE_warmgate"));
        program.env_remove("WARMGATE_ADMIN_TOKEN").args(command).args(more);
        if !more.contains(&"--admin") {
            program.args(["--admin", &admin]);
        }
        variable.map(|token| program.env("WARMGATE_ADMIN_TOKEN", token));
        let output = program.output().await.expect("the program");
        let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
        assert_eq!(output.status.code(), Some(code), "{command:?} {more:?}: {text}");
        assert!(text.contains(expected) && !text.contains("canary"), "{command:?} {more:?}: {text}");
    }
}
