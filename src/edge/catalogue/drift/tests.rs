//! Copies that differ, and copies that only seem to.

use serde_json::{Value, json};

use super::*;
use crate::engines::Listing;
use crate::routing::name::Naming;

fn ollama(name: &str, digest: &str, level: &str) -> Listing {
    let entry = json!({ "name": name, "digest": digest, "details": { "quantization_level": level } });
    Listing { name: name.into(), tags: Some(entry), ..Listing::default() }
}

fn openai(id: &str, root: &str) -> Listing {
    Listing { name: id.into(), openai: Some(json!({ "id": id, "root": root })), ..Listing::default() }
}

fn node<'a>(name: &'a str, listings: &'a [Listing], window: Option<u32>) -> Node<'a> {
    let speaks_ollama = listings.iter().all(|listing| listing.tags.is_some());
    let naming = if speaks_ollama { Naming::Ollama } else { Naming::Exact };
    let windows = listings.iter().filter_map(|listing| Some((listing.name.clone(), window?)));
    Node { name, speaks_ollama, naming, listings, aliases: vec![], windows: windows.collect() }
}

/// Of two nodes with one model and its window each, what differs.
#[track_caller]
fn check(a: (Listing, Option<u32>), b: (Listing, Option<u32>), expected: &[(&str, &str, [&str; 2])]) {
    let (first, second) = ([a.0], [b.0]);
    let found = drifts(&[node("n1", &first, a.1), node("n2", &second, b.1)]);
    let found: Vec<(&str, &str, Vec<&str>)> = found
        .iter()
        .map(|drift| (drift.model.as_str(), drift.kind.name(), drift.values.keys().map(String::as_str).collect()))
        .collect();
    let expected: Vec<_> = expected.iter().map(|(model, kind, values)| (*model, *kind, values.to_vec())).collect();
    assert_eq!(found, expected);
}

#[test]
fn copies_that_differ() {
    let moss = |digest, level| ollama("moss:7b", digest, level);
    check((moss("d1", "Q4_0"), Some(1)), (moss("d1", "Q4_0"), Some(1)), &[]);
    check((moss("d1", "Q4_0"), None), (moss("d2", "q4_0"), None), &[("moss:7b", "digest", ["d1", "d2"])]);
    check((moss("d", "Q4_0"), None), (moss("d", "Q8_0"), None), &[("moss:7b", "quantisation", ["Q4_0", "Q8_0"])]);
    check((moss("d", ""), Some(4096)), (moss("d", ""), Some(8192)), &[("moss:7b", "context", ["4096", "8192"])]);
    check((moss("d", "Q4_0"), Some(4096)), (moss("", ""), None), &[]);
    check(
        (openai("moss", "a/b-AWQ"), None),
        (openai("moss", "b-FP8"), None),
        &[("moss", "quantisation", ["AWQ", "FP8"])],
    );
}

#[test]
fn names_meet_by_their_engines_rules() {
    let implied = (ollama("moss", "d1", ""), None);
    check(implied.clone(), (ollama("Moss:latest", "d2", ""), None), &[("Moss:latest", "digest", ["d1", "d2"])]);
    check((ollama("library/moss", "d1", ""), None), implied.clone(), &[]);
    check(implied.clone(), (ollama("moss:7b", "d2", ""), None), &[]);
    check((openai("Moss", "moss-AWQ"), None), (openai("moss", "moss-FP8"), None), &[]);
    let both = [("moss:7b", "quantisation", ["AWQ", "Q4_0"])];
    check((ollama("moss:7b", "d1", "Q4_0"), None), (openai("moss:7b", "moss-AWQ"), None), &both);
}

#[test]
fn a_configured_name_may_mean_different_models() {
    let listings = [[ollama("moss:7b", "d1", "")], [ollama("fern:3b", "d2", "")]];
    let mut nodes = [node("n1", &listings[0], None), node("n2", &listings[1], None)];
    for node in &mut nodes {
        node.aliases = vec![("fast", &node.listings[0])];
    }
    assert_eq!(drifts(&nodes), []);
}

#[test]
fn a_difference_in_words() {
    let listings = [[ollama("moss", "d1", "")], [ollama("moss", "d2", "")], [ollama("moss", "d1", "")]];
    let nodes = [node("n1", &listings[0], None), node("n2", &listings[1], None), node("n3", &listings[2], None)];
    assert_eq!(drifts(&nodes)[0].describe(), "moss: its digest differs: d1 on n1, n3; d2 on n2");
}

#[test]
fn sec_07_labels_are_bounded() {
    let drift = |model: String| Drift { model, kind: Kind::Digest, values: BTreeMap::new() };
    let mut many: Vec<Drift> = (0..500).map(|n| drift(format!("moss:{n:03}"))).collect();
    many.push(drift("x".repeat(10_000)));
    let labels = labels(&many);
    assert_eq!(labels.len(), MODELS_LABELLED_MAX + 1);
    assert_eq!(labels[&("other", "digest")], 401);
    assert_eq!(labels.values().sum::<i64>(), 501, "each is counted once");
    assert!(labels.keys().all(|(model, _): &(&str, &str)| model.len() <= LABEL_BYTES_MAX));
}

#[test]
fn json_that_is_no_entry_tells_nothing() {
    for entry in [Value::Null, json!([]), json!({ "digest": 7, "details": "no" })] {
        let odd = Listing { tags: Some(entry), ..ollama("moss:7b", "", "") };
        check((odd, None), (ollama("moss:7b", "d", "Q4_0"), None), &[]);
    }
}
