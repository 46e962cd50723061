//! Lists of several nodes become one.

use super::*;
use crate::engines;

fn listings(engine: &str, bodies: &[Value]) -> Vec<Listing> {
    let bodies: Vec<String> = bodies.iter().map(Value::to_string).collect();
    let bodies: Vec<_> = bodies.iter().map(|body| Some(body.as_bytes())).collect();
    (engines::find(engine).unwrap().read)(&bodies).unwrap().listings
}

fn ollama(tags: Value, ps: Value) -> Vec<Listing> {
    listings("ollama", &[json!({ "models": tags }), json!({ "models": ps })])
}

fn openai(data: Value) -> Vec<Listing> {
    listings("openai", &[json!({ "object": "list", "data": data })])
}

/// Three nodes: two of Ollama's that share a name, one of vLLM's that shares another.
fn fleet() -> [Vec<Listing>; 3] {
    let when = "2026-01-02T03:04:05Z";
    let details = json!({ "family": "moss", "format": "" });
    let n1 = ollama(
        json!([
            { "name": "moss:7b", "digest": "d1", "size": 1, "modified_at": when },
            { "name": "moss:prod", "digest": "d1", "size": 1 },
        ]),
        json!([{ "name": "moss:7b", "size": 2 }]),
    );
    let n2 = ollama(
        json!([
            { "name": "moss:7b", "digest": "d2", "size": 1, "modified_at": when, "details": details },
            { "name": "pebblelab/fern:3b", "digest": "d3", "size": 1 },
        ]),
        json!([{ "name": "moss:7b", "size": 2 }, { "name": "pebblelab/fern:3b", "size": 3 }]),
    );
    let n3 = openai(json!([
        { "id": "Moss/Moss-7B", "object": "model", "created": 5, "owned_by": "vllm", "max_model_len": 9 },
        { "id": "moss:prod", "object": "model", "created": 6, "owned_by": "vllm", "max_model_len": 9 },
    ]));
    [n1, n2, n3]
}

fn nodes(fleet: &[Vec<Listing>; 3]) -> [Node<'_>; 3] {
    let node = |i: usize, name, speaks_ollama| Node { name, speaks_ollama, listings: &fleet[i] };
    [node(0, "n1", true), node(1, "n2", true), node(2, "n3", false)]
}

fn column<'a>(list: &'a Value, key: &str) -> Vec<&'a str> {
    list.as_array().unwrap().iter().map(|entry| entry[key].as_str().unwrap()).collect()
}

#[test]
fn tags_name_each_model_once_with_its_holders() {
    let fleet = fleet();
    let tags = tags(&nodes(&fleet));
    assert_eq!(column(&tags["models"], "name"), ["Moss/Moss-7B", "moss:7b", "moss:prod", "pebblelab/fern:3b"]);
    let moss = &tags["models"][1];
    assert_eq!(moss["nodes"], json!(["n1", "n2"]));
    assert_eq!((&moss["digest"], &moss["details"]["family"]), (&json!("d2"), &json!("moss")), "the richest");
    assert_eq!(tags["models"][2]["nodes"], json!(["n1"]));
}

#[test]
fn ps_lists_every_copy_with_its_node() {
    let fleet = fleet();
    let ps = ps(&nodes(&fleet));
    assert_eq!(column(&ps["models"], "name"), ["moss:7b", "moss:7b", "pebblelab/fern:3b"]);
    assert_eq!(column(&ps["models"], "node"), ["n1", "n2", "n2"]);
}

#[test]
fn openai_lists_everything() {
    let fleet = fleet();
    let models = openai_models(&nodes(&fleet));
    assert_eq!(models["object"], "list");
    assert_eq!(column(&models["data"], "id"), ["Moss/Moss-7B", "moss:7b", "moss:prod", "pebblelab/fern:3b"]);
    assert_eq!(column(&models["data"], "owned_by"), ["vllm", "library", "vllm", "pebblelab"]);
    let moss = json!({ "id": "moss:7b", "object": "model", "created": 1_767_323_045, "owned_by": "library" });
    assert_eq!(models["data"][1], moss);
    assert_eq!(models["data"][0]["max_model_len"], 9, "entries stay as they were");
}

#[test]
fn the_order_of_the_nodes_does_not_matter() {
    let fleet = fleet();
    let forward = nodes(&fleet);
    let mut backward = forward;
    backward.reverse();
    assert_eq!(tags(&forward).to_string(), tags(&backward).to_string());
    assert_eq!(ps(&forward).to_string(), ps(&backward).to_string());
    assert_eq!(openai_models(&forward).to_string(), openai_models(&backward).to_string());
    assert_eq!(conflicts(&forward), conflicts(&backward));
}

#[test]
fn equal_riches_are_decided_by_content() {
    let a = ollama(json!([{ "name": "x", "digest": "a" }]), json!([]));
    let b = ollama(json!([{ "name": "x", "digest": "b" }]), json!([]));
    let node = |listings| Node { name: "n", speaks_ollama: true, listings };
    assert_eq!(tags(&[node(&a), node(&b)]), tags(&[node(&b), node(&a)]));
}

#[test]
fn no_nodes_are_empty_lists() {
    assert_eq!(tags(&[]), json!({ "models": [] }));
    assert_eq!(ps(&[]), json!({ "models": [] }));
    assert_eq!(openai_models(&[]), json!({ "object": "list", "data": [] }));
}

#[test]
fn differing_digests_are_named() {
    let fleet = fleet();
    let digests = [("d1", "n1"), ("d2", "n2")].map(|(digest, node)| (digest.to_string(), vec![node.to_string()]));
    let expected = Conflict { name: "moss:7b".to_string(), digests: digests.into() };
    assert_eq!(conflicts(&nodes(&fleet)), [expected]);
}

#[track_caller]
fn check_found(path: &str, expected: Option<&str>) {
    let fleet = fleet();
    let found = crate::edge::route::model_id(path).and_then(|id| openai_model(&nodes(&fleet), &id));
    assert_eq!(found.as_ref().map(|model| model["id"].as_str().unwrap()), expected, "{path}");
}

#[test]
fn one_model_is_found_by_path() {
    check_found("/v1/models/moss:7b", Some("moss:7b"));
    check_found("/v1/models/moss%3A7b", Some("moss:7b"));
    check_found("/v1/models/Moss/Moss-7B", Some("Moss/Moss-7B"));
    check_found("/v1/models/Moss%2fMoss-7B", Some("Moss/Moss-7B"));
    check_found("/v1/models/library/MOSS:7B", Some("moss:7b"));
    check_found("/v1/models/moss/moss-7b", None);
    check_found("/v1/models/moss", None);
    check_found("/v1/models/", None);
    check_found("/v1/models", None);
    check_found("/v1/models/%", None);
    check_found("/v1/models/%ff%zz", None);
    check_found("/v1/models/%+f", None);
}
