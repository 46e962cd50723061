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
    [node("n1", true, &fleet[0]), node("n2", true, &fleet[1]), node("n3", false, &fleet[2])]
}

fn node<'a>(name: &'a str, speaks_ollama: bool, listings: &'a [Listing]) -> Node<'a> {
    let naming = if speaks_ollama { Naming::Ollama } else { Naming::Exact };
    Node { name, speaks_ollama, naming, listings, aliases: vec![], windows: BTreeMap::new() }
}

fn all<'a>(nodes: &'a [Node<'a>]) -> Vec<Copied<'a>> {
    seen(nodes, &BTreeSet::new())
}

fn ids(nodes: &[Node]) -> Vec<String> {
    openai_models(&all(nodes)).into_keys().map(String::from).collect()
}

fn column<'a>(list: &'a Value, key: &str) -> Vec<&'a str> {
    list.as_array().unwrap().iter().map(|entry| entry[key].as_str().unwrap()).collect()
}

#[test]
fn tags_name_each_model_once_with_its_holders() {
    let fleet = fleet();
    let tags = tags(&all(&nodes(&fleet)));
    assert_eq!(column(&tags["models"], "name"), ["Moss/Moss-7B", "moss:7b", "moss:prod", "pebblelab/fern:3b"]);
    let moss = &tags["models"][1];
    assert_eq!(moss["nodes"], json!(["n1", "n2"]));
    assert_eq!((&moss["digest"], &moss["details"]["family"]), (&json!("d2"), &json!("moss")), "the richest");
    assert_eq!(tags["models"][2]["nodes"], json!(["n1"]));
}

#[test]
fn ps_lists_every_copy_with_its_node() {
    let fleet = fleet();
    let ps = ps(&all(&nodes(&fleet)));
    assert_eq!(column(&ps["models"], "name"), ["moss:7b", "moss:7b", "pebblelab/fern:3b"]);
    assert_eq!(column(&ps["models"], "node"), ["n1", "n2", "n2"]);
}

#[test]
fn openai_lists_everything() {
    let fleet = fleet();
    let nodes = nodes(&fleet);
    let models = openai_models(&all(&nodes));
    let entries: Value = models.values().cloned().collect();
    assert_eq!(column(&entries, "id"), ["Moss/Moss-7B", "moss:7b", "moss:prod", "pebblelab/fern:3b"]);
    assert_eq!(column(&entries, "owned_by"), ["vllm", "library", "vllm", "pebblelab"]);
    let moss = json!({ "id": "moss:7b", "object": "model", "created": 1_767_323_045, "owned_by": "library" });
    assert_eq!(models["moss:7b"], moss);
    assert_eq!(models["Moss/Moss-7B"]["max_model_len"], 9, "entries stay as they were");
}

#[test]
fn the_order_of_the_nodes_does_not_matter() {
    let fleet = fleet();
    let forward = nodes(&fleet);
    let mut backward = nodes(&fleet);
    backward.reverse();
    let (a, b) = (all(&forward), all(&backward));
    assert_eq!(tags(&a).to_string(), tags(&b).to_string());
    assert_eq!(ps(&a).to_string(), ps(&b).to_string());
    assert_eq!(openai_models(&a), openai_models(&b));
    assert_eq!(drifts(&forward), drifts(&backward));
}

#[test]
fn equal_riches_are_decided_by_content() {
    let a = ollama(json!([{ "name": "x", "digest": "a" }]), json!([]));
    let b = ollama(json!([{ "name": "x", "digest": "b" }]), json!([]));
    let (a, b) = (node("n", true, &a), node("n", true, &b));
    assert_eq!(tags(&all(&[a.clone(), b.clone()])), tags(&all(&[b, a])));
}

#[test]
fn no_nodes_are_empty_lists() {
    assert_eq!(tags(&[]), json!({ "models": [] }));
    assert_eq!(ps(&[]), json!({ "models": [] }));
    assert!(openai_models(&[]).is_empty());
}

#[test]
fn cat_05_differing_digests_are_named() {
    let fleet = fleet();
    let drifts = drifts(&nodes(&fleet));
    let [drift] = drifts.as_slice() else { panic!("{drifts:?}") };
    assert_eq!((drift.model.as_str(), drift.kind), ("moss:7b", Kind::Digest));
    assert_eq!(json!(drift.values), json!({ "d1": ["n1"], "d2": ["n2"] }));
}

/// Ollama nodes with these names each, and what is shown of them.
#[track_caller]
fn check_shown(nodes: &[&[&str]], expected: &[&str]) {
    let entries = |names: &[&str]| names.iter().map(|name| json!({ "name": name, "digest": "d" })).collect::<Value>();
    let fleet: Vec<Vec<Listing>> = nodes.iter().map(|names| ollama(entries(names), entries(names))).collect();
    let nodes: Vec<Node> = fleet.iter().map(|listings| node("n", true, listings)).collect();
    let tags = tags(&all(&nodes));
    assert_eq!(column(&tags["models"], "name"), expected);
    assert_eq!(column(&tags["models"], "model"), expected);
    assert_eq!(ids(&nodes), expected);
    let loaded =
        column(&ps(&all(&nodes))["models"], "name").iter().map(|name| name.to_string()).collect::<BTreeSet<_>>();
    assert_eq!(loaded.iter().map(String::as_str).collect::<Vec<_>>(), expected, "one spelling in all lists");
}

#[test]
fn cat_02_spellings_of_one_model_are_one_entry() {
    check_shown(&[&["Moss:7b"], &["moss:7b"], &["MOSS:7B"]], &["moss:7b"]);
    check_shown(&[&["Moss:7b"], &["MOSS:7B"]], &["MOSS:7B"]);
    check_shown(&[&["Moss:7b"]], &["Moss:7b"]);
    check_shown(&[&["moss:7b", "Moss:7b"], &["MOSS:7b"]], &["MOSS:7b", "Moss:7b", "moss:7b"]);
}

#[test]
fn cat_03_implied_parts_are_one_entry_and_others_are_not() {
    check_shown(&[&["library/moss:7b"], &["registry.ollama.ai/library/moss:7b"], &["moss:7b"]], &["moss:7b"]);
    check_shown(&[&["moss"], &["moss:latest"]], &["moss:latest"]);
    check_shown(&[&["moss:7b"], &["pebblelab/moss:7b"], &["moss:3b"]], &["moss:3b", "moss:7b", "pebblelab/moss:7b"]);
    let quants = ["hub.test/pebblelab/moss-GGUF:Q4_K_M", "hub.test/pebblelab/moss-GGUF:Q8_0"];
    check_shown(&[&quants[..1], &quants[1..]], &quants);
}

#[test]
fn what_ollama_s_dialect_reaches_natively_is_not_listed_as_translated() {
    let native = ollama(json!([{ "name": "moss:latest" }]), json!([]));
    let other = openai(json!([{ "id": "moss" }, { "id": "Moss" }, { "id": "fern" }]));
    let nodes = [node("n1", true, &native), node("n2", false, &other)];
    assert_eq!(column(&tags(&all(&nodes))["models"], "name"), ["fern", "moss:latest"]);
    assert_eq!(ids(&nodes), ["Moss", "fern", "moss", "moss:latest"]);
}

#[test]
fn cat_13_a_configured_name_is_shown_once_and_in_place_of_a_model_s_own() {
    let n1 = ollama(
        json!([{ "name": "fern:3b", "digest": "d" }, { "name": "Fast:latest" }]),
        json!([{ "name": "fern:3b" }]),
    );
    let n2 =
        openai(json!([{ "id": "Fern-3B", "object": "model", "created": 1, "owned_by": "vllm", "max_model_len": 9 }]));
    let mut nodes = [node("n1", true, &n1), node("n2", false, &n2)];
    for node in &mut nodes {
        let model = node.listings.iter().find(|listing| listing.name != "Fast:latest").unwrap();
        node.aliases = vec![("fast", model)];
    }
    let seen = seen(&nodes, &[name::fold("fast")].into());
    let tags = tags(&seen);
    assert_eq!(column(&tags["models"], "name"), ["Fern-3B", "fast", "fern:3b"]);
    assert_eq!((&tags["models"][1]["digest"], &tags["models"][1]["nodes"]), (&json!("d"), &json!(["n1"])));
    let models = openai_models(&seen);
    assert_eq!(models.keys().copied().collect::<Vec<_>>(), ["Fern-3B", "fast", "fern:3b"]);
    assert_eq!((&models["fast"]["id"], &models["fast"]["max_model_len"]), (&json!("fast"), &json!(9)));
    assert_eq!(column(&ps(&seen)["models"], "name"), ["fern:3b"]);
    assert_eq!(Spellings::of(&seen).meant("FAST:latest"), Some("fast"));
}

#[track_caller]
fn check_found(path: &str, expected: Option<&str>) {
    let fleet = fleet();
    let nodes = nodes(&fleet);
    let seen = all(&nodes);
    let (models, spellings) = (openai_models(&seen), Spellings::of(&seen));
    let found = crate::edge::route::model_id(path).and_then(|id| {
        let shown = models.get_key_value(id.as_str()).map(|(shown, _)| *shown);
        shown.or_else(|| spellings.meant(&id)).map(String::from)
    });
    assert_eq!(found.as_deref(), expected, "{path}");
}

#[test]
fn cat_04_one_model_is_found_by_path() {
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
