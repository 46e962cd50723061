//! Slices as Kubernetes writes them.

use serde_json::{Value, json};

use super::*;

fn slice(name: &str, addresses: &str, ports: Value, endpoints: &[Value]) -> EndpointSlice {
    let slice = json!({
        "metadata": {"name": name}, "addressType": addresses, "ports": ports, "endpoints": endpoints,
    });
    serde_json::from_value(slice).unwrap()
}

/// A pod in the state of that letter: ready, terminating, dead or not ready.
fn pod(uid: &str, address: &str, state: char) -> Value {
    let conditions = match state {
        'r' => json!({"ready": true, "serving": true, "terminating": false}),
        't' => json!({"ready": false, "serving": true, "terminating": true}),
        'd' => json!({"ready": false, "serving": false, "terminating": true}),
        'n' => json!({"ready": false, "serving": false, "terminating": false}),
        'u' => json!({}),
        other => panic!("{other}"),
    };
    json!({"addresses": [address], "conditions": conditions, "targetRef": {"kind": "Pod", "uid": uid}})
}

fn http() -> Value {
    json!([{"name": "http", "port": 8000, "protocol": "TCP"}])
}

/// Addresses, those that leave with a `-` after them; what is wrong, after a `!`.
fn shown(slices: &[EndpointSlice], port: Option<&EndpointPort>, known: &[&str]) -> Vec<String> {
    let mut held = Slices::default();
    slices.iter().for_each(|slice| held.put(slice, port));
    let known: Vec<Place> = known.iter().map(|known| Place::from(known.parse::<SocketAddr>().unwrap())).collect();
    let joined = held.joined(&known);
    let mut shown: Vec<String> =
        joined.places.iter().map(|p| format!("{}{}", p.address, if p.leaves { "-" } else { "" })).collect();
    shown.sort();
    shown.extend(joined.problem.map(|problem| format!("!{problem}")));
    shown
}

#[track_caller]
fn check(slices: &[EndpointSlice], expected: &[&str]) {
    assert_eq!(shown(slices, None, &[]), expected);
}

#[test]
fn what_serves_what_leaves_and_what_is_left_out() {
    let pods = [
        pod("a", "10.0.0.1", 'r'),
        pod("b", "10.0.0.2", 't'),
        pod("c", "10.0.0.3", 'd'),
        pod("d", "10.0.0.4", 'n'),
        pod("e", "10.0.0.5", 'u'),
    ];
    check(&[slice("s", "IPv4", http(), &pods)], &["10.0.0.1:8000", "10.0.0.2:8000-", "10.0.0.5:8000"]);
    check(&[slice("s", "IPv4", http(), &pods[2..4])], &["!none of its 2 endpoints is ready"]);
    check(&[], &["!its service has no endpoints, or there is no such service"]);
    let published = json!({"addresses": ["10.0.0.1"], "conditions": {"ready": true, "terminating": true}});
    check(&[slice("s", "IPv4", http(), &[published])], &["10.0.0.1:8000-"]);
}

#[test]
fn a_pod_in_several_slices_counts_once() {
    let (four, six) = (pod("a", "10.0.0.1", 'r'), pod("a", "fd00::1", 'r'));
    let both = [slice("s4", "IPv4", http(), &[four]), slice("s6", "IPv6", http(), &[six])];
    check(&both, &["10.0.0.1:8000"]);
    assert_eq!(shown(&both, None, &["[fd00::1]:8000"]), ["[fd00::1]:8000"], "that of its addresses which is known");
    // While it moves from one to the other.
    let moving = [
        slice("old", "IPv4", http(), &[pod("a", "10.0.0.1", 'n')]),
        slice("new", "IPv4", http(), &[pod("a", "10.0.0.1", 'r')]),
    ];
    check(&moving, &["10.0.0.1:8000"]);
    let nameless = json!({"addresses": ["10.0.0.9"]});
    let twice = ["s", "t"].map(|name| slice(name, "IPv4", http(), std::slice::from_ref(&nameless)));
    check(&twice, &["10.0.0.9:8000"]);
}

#[test]
fn a_slice_takes_the_place_of_what_it_was_and_goes() {
    let mut held = Slices::default();
    let of = |pods: &[Value]| slice("s", "IPv4", http(), pods);
    held.put(&of(&[pod("a", "10.0.0.1", 'r'), pod("b", "10.0.0.2", 'r')]), None);
    held.put(&of(&[pod("b", "10.0.0.2", 'r')]), None);
    assert_eq!(held.joined(&[]).places.len(), 1);
    held.remove(&of(&[]));
    assert_eq!(held.joined(&[]).places.len(), 0);
}

#[test]
fn ports_by_name_by_number_and_the_only_one() {
    let two = json!([{"name": "http", "port": 8000}, {"name": "metrics", "port": 9090}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
    let slices = |ports: &Value| [slice("s", "IPv4", ports.clone(), &[pod("a", "10.0.0.1", 'r')])];
    let name = |name: &str| Some(EndpointPort::Name(name.into()));
    let none = ["!none of its 1 endpoints has that port, or they have several and none is chosen"];
    let cases = [
        (&two, name("http"), vec!["10.0.0.1:8000"]),
        (&two, Some(EndpointPort::Number(9090)), vec!["10.0.0.1:9090"]),
        (&two, name("grpc"), none.to_vec()),
        (&two, name("dns"), none.to_vec()),
        (&two, Some(EndpointPort::Number(80)), none.to_vec()),
        (&two, None, none.to_vec()),
        (&json!([{"name": "", "port": 8000}]), None, vec!["10.0.0.1:8000"]),
        (&json!([{"port": 0}]), None, none.to_vec()),
        (&json!(null), None, none.to_vec()),
    ];
    for (ports, port, expected) in cases {
        assert_eq!(shown(&slices(ports), port.as_ref(), &[]), expected, "{ports} {port:?}");
    }
}

#[test]
fn nonsense_is_no_place() {
    let odd = [json!({"addresses": []}), json!({"addresses": ["pod-7"]}), json!({"addresses": ["10.0.0.1:80"]})];
    check(&[slice("s", "IPv4", http(), &odd)], &["!its service has no endpoints, or there is no such service"]);
    let named = slice("s", "FQDN", http(), &[json!({"addresses": ["pod.example.org"]})]);
    check(&[named], &["!its service has no endpoints, or there is no such service"]);
}

#[test]
fn l8_endpoints_that_are_held_are_bounded() {
    let mut held = Slices::default();
    for n in 0..30u32 {
        let pods: Vec<Value> = (0..100).map(|m| pod(&format!("{n}-{m}"), &format!("10.{n}.0.{m}"), 'r')).collect();
        held.put(&slice(&format!("s{n}"), "IPv4", http(), &pods), None);
    }
    let joined = held.joined(&[]);
    assert_eq!(joined.places.len(), HELD_MAX);
    assert!(joined.problem.is_some_and(|problem| problem.contains("2048")));
}
