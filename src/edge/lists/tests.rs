//! Lists of a large fleet, and what becomes of them when it changes.

use super::*;
use crate::config::{Plan, Upstream};
use crate::edge::node::Node;
use crate::engines;

/// A fleet of Ollama nodes that are up, with nothing on them yet.
fn fleet(nodes: usize) -> Ingress {
    let upstream = |n: usize| {
        let url = "http://127.0.0.1:9".parse().unwrap();
        Upstream { engine: Some("ollama"), ..Upstream::new(format!("n{n:02}"), url) }
    };
    let ingress = Ingress::new(Plan { upstreams: (0..nodes).map(upstream).collect(), ..Plan::default() }).unwrap();
    ingress.roster.nodes().iter().for_each(|node| set_up(&ingress, node, true));
    ingress
}

fn node(ingress: &Ingress, n: usize) -> Arc<Node> {
    ingress.roster.nodes().iter().nth(n).unwrap().clone()
}

fn set_up(ingress: &Ingress, node: &Node, up: bool) {
    ingress.fleet.with(|fleet, now| fleet.learn_health(node.id, up, now));
}

/// As after a reading that lists these models, whose digests end so.
fn list(node: &Node, models: &[String], digest: &str) {
    let entry = |name: &String| {
        json!({
            "name": name, "model": name, "size": 4_000_000_000u64, "modified_at": "2026-01-01T00:00:00Z",
            "digest": format!("{name}-{digest}"),
            "details": { "format": "gguf", "family": "moss", "parameter_size": "7B", "quantization_level": "Q4_K_M" },
        })
    };
    let tags = json!({ "models": models.iter().map(entry).collect::<Value>() }).to_string();
    let bodies = [Some(tags.as_bytes()), Some(br#"{"models":[]}"#.as_slice())];
    let reading = (engines::find("ollama").unwrap().read)(&bodies).unwrap();
    node.listings.store(Arc::new(reading.listings));
}

fn models(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("moss-{n:03}:7b")).collect()
}

/// What the gauge shows, as `model kind`.
fn drifting(ingress: &Ingress) -> Vec<String> {
    let text = String::from_utf8(ingress.metrics.text()).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("warmgate_model_drift{"));
    lines.map(str::to_string).collect()
}

#[test]
fn fifty_nodes_of_two_hundred_models_are_served_in_under_a_millisecond() {
    let ingress = fleet(50);
    let models = models(200);
    ingress.roster.nodes().iter().for_each(|node| list(node, &models, "d"));
    let began = Instant::now();
    ingress.lists.catch_up(&ingress);
    let making = began.elapsed();
    let made = ingress.lists.latest();

    let mut times: Vec<Duration> = Vec::new();
    for n in 0..2000 {
        let began = Instant::now();
        let latest = ingress.lists.latest();
        let (tags, one) = (latest.tags.whole(), latest.openai_model(&models[n % 200]));
        times.push(began.elapsed());
        assert!(Arc::ptr_eq(&latest, &made), "made once");
        assert!(tags.len() > 200 * 100 && one.is_some());
    }
    times.sort_unstable();
    let (p50, p99) = (times[1000], times[1980]);
    println!("50 nodes x 200 models: served in {p50:?} (p50), {p99:?} (p99); made in {making:?}, in the background");
    assert!(p99 < Duration::from_millis(1), "p99 {p99:?}");
}

#[test]
fn a_change_makes_them_anew_and_nothing_else_does() {
    let ingress = fleet(2);
    let models = models(1);
    let made = || {
        ingress.lists.catch_up(&ingress);
        ingress.lists.latest()
    };
    assert_eq!(made().tags.whole(), r#"{"models":[]}"#);
    ingress.roster.nodes().iter().for_each(|node| list(node, &models, "d"));
    let both = made();
    assert!(Arc::ptr_eq(&both, &made()));
    let holders =
        |made: &Made| serde_json::from_slice::<Value>(&made.tags.whole()).unwrap()["models"][0]["nodes"].clone();
    assert_eq!(holders(&both), json!(["n00", "n01"]));
    set_up(&ingress, &node(&ingress, 0), false);
    assert_eq!(holders(&made()), json!(["n01"]));
    list(&node(&ingress, 1), &[], "d");
    assert_eq!(made().tags.whole(), r#"{"models":[]}"#);
    assert!(made().openai_model(&models[0]).is_none());
}

#[test]
fn what_differs_is_shown_while_it_does() {
    let ingress = fleet(2);
    list(&node(&ingress, 0), &models(2), "d1");
    list(&node(&ingress, 1), &models(1), "d2");
    ingress.lists.catch_up(&ingress);
    assert_eq!(drifting(&ingress), [r#"kind="digest",model="moss-000:7b"} 1"#]);
    assert_eq!(ingress.lists.latest().drifts.len(), 1);
    list(&node(&ingress, 1), &models(1), "d1");
    ingress.lists.catch_up(&ingress);
    assert_eq!(drifting(&ingress), [""; 0]);
}
