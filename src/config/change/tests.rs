//! What a reload would change, in words.

use std::path::Path;

use super::*;
use crate::config::parse;

#[track_caller]
fn check(old: &str, new: &str, expected: &[&str]) {
    let [old, new] = [old, new].map(|text| parse(text, Path::new("x.yaml")).unwrap());
    let told: Vec<String> = changes(&old, &new).iter().map(Change::to_string).collect();
    assert_eq!(told, expected);
    assert_eq!(told.is_empty(), old == new);
}

const A: &str = "{name: a, url: 'http://a'}";
const B: &str = "{name: b, url: 'http://b'}";

#[test]
fn keys_are_named_with_what_they_were_and_are() {
    check("", "", &[]);
    check("", "timeouts: {connect: 2s}", &[]);
    check(
        "",
        "timeouts: {connect: 3s}\nrouting: {policy: shuffle}",
        &["routing.policy: fleet -> shuffle", "timeouts.connect: 2s -> 3s"],
    );
    check("", "routing: {signals: {session: {max: 30}}}", &["routing.signals.session.max: 20.0 -> 30.0"]);
    check(
        "",
        "timeouts: {heartbeat: 10s}\nmanagement: true",
        &["management: false -> true", "timeouts.heartbeat: off -> 10s"],
    );
    check("", "cors: {origins: ['https://ui.test']}", &["cors.origins: [] -> [\"https://ui.test\"]"]);
}

#[test]
fn items_go_by_their_names_and_not_by_their_places() {
    check(&format!("upstreams: [{A}]"), &format!("upstreams: [{B}, {A}]"), &["upstreams[b]: added"]);
    check(&format!("upstreams: [{A}, {B}]"), &format!("upstreams: [{B}]"), &["upstreams[a]: removed"]);
    check(&format!("upstreams: [{A}, {B}]"), &format!("upstreams: [{B}, {A}]"), &["upstreams: in another order"]);
    check(
        &format!("upstreams: [{A}]"),
        "upstreams: [{name: a, url: 'http://a', slots: 4}]",
        &["upstreams[a].slots: none -> 4"],
    );
    let models = |weight: u32| {
        format!("upstreams: [{A}]\nmodels: [{{name: m, targets: [{{upstream: a, model: x, weight: {weight}}}]}}]")
    };
    check(&models(1), &models(2), &["models[m].targets[a/x].weight: 1.0 -> 2.0"]);
}

#[test]
fn a_secret_has_changed_and_no_more_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let text = "upstreams: [{name: a, url: 'http://a', api_key: {file: key}}]";
    let [old, new] = ["hunter2", "hunter3"].map(|key| {
        std::fs::write(folder.path().join("key"), key).unwrap();
        parse(text, &folder.path().join("x.yaml")).unwrap()
    });
    let changes = changes(&old, &new);
    assert_eq!(changes.iter().map(Change::to_string).collect::<Vec<_>>(), ["upstreams[a].api_key: changed"]);
    assert!(!serde_json::to_string(&changes).unwrap().contains("hunter"));
}

#[test]
fn what_needs_a_new_process() {
    let file =
        "listen: [{address: '127.0.0.1:1'}]\nadmin: {address: '127.0.0.1:2'}\nserver: {threads: 3}\nmanagement: true";
    let new = parse(file, Path::new("x.yaml")).unwrap();
    let (held, applied): (Vec<_>, Vec<_>) =
        changes(&Plan::default(), &new).into_iter().partition(Change::needs_new_process);
    let keys = |changes: Vec<Change>| changes.into_iter().map(|change| change.key).collect::<Vec<_>>();
    assert_eq!(keys(held), ["admin.address", "listen[127.0.0.1:11435]", "listen[127.0.0.1:1]", "server.threads"]);
    assert_eq!(keys(applied), ["management"]);
}

#[test]
fn long_values_are_cut() {
    let change = changed("k", &Value::Null, &Value::from("ä".repeat(1000)));
    assert_eq!(change.to_string().chars().count(), "k: none -> ".len() + SHOWN_CHARS_MAX + 3);
}
