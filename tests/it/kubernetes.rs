//! Pods as nodes: they come, turn unready, terminate and go as Kubernetes tells, and stay when it tells nothing.

use serde_json::{Value, json};

use crate::gate::{Gate, Settings};
use crate::kube_api::{KubeApi, pod};
use crate::patience::within;
use crate::rig::finished;
use crate::talk::{Dialect, MODEL, Talk};
use crate::upstream::{Hold, Model, Script, Upstream};

/// A gate over the pods of a service, all on one port as pods are.
pub struct Cluster {
    pub api: KubeApi,
    pub pods: Vec<Upstream>,
    pub gate: Gate,
}

pub const FAST: &str = "health: {interval: 200ms}\ntelemetry: {interval: 100ms}\nresilience: {slow_start: 0s}";

impl Cluster {
    /// With so many pods, of which the slice has those in these states.
    pub async fn new(pods: usize, states: &[&str]) -> Cluster {
        let (api, pods) = (KubeApi::start().await, made(pods).await);
        api.set("vllm-a", pods[0].address().port(), endpoints(&pods, states));
        // On a busy machine the first list may come later than a start waits for it.
        let gate = Gate::start_in_any_state(&settings(&api, "service: vllm, namespace: ml, port: http")).await;
        let cluster = Cluster { api, pods, gate };
        cluster.source("the first list", |source| source["answers"] == true).await;
        cluster
    }

    pub fn set(&self, states: &[&str]) {
        self.api.set("vllm-a", self.port(), endpoints(&self.pods, states));
    }

    fn port(&self) -> u16 {
        self.pods[0].address().port()
    }

    pub async fn rows(&self, what: &str, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        within(what, async {
            loop {
                let status = self.gate.status().await;
                let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
                if wanted(&nodes) {
                    return nodes;
                }
                // There is no event to await from outside; the pause keeps this from spinning.
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        })
        .await
    }

    /// Returns once there are so many rows and all are up.
    pub async fn settled(&self, count: usize) {
        let up = |rows: &[Value]| {
            rows.len() == count && rows.iter().all(|row| row["state"] == "up" && row["models"] != json!([]))
        };
        self.rows(&format!("{count} rows that are up"), up).await;
    }

    /// What is told of the source, once it is as wanted.
    pub async fn source(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        within(what, async {
            loop {
                let source = self.gate.status().await["discovered"][0].clone();
                if wanted(&source) {
                    return source;
                }
                // There is no event to await from outside; the pause keeps this from spinning.
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        })
        .await
    }

    /// Asks about ten things; gives how many came to that pod.
    pub async fn share(&self, pod: usize, topic: &str) -> usize {
        let before = self.pods[pod].count();
        for n in 0..10 {
            let reply = finished(&self.gate, &Talk::about(Dialect::Ollama, &format!("{topic} {n}"))).await;
            assert_eq!(reply.status, 200);
        }
        self.pods[pod].count() - before
    }
}

/// Pods on addresses of their own and one port, that of the first.
pub async fn made(count: usize) -> Vec<Upstream> {
    let first = Upstream::ollama_at("pod-2", "127.0.0.2:0", vec![Model::resident(MODEL)]).await;
    let port = first.address().port();
    let mut pods = vec![first];
    for n in 3..count + 2 {
        let address = format!("127.0.0.{n}:{port}");
        pods.push(Upstream::ollama_at(&format!("pod-{n}"), &address, vec![Model::resident(MODEL)]).await);
    }
    pods
}

pub fn endpoints(pods: &[Upstream], states: &[&str]) -> Vec<Value> {
    pods.iter().zip(states).filter(|(_, state)| !state.is_empty()).map(|(node, state)| pod(node, state)).collect()
}

pub fn settings(api: &KubeApi, endpoints: &str) -> Settings {
    let keys = format!("name: pool, url: \"http://vllm.ml.svc\", discover: {{kubernetes: {{{endpoints}}}}}");
    Settings::default().upstream(&keys).more(FAST).beside("kubeconfig", &api.kubeconfig(), "KUBECONFIG")
}

#[tokio::test]
async fn pods_come_turn_unready_and_go() {
    let cluster = Cluster::new(3, &["ready", "ready"]).await;
    cluster.settled(2).await;
    let asked = cluster.api.listed(0).await[0].clone();
    assert!(asked.starts_with("/apis/discovery.k8s.io/v1/namespaces/ml/endpointslices?"), "{asked}");
    assert!(asked.contains("labelSelector=kubernetes.io%2Fservice-name%3Dvllm"), "{asked}");
    cluster.api.watched(0).await;

    cluster.set(&["ready", "ready", "ready"]);
    cluster.settled(3).await;
    for row in cluster.rows("all three", |rows| rows.len() == 3).await {
        assert_eq!(row["engine"], "ollama", "what runs in a pod is found out");
        assert!(row["name"].as_str().is_some_and(|name| name.starts_with("pool@")), "{row:#}");
    }
    cluster.set(&["unready", "ready", "ready"]);
    cluster.settled(2).await;
    assert_eq!(cluster.share(0, "moss").await, 0, "who is not ready is not asked");
    cluster.api.set("vllm-b", cluster.port(), endpoints(&cluster.pods, &["ready", "ready"]));
    cluster.settled(3).await;
    cluster.api.remove("vllm-b");
    cluster.settled(2).await;
    cluster.set(&["", "", "ready"]);
    cluster.settled(1).await;
    assert_eq!(cluster.share(2, "fern").await, 10);
    assert_eq!(cluster.api.lists(), 1, "all that came after the list was told by the watch");
}

#[tokio::test]
async fn ops_04_hlt_13_a_pod_that_terminates_finishes_what_runs_and_gets_nothing_new() {
    let cluster = Cluster::new(2, &["ready", "ready"]).await;
    cluster.settled(2).await;
    let hold = Hold::new();
    let stream = || {
        let frames = Dialect::Ollama.stream().chunk(Dialect::Ollama.frame("all is")).hold(&hold);
        frames.chunk(Dialect::Ollama.last_frame()).finish()
    };
    cluster.pods.iter().for_each(|pod| pod.always(stream()));
    let mut running = cluster.gate.send(&Talk::about(Dialect::Ollama, "moss").ask()).await;
    running.expect_piece().await;
    let home = cluster.pods.iter().position(|pod| pod.count() == 1).expect("a pod that was asked");
    cluster.pods[1 - home].always(Script::usual());

    let states = if home == 0 { ["terminating", "ready"] } else { ["ready", "terminating"] };
    cluster.set(&states);
    let row = running.node().to_owned();
    let draining = cluster.gate.node_once(&row, "the pod to drain", |node| node["draining"] == true).await;
    assert_eq!((&draining["drained_by"][0], &draining["in_flight"]), (&"discovery".into(), &1.into()));
    let moved = finished(&cluster.gate, &Talk::about(Dialect::Ollama, "moss").then("And where?")).await;
    assert_ne!(moved.node(), row);

    cluster.set(if home == 0 { &["", "ready"] } else { &["ready", ""] });
    cluster.settled(1).await;
    hold.open();
    running.rest().await.1.expect("the running answer comes to its end");
    assert_eq!(cluster.pods[home].count(), 1, "no new work");
}

#[tokio::test]
async fn a_pod_that_is_to_stay_after_all_takes_work_again() {
    let (api, pods) = (KubeApi::start().await, made(1).await);
    api.set("vllm-a", pods[0].address().port(), endpoints(&pods, &["terminating"]));
    let gate = Gate::start_not_ready(&settings(&api, "service: vllm")).await;
    let cluster = Cluster { api, pods, gate };
    assert!(cluster.api.listed(0).await[0].contains("/namespaces/own/"), "where no other namespace is named");
    cluster.set(&["ready"]);
    cluster.settled(1).await;
    assert_eq!(cluster.share(0, "moss").await, 10);
}
