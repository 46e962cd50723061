//! Rows that stay, join and leave.

use std::net::SocketAddr;
use std::time::Duration;

use super::*;
use crate::config::Plan;
use crate::edge::ingress::Ingress;
use crate::engines::Listing;
use crate::routing::ask::Ask;
use crate::routing::fleet::LeaseId;
use crate::routing::report::{ModelReport, Report};
use crate::routing::select::{Query, decide};

fn upstreams(text: &str) -> Vec<config::Upstream> {
    config::parse(&format!("upstreams: [{text}]"), "x".as_ref()).unwrap().upstreams
}

fn models(text: &str) -> Vec<config::Group> {
    let text = format!("upstreams: [{{name: a, url: 'http://a'}}]\nmodels: [{text}]");
    config::parse(&text, "x".as_ref()).unwrap().models
}

const TWO: &str = "{name: a, url: 'http://a', engine: ollama}, {name: b, url: 'http://b', engine: ollama}";

fn ingress(text: &str) -> Ingress {
    Ingress::new(Plan { upstreams: upstreams(text), ..Plan::default() }).unwrap()
}

fn names_of(nodes: &Nodes) -> Vec<String> {
    nodes.iter().map(|node| node.name.clone()).collect()
}

fn id_of(ingress: &Ingress, name: &str) -> UpstreamId {
    ingress.roster.nodes().iter().find(|node| node.name == name).unwrap().id
}

/// Makes a row one that is up and holds the model that a plain ask is for.
fn fill(ingress: &Ingress, name: &str) {
    let model = Ask::plain().model;
    let node = ingress.roster.nodes().iter().find(|node| node.name == name).unwrap().clone();
    let tags = serde_json::json!({"name": model, "model": model});
    node.listings.store(Arc::new(vec![Listing { name: model.clone(), tags: Some(tags), ..Listing::default() }]));
    node.learn_health(&ingress.fleet, true);
    let report = Report {
        models: vec![ModelReport { name: model, resident: true, ..ModelReport::default() }],
        ..Report::default()
    };
    ingress.fleet.with(|fleet, now| fleet.learn_report(node.id, &report, fleet.asked(node.id, now), now));
}

/// Who could take a plain ask now.
fn eligible(ingress: &Ingress) -> Vec<String> {
    let query = Query { ask: Ask::plain(), tried: vec![], request: 1 };
    let rows = ingress.fleet.with(|fleet, now| decide(fleet, &query, now)).rows;
    let mut names: Vec<String> = rows.iter().map(|row| ingress.node_name(row.upstream)).collect();
    names.sort();
    names
}

fn book(ingress: &Ingress, name: &str) -> LeaseId {
    let (id, ask) = (id_of(ingress, name), Ask::plain());
    ingress.fleet.with(|fleet, now| {
        let decision = decide(fleet, &Query { ask: ask.clone(), tried: vec![], request: 1 }, now);
        fleet.book(decision.rows.iter().find(|row| row.upstream == id).unwrap(), &ask, now)
    })
}

#[test]
fn cat_07_models_of_a_removed_node_are_gone_at_once() {
    let ingress = ingress(TWO);
    fill(&ingress, "a");
    let tags = |ingress: &Ingress| {
        ingress.lists.catch_up(ingress);
        String::from_utf8(ingress.lists.latest().tags.whole().to_vec()).unwrap()
    };
    assert!(tags(&ingress).contains("\"nodes\":[\"a\"]"), "{}", tags(&ingress));

    ingress.roster.apply(&upstreams(TWO)[1..], &[]);

    assert_eq!(tags(&ingress), r#"{"models":[]}"#);
    assert_eq!(ingress.lists.latest().openai_model(&Ask::plain().model), None);
    assert_eq!(eligible(&ingress), [""; 0]);
}

#[test]
fn what_stays_keeps_what_was_learnt_and_its_id() {
    let ingress = ingress(TWO);
    fill(&ingress, "a");
    let (a, site) = (id_of(&ingress, "a"), ingress.roster.nodes().iter().next().unwrap().site.clone());
    let changed = TWO.replace("'http://a'", "'http://a', slots: 3, weight: 2");

    ingress.roster.apply(&upstreams(&format!("{{name: c, url: 'http://c'}}, {changed}")), &[]);

    let nodes = ingress.roster.nodes();
    assert_eq!(names_of(&nodes), ["c", "a", "b"], "in the order of the configuration");
    assert_eq!((id_of(&ingress, "a"), eligible(&ingress)), (a, vec!["a".to_string()]));
    let slots = ingress.fleet.with(|fleet, _| fleet.upstream(a).unwrap().spec.slots);
    assert_eq!(slots, Some(3));
    assert!(!nodes.has(&site), "whoever polls it ends, and another begins");
    assert_eq!(nodes.here(a).unwrap().listings.load().len(), 1);
}

#[test]
fn another_place_is_another_node() {
    let changes = [
        ("'http://a'", "'http://elsewhere'"),
        ("{name: a", "{name: renamed"),
        ("engine: ollama}, ", "engine: openai}, "),
    ];
    for (before, after) in changes {
        let ingress = ingress(TWO);
        fill(&ingress, "a");
        let a = id_of(&ingress, "a");
        ingress.roster.apply(&upstreams(&TWO.replacen(before, after, 1)), &[]);
        assert!(ingress.roster.nodes().here(a).is_none(), "{after}");
        assert_eq!(ingress.roster.nodes().iter().count(), 2);
        assert_eq!(eligible(&ingress), [""; 0], "{after}");
    }
}

#[test]
fn a_row_that_left_is_found_while_its_requests_run() {
    let ingress = ingress(TWO);
    fill(&ingress, "a");
    let (a, lease) = (id_of(&ingress, "a"), book(&ingress, "a"));

    ingress.roster.apply(&[], &[]);

    assert_eq!(ingress.node_name(a), "a");
    assert!(ingress.roster.nodes().here(a).is_none());
    ingress.fleet.with(|fleet, now| fleet.end(lease, crate::routing::fleet::Outcome::Void, now));
    assert_eq!(ingress.fleet.with(|fleet, _| fleet.upstreams().count()), 0);
    assert_eq!(ingress.node_name(a), "a", "for receipts");
}

#[test]
fn l8_those_that_left_are_bounded() {
    let ingress = ingress("");
    for n in 0..LEFT_MAX + 10 {
        ingress.roster.apply(&upstreams(&format!("{{name: n{n}, url: 'http://n{n}'}}")), &[]);
    }
    let nodes = ingress.roster.nodes();
    assert_eq!((nodes.iter().count(), nodes.left.len()), (1, LEFT_MAX));
}

#[tokio::test]
async fn whoever_looks_after_the_rows_is_told() {
    let ingress = ingress(TWO);
    let mut news = ingress.roster.news();
    ingress.roster.apply(&[], &[]);
    tokio::time::timeout(Duration::from_secs(5), news.changed()).await.unwrap().unwrap();
}

const RANKS: &str = "{name: gpus, url: 'http://gpus', engine: vllm, slots: 2, data_parallel: 3}";

#[test]
fn ranks_are_rows_of_one_site() {
    let ingress = ingress(RANKS);
    let nodes = ingress.roster.nodes();
    assert_eq!(names_of(&nodes), ["gpus/0", "gpus/1", "gpus/2"]);
    assert_eq!(nodes.sites().count(), 1);
    assert_eq!(
        nodes.iter().filter_map(|node| node.steering()).collect::<Vec<_>>(),
        [("x-data-parallel-rank", 0), ("x-data-parallel-rank", 1), ("x-data-parallel-rank", 2)]
    );
    for node in nodes.iter() {
        let spec = ingress.fleet.with(|fleet, _| fleet.upstream(node.id).unwrap().spec.clone());
        assert_eq!((spec.name, spec.slots), (node.name.clone(), Some(2)), "slots are those of a rank");
    }
    ingress.roster.apply(&upstreams(&RANKS.replace("3}", "2}")), &[]);
    assert_eq!(names_of(&ingress.roster.nodes()), ["gpus/0", "gpus/1"]);
    assert_eq!(ingress.fleet.with(|fleet, _| fleet.upstreams().count()), 2);
}

#[test]
fn a_name_over_an_upstream_of_several_rows_is_served_by_each() {
    let written = models("{name: fast, targets: [{upstream: a, model: m, rpm: 10, tpm: 2}]}");
    let ingress = ingress(&RANKS.replace("gpus,", "a,"));
    ingress.roster.apply(&upstreams(&RANKS.replace("gpus,", "a,")), &written);
    let targets = ingress.fleet.with(|fleet, _| fleet.rules.groups.find("fast").unwrap().0.targets.clone());
    let ids: Vec<UpstreamId> = ingress.roster.nodes().iter().map(|node| node.id).collect();
    assert_eq!(targets.iter().map(|target| target.upstream).collect::<Vec<_>>(), ids);
    assert!(targets.iter().all(|target| (target.rpm, target.tpm) == (Some(3), Some(1))), "shared out: {targets:?}");
}

const POOL: &str = "{name: pool, url: 'http://pool.test:8000', engine: ollama, discover: dns}";

fn addresses(ips: &[&str]) -> Vec<Place> {
    ips.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 8000).into()).collect()
}

fn found(ingress: &Ingress, ips: &[&str]) -> Vec<String> {
    let nodes = ingress.roster.nodes();
    ingress.roster.found(&nodes.names()[0], addresses(ips));
    names_of(&ingress.roster.nodes())
}

#[test]
fn ops_04_addresses_join_and_leave_and_those_that_stay_keep_all() {
    let ingress = ingress(POOL);
    assert!(names_of(&ingress.roster.nodes()).is_empty() && !ingress.roster.nodes().are_found());
    let two = found(&ingress, &["10.0.0.7", "10.0.0.8"]);
    assert!(ingress.roster.nodes().are_found());
    fill(&ingress, &two[0]);
    let kept = id_of(&ingress, &two[0]);

    let then = found(&ingress, &["fd00::9", "10.0.0.7"]);

    assert_eq!((then.len(), &then[0]), (2, &two[0]));
    assert!(!then.contains(&two[1]));
    assert_eq!(id_of(&ingress, &two[0]), kept);
    assert_eq!(eligible(&ingress), [two[0].clone()]);
    assert_eq!(found(&ingress, &["10.0.0.8", "10.0.0.7"]), two, "named alike after it was gone");
}

#[test]
fn labels_agree_everywhere_and_tell_no_address() {
    let [one, other] = [ingress(POOL), ingress(POOL)];
    let names = found(&one, &["10.0.0.7", "fd00::9", "::ffff:10.0.0.7"]);
    assert_eq!(names, found(&other, &["fd00::9", "10.0.0.7"]), "in whatever order, and each once");
    for name in &names {
        let label = name.strip_prefix("pool@").unwrap();
        assert!(label.len() == 6 && label.bytes().all(|b| b.is_ascii_hexdigit()), "{name}");
    }
    assert!(one.roster.nodes().iter().all(|node| node.label == "pool"), "metrics do not grow with addresses");
}

#[test]
fn l8_rows_of_one_name_are_bounded_and_those_known_come_first() {
    let ingress = ingress(POOL);
    let known = found(&ingress, &["10.9.9.9"]);
    let many: Vec<String> = (0..200).map(|n| format!("10.0.0.{n}")).chain(["10.9.9.9".to_string()]).collect();
    let names = found(&ingress, &many.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(names.len(), rows_max(None));
    assert!(names.contains(&known[0]));
}

#[test]
fn a_place_that_leaves_drains_and_may_stay_after_all() {
    let ingress = ingress(POOL);
    let name = ingress.roster.nodes().names()[0].clone();
    let address = SocketAddr::new("10.0.0.7".parse().unwrap(), 8000);
    let told = |leaves: bool| {
        ingress.roster.found(&name, vec![Place { address, leaves }]);
        ingress.roster.nodes().iter().map(|node| node.id).collect::<Vec<_>>()
    };
    let row = told(false);
    let row_name = names_of(&ingress.roster.nodes())[0].clone();
    fill(&ingress, &row_name);
    assert_eq!(eligible(&ingress), std::slice::from_ref(&row_name));
    assert_eq!(told(true), row, "it is still there");
    assert!(eligible(&ingress).is_empty());
    ingress.roster.apply(&upstreams(&POOL.replace("ollama,", "ollama, weight: 2,")), &[]);
    assert!(eligible(&ingress).is_empty(), "a reload changes nothing of that");
    ingress.roster.apply(&upstreams(POOL), &[]);
    assert_eq!(told(false), row);
    assert_eq!(eligible(&ingress), [row_name]);
}

#[test]
fn servers_of_one_host_keep_their_names_whichever_of_them_goes() {
    let ingress = ingress(&POOL.replace("dns", "srv"));
    let found = |ports: &[u16]| {
        let address = |port: &u16| SocketAddr::new("10.0.0.7".parse().unwrap(), *port).into();
        let nodes = ingress.roster.nodes();
        ingress.roster.found(&nodes.names()[0], ports.iter().map(address).collect());
        names_of(&ingress.roster.nodes())
    };
    let both = found(&[8000, 8001]);
    assert_eq!(found(&[8001]), both[1..]);
}

#[test]
fn what_is_found_for_a_configuration_of_the_past_is_nothing() {
    let ingress = ingress(POOL);
    let nodes = ingress.roster.nodes();
    ingress.roster.apply(&upstreams(&POOL.replace("8000", "9000")), &[]);
    ingress.roster.found(&nodes.names()[0], addresses(&["10.0.0.7"]));
    assert!(names_of(&ingress.roster.nodes()).is_empty());
}

#[test]
fn an_operator_s_drain_goes_with_the_name() {
    let ingress = ingress(TWO);
    let apply = |text: &str| {
        ingress.roster.apply(&upstreams(text), &[]);
        ingress.roster.nodes().iter().for_each(|node| fill(&ingress, &node.name));
        eligible(&ingress)
    };
    assert_eq!(apply(TWO), ["a", "b"]);
    assert!(ingress.roster.drain("c", true).is_none());
    assert_eq!(ingress.roster.drain("a", true).map(|nodes| nodes.len()), Some(1));
    assert_eq!(eligible(&ingress), ["b"]);

    assert_eq!(apply(&TWO.replace("http://a", "http://elsewhere")), ["b"], "another server of that name");
    assert_eq!(apply(&TWO.replace("{name: a,", "{name: a, slots: 3,")), ["b"]);
    assert_eq!(apply("{name: b, url: 'http://b', engine: ollama}"), ["b"]);
    assert_eq!(apply(TWO), ["a", "b"], "it is forgotten with the name");
    ingress.roster.drain("a", true);
    ingress.roster.drain("a", false);
    assert_eq!(eligible(&ingress), ["a", "b"]);
}

#[test]
fn rows_drain_by_their_own_name_or_their_upstream_s() {
    let ranks = "{name: a, url: 'http://a', engine: vllm, data_parallel: 2}, {name: c, url: 'http://c', engine: vllm}";
    let ingress = ingress(ranks);
    let drained = |name: &str| {
        let nodes = ingress.roster.nodes();
        let node = nodes.iter().find(|node| node.name == name).unwrap();
        ingress.roster.drained_as(node)
    };
    ingress.roster.drain("a/1", true);
    assert_eq!((drained("a/0"), drained("a/1"), drained("c")), (None, Some("a/1".into()), None));
    ingress.roster.drain("a", true);
    ingress.roster.drain("a/1", false);
    assert_eq!((drained("a/0"), drained("a/1")), (Some("a".into()), Some("a".into())));
    ingress.roster.drain("a", false);
    assert_eq!((drained("a/0"), drained("a/1")), (None, None));
}
