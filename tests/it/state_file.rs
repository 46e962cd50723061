//! What was learnt survives a restart where there is a state file.

use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;

use crate::gate::{Gate, Settings};
use crate::listen_tls::told;
use crate::rig::{finished, node};
use crate::talk::{Dialect, Talk};

const STATE: &str = "state_file: state";

#[tokio::test]
async fn a_conversation_goes_home_after_a_restart() {
    let nodes = [node("n1").await, node("n2").await, node("n3").await];
    let settings = Settings::over(&nodes.each_ref()).more(STATE);
    let mut gate = Gate::start(&settings).await;
    let talks: Vec<Talk> = (0..6).map(|n| Talk::about(Dialect::Ollama, &format!("topic {n}"))).collect();
    let mut homes = Vec::new();
    for talk in &talks {
        homes.push(finished(&gate, talk).await.node().to_owned());
    }
    gate.signal(Signal::TERM);
    assert_eq!(gate.ended().await, Some(0));
    let file = gate.directory().join("state");
    assert_eq!(std::fs::metadata(&file).expect("the file").permissions().mode() & 0o777, 0o600);
    let text = String::from_utf8_lossy(&std::fs::read(&file).expect("bytes")).into_owned();
    assert!(!text.contains("topic"), "no prompt is in it");

    // In another order, so that ids differ.
    let settings = Settings::over(&[&nodes[2], &nodes[0], &nodes[1]]).more(STATE);
    let gate = gate.follow(&settings, &[]).await;
    for (talk, home) in talks.into_iter().zip(homes) {
        let reply = finished(&gate, &talk.then("And where?")).await;
        assert_eq!((reply.affinity(), reply.node()), ("session", home.as_str()));
    }
    let status = gate.status().await;
    let known = |node: &serde_json::Value| node["models"][0]["prefill_tokens_per_s"].is_number();
    assert!(status["nodes"].as_array().expect("nodes").iter().any(known), "{status:#}");
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_said_and_begins_anew() {
    let node = node("n1").await;
    let settings = Settings::over(&[&node]).more(STATE);
    let mut gate = Gate::start(&settings).await;
    let talk = Talk::about(Dialect::Ollama, "moss");
    finished(&gate, &talk).await;
    gate.signal(Signal::TERM);
    gate.ended().await;
    let file = gate.directory().join("state");
    let mut bytes = std::fs::read(&file).expect("the file");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&file, bytes).expect("written");

    let mut gate = gate.follow(&settings, &[]).await;

    assert!(gate.log().contains("is not a state file, or a broken one"), "{}", gate.log());
    let talk = talk.then("And where?");
    assert_ne!(finished(&gate, &talk).await.affinity(), "session");
    gate.signal(Signal::TERM);
    gate.ended().await;
    let gate = gate.follow(&settings, &[]).await;
    assert_eq!(finished(&gate, &talk.then("And why?")).await.affinity(), "session", "it was written anew");
}

#[tokio::test]
async fn what_is_older_than_a_pin_may_be_is_forgotten() {
    let node = node("n1").await;
    let settings = Settings::over(&[&node]).more(STATE).more("affinity: {ttl: 1s}");
    let mut gate = Gate::start(&settings).await;
    let talk = Talk::about(Dialect::Ollama, "moss");
    finished(&gate, &talk).await;
    gate.signal(Signal::TERM);
    gate.ended().await;
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let gate = gate.follow(&settings, &[]).await;
    assert!(gate.log().contains("is older than `affinity.ttl`"), "{}", gate.log());
    assert_ne!(finished(&gate, &talk.then("And where?")).await.affinity(), "session");
}

#[tokio::test]
async fn what_an_operator_drained_outlives_a_process_that_is_killed() {
    let nodes = [node("n1").await, node("n2").await];
    let settings = Settings::over(&nodes.each_ref()).more(STATE);
    let mut gate = Gate::start(&settings).await;
    assert_eq!(gate.order("/fleet/nodes/n1/drain").await.status, 200);
    gate.signal(Signal::KILL);
    assert_eq!(gate.ended().await, None, "killed");

    let mut gate = gate.follow(&settings, &[]).await;
    assert_eq!(drained(&gate).await, ["n1"]);
    assert_eq!(gate.order("/fleet/nodes/n1/resume").await.status, 200);
    gate.signal(Signal::KILL);
    gate.ended().await;

    let gate = gate.follow(&settings, &[]).await;
    assert_eq!(drained(&gate).await, [""; 0], "and so does its end");
}

#[tokio::test]
async fn an_operator_is_told_where_a_drain_cannot_be_kept() {
    let node = node("n1").await;
    let gate = Gate::start(&Settings::over(&[&node]).more("state_file: nowhere/state")).await;
    let mut reply = gate.order("/fleet/nodes/n1/drain").await;
    assert_eq!(reply.status, 200, "it drains all the same");
    let told = reply.json().await.to_string();
    assert!(told.contains("it is not kept over a restart: the state file cannot be written"), "{told}");
}

#[tokio::test]
async fn what_is_no_file_in_the_place_of_one_is_said_at_the_start_instead_of_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let (pipe, place) = (pipe.display(), folder.path().display());
    let cases = [
        (format!("state_file: {pipe}"), 1, "state_file", "it is a named pipe; name a regular file, or remove it"),
        (format!("state_file: {place}"), 1, "state_file", "it is a folder"),
        ("state_file: /dev/null".to_owned(), 1, "state_file", "it is a device"),
        (format!("server: {{pid_file: {place}}}"), 1, "server.pid_file", "it is a folder"),
        (format!("cache_salt_key: {{file: {pipe}}}"), 2, "cache_salt_key", "it is a named pipe"),
    ];
    for (n, (yaml, code, key, words)) in cases.into_iter().enumerate() {
        let file = folder.path().join(format!("{n}.yaml"));
        std::fs::write(
            &file,
            format!("listen: [{{address: \"127.0.0.1:0\"}}]\nadmin: {{address: \"127.0.0.1:0\"}}\n{yaml}\n"),
        )
        .expect("a file");
        let (ended, said) = told("run", &file).await;
        assert_eq!(ended, Some(code), "{yaml}: {said}");
        assert!(said.contains(key) && said.contains(words), "{yaml}: {said}");
    }
}

/// The nodes that operators drain.
async fn drained(gate: &Gate) -> Vec<String> {
    let status = gate.status().await;
    let nodes = status["nodes"].as_array().expect("nodes").clone();
    let by_admin =
        |node: &serde_json::Value| node["drained_by"].as_array().is_some_and(|who| who.contains(&"admin".into()));
    nodes.iter().filter(|node| by_admin(node)).map(|node| node["name"].as_str().expect("a name").to_owned()).collect()
}
