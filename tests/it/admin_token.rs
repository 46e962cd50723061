//! Who may ask the admin port.

use crate::client::{Conn, Reply, Request};
use crate::gate::{Gate, Settings};
use crate::rig::node;

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
