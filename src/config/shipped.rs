//! The files under `conf/` are part of the contract: they parse, `warmgate.yaml` is the defaults, and
//! it shows and explains every key there is.

use std::fs;
use std::path::Path;

use super::file::File;
use super::lines::Lines;
use super::node::{self, Node};
use super::plan::Plan;
use super::read::join;
use super::{load, parse};

pub const TEXT: &str = include_str!("../../conf/warmgate.yaml");

/// The shipped file with its example upstream and model in force instead of the empty lists.
fn with_the_example() -> String {
    let (before, rest) = TEXT.split_once("upstreams: []\n").expect("upstreams are empty");
    let example = |line: &str| match line.strip_prefix("#  ") {
        Some(line) => format!("  {line}\n"),
        None => format!("{line}\n"),
    };
    let text = format!("{before}upstreams:\n{}", rest.lines().map(example).collect::<String>());
    assert!(text.contains("models: []\n"), "models are empty");
    assert!(text.contains("tenants: []\n"), "tenants are empty");
    text.replace("models: []\n", "models:\n").replace("tenants: []\n", "tenants:\n")
}

fn paths_of(node: &Node, path: &str, paths: &mut Vec<String>) {
    match node {
        Node::Map(pairs) => pairs.iter().for_each(|(key, value)| paths_of(value, &join(path, key), paths)),
        Node::List(items) => items.iter().for_each(|item| paths_of(item, &format!("{path}[]"), paths)),
        _ => {}
    }
    paths.push(path.to_owned());
}

#[test]
fn warmgate_yaml_is_the_defaults() {
    assert_eq!(parse(TEXT, Path::new("conf/warmgate.yaml")), Ok(Plan::default()));
}

#[test]
fn its_examples_are_valid() {
    let text = with_the_example().replace("STUDIO_KEY", "WARMGATE_NO_SUCH_VARIABLE");
    let problems = parse(&text, Path::new("conf/warmgate.yaml")).expect_err("the files of the example are not there");
    let paths: Vec<&str> = problems.list.iter().map(|problem| problem.path.as_str()).collect();
    let not_there = [
        "upstreams[0].api_key",
        "upstreams[1].tls.ca",
        "upstreams[1].tls.cert",
        "upstreams[1].tls.key",
        "tenants[0].keys[1]",
        "tenants[0].keys_dir",
    ];
    assert_eq!(paths, not_there, "{problems}");
}

#[test]
fn it_shows_every_key_with_a_comment() {
    let text = with_the_example();
    let mut shown = Vec::new();
    paths_of(&node::parse(&text).expect("YAML"), "", &mut shown);
    let (lines, text) = (Lines::of(&text), text.lines().collect::<Vec<_>>());
    for path in File::keys() {
        assert!(shown.contains(&path), "conf/warmgate.yaml does not show {path}");
        let key = path.rsplit('.').next().map(|key| format!("{}:", key.trim_end_matches("[]"))).expect("a key");
        // The first item of the list that shows the key.
        let in_items = ["[0]", "[1]"].map(|item| lines.first(&path.replacen("[]", item, 1).replace("[]", "[0]")));
        let shows = |line: &usize| path.ends_with("[]") || text[line - 1].contains(&key);
        let line = in_items.into_iter().flatten().find(shows).unwrap_or_else(|| panic!("no line of {path}"));
        let above = text[line.saturating_sub(2)].trim_start();
        assert!(text[line - 1].contains(" # ") || above.starts_with('#'), "{path} has no comment");
    }
}

#[test]
fn examples_are_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/examples");
    let mut files = 0;
    for entry in fs::read_dir(folder).expect("conf/examples") {
        let path = entry.expect("an entry").path();
        if let Err(problems) = load(&path) {
            panic!("{problems}");
        }
        files += 1;
    }
    assert!(files >= 3);
}
