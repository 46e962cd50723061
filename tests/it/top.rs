//! `warmgate top` as scripts use it: one view of a running Warmgate, as text.

use std::process::Output;

use crate::gate::{Gate, Settings};
use crate::rig::{Pair, finished, node};
use crate::talk::{Dialect, Talk};

async fn top(arguments: &[&str], token: Option<&str>) -> Output {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_warmgate"));
    command.arg("top").args(arguments).env("COLUMNS", "160").env_remove("WARMGATE_ADMIN_TOKEN");
    if let Some(token) = token {
        command.env("WARMGATE_ADMIN_TOKEN", token);
    }
    command.output().await.expect("the command")
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn one_view_says_what_the_snapshot_says() {
    let pair = Pair::new(Dialect::Ollama).await;
    finished(&pair.gate, &pair.talk).await;
    finished(&pair.gate, &Talk::about(Dialect::Ollama, "another matter")).await;
    pair.gate.idle().await;
    let snapshot = pair.gate.admin("/fleet/snapshot").await;

    let shown = top(&["--once", "--admin", &pair.gate.admin_address().to_string()], None).await;

    let text = said(&shown.stdout);
    assert!(shown.status.success() && !text.contains('\u{1b}'), "{text}{}", said(&shown.stderr));
    for node in [&pair.home, &pair.away] {
        assert!(text.contains(node.name()), "{text}");
    }
    let requests = snapshot["hour"]["total"]["requests"].as_u64().expect("a count");
    assert!(text.contains(&format!("{requests} requests, 0 failed")), "{text}");
    let session = snapshot["hour"]["sessions"][0]["session"].as_str().expect("a conversation");
    assert!(text.contains(&session[..8]), "{text}");
    let score = snapshot["recent"][0]["score"].as_f64().expect("a score");
    assert!(text.contains(&format!("{score:.1}")), "{text}");
}

#[tokio::test]
async fn the_token_is_asked_for_by_name_and_silence_is_told() {
    let n1 = node("n1").await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "a-token-of-this-test").expect("the token");
    let yaml = format!(
        "listen: [{{address: \"127.0.0.1:0\"}}]\nadmin: {{address: \"127.0.0.1:0\", token: {{file: \"{}\"}}}}\n\
         upstreams: [{{name: n1, url: \"{}\", engine: ollama}}]\n",
        file.path().display(),
        n1.url()
    );
    let gate = Gate::start(&Settings::raw(&yaml)).await;
    let admin = gate.admin_address().to_string();

    let stranger = top(&["--once", "--admin", &admin], None).await;
    let known = top(&["--once", "--admin", &admin], Some("a-token-of-this-test")).await;
    let nobody = top(&["--once", "--admin", "127.0.0.1:9"], None).await;
    let paper = top(&["--admin", "127.0.0.1:9"], None).await;

    assert_eq!(stranger.status.code(), Some(1));
    assert!(said(&stranger.stderr).contains("WARMGATE_ADMIN_TOKEN"), "{}", said(&stranger.stderr));
    assert!(known.status.success() && said(&known.stdout).contains("n1"), "{}", said(&known.stderr));
    assert_eq!(nobody.status.code(), Some(1));
    assert!(said(&nobody.stderr).contains("--admin names its admin address"), "{}", said(&nobody.stderr));
    let clients_port = top(&["--once", "--admin", &gate.address().to_string()], None).await;
    assert_eq!(clients_port.status.code(), Some(1));
    let words = "is the client port of a Warmgate; --admin names its admin port, usually 9435";
    assert!(said(&clients_port.stderr).contains(words), "{}", said(&clients_port.stderr));
    let plain = top(&["--once", "--admin", &format!("https://{admin}")], None).await;
    assert_eq!(plain.status.code(), Some(1));
    let words = "it speaks plain HTTP and no TLS; write http:// in --admin";
    assert!(said(&plain.stderr).contains(words), "{}", said(&plain.stderr));
    assert_eq!(paper.status.code(), Some(2), "no terminal: {}", said(&paper.stderr));
}
