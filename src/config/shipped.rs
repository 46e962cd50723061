//! The files under `conf/` are part of the contract: they parse, `warmgate.yaml` is the defaults, and
//! it shows and explains every key there is.

use std::fs;
use std::path::Path;

use super::file::File;
use super::lines::Lines;
use super::node::{self, Node};
use super::parse;
use super::plan::Plan;
use super::read::join;

pub const TEXT: &str = include_str!("../../conf/warmgate.yaml");

/// The shipped file with its examples in force, instead of the empty lists too.
fn with_the_example() -> String {
    let (before, rest) = TEXT.split_once("upstreams: []\n").expect("upstreams are empty");
    let example = |line: &str| match line.strip_prefix("#  ") {
        Some(line) => format!("  {line}\n"),
        None => format!("{line}\n"),
    };
    let uncommented = |part: &str| part.lines().map(example).collect::<String>();
    let text = format!("{}upstreams:\n{}", uncommented(before), uncommented(rest));
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
    let text = text.replace("WARMGATE_ADMIN_TOKEN", "WARMGATE_NO_SUCH_VARIABLE");
    let problems = parse(&text, Path::new("conf/warmgate.yaml")).expect_err("the files of the example are not there");
    let paths: Vec<&str> = problems.list.iter().map(|problem| problem.path.as_str()).collect();
    let kubernetes = (!cfg!(feature = "kube")).then_some("upstreams[3].discover.kubernetes");
    let not_there = [
        "listen[0].tls.cert",
        "listen[0].tls.key",
        "listen[0].tls.client_ca",
        "admin.token",
        "admin.tls.cert",
        "admin.tls.key",
        "admin.tls.client_ca",
        "upstreams[0].api_key",
        "upstreams[1].tls.ca",
        "upstreams[1].tls.cert",
        "upstreams[1].tls.key",
    ];
    let after = ["tenants[0].keys[1]", "tenants[0].keys_dir", "jwt.ca", "cluster.ca"];
    let not_there: Vec<&str> = not_there.into_iter().chain(kubernetes).chain(after).collect();
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
        let in_items =
            ["[0]", "[1]", "[2]", "[3]"].map(|item| lines.first(&path.replacen("[]", item, 1).replace("[]", "[0]")));
        let shows = |line: &usize| path.ends_with("[]") || text[line - 1].contains(&key);
        let line = in_items.into_iter().flatten().find(shows).unwrap_or_else(|| panic!("no line of {path}"));
        let above = text[line.saturating_sub(2)].trim_start();
        assert!(text[line - 1].contains(" # ") || above.starts_with('#'), "{path} has no comment");
    }
}

/// Where the shipped files have what only their reader can have: certificates, keys and tokens.
const SECRET_PLACES: [&str; 2] = ["/etc/warmgate/", "/run/secrets/"];

#[test]
fn examples_are_valid() {
    let conf = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf");
    let secrets = super::tls::tests::folder();
    let put = |from: &str, to: &str| fs::copy(secrets.path().join(from), secrets.path().join(to)).expect("a copy");
    for (from, to) in [
        ("good.crt", "server.crt"),
        ("good.key", "server.key"),
        ("good.crt", "clients-ca.crt"),
        ("text", "admin-token"),
        ("text", "warmgate-admin-token"),
    ] {
        put(from, to);
    }
    let place = format!("{}/", secrets.path().display());
    let mut files = 0;
    for folder in ["examples", "container"] {
        for entry in fs::read_dir(conf.join(folder)).expect(folder) {
            let path = entry.expect("an entry").path();
            if path.extension().is_none_or(|ending| ending != "yaml") {
                continue;
            }
            let text = fs::read_to_string(&path).expect("text");
            let text = SECRET_PLACES.iter().fold(text, |text, secret| text.replace(secret, &place));
            if let Err(problems) = parse(&text, &path) {
                panic!("{problems}");
            }
            files += 1;
        }
    }
    assert!(files >= 5);
}

#[test]
fn the_ways_to_run_it_name_what_there_is() {
    let conf = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf");
    let unit = fs::read_to_string(conf.join("systemd/warmgate.service")).expect("the unit");
    let recipe = fs::read_to_string(conf.join("container/Containerfile")).expect("the recipe");
    let grace = Plan::default().shutdown.grace.0.as_secs();
    let number = |text: &str, before: &str| -> u64 {
        let rest = text.split_once(before).map(|(_, rest)| rest).unwrap_or_default();
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect(before)
    };
    assert!(number(&unit, "TimeoutStopSec=") > grace, "whoever stops it waits for longer than it does");
    assert!(number(&recipe, "--stop-timeout ") > grace);
    assert!(unit.contains("ExecReload=/bin/kill -HUP $MAINPID"));
    for file in ["conf/container/warmgate.yaml", "conf/examples/tls.yaml"] {
        assert!(recipe.contains(file) && conf.join("..").join(file).is_file(), "{file}");
    }
}
