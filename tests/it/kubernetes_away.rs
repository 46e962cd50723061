//! What is known of pods outlives a Kubernetes that forgets, breaks off, refuses, or is gone.

use serde_json::{Value, json};

use crate::gate::Gate;
use crate::kube_api::KubeApi;
use crate::kubernetes::{Cluster, endpoints, made, settings};

#[tokio::test]
async fn a_list_follows_where_news_are_forgotten() {
    let cluster = Cluster::new(3, &["ready", "ready"]).await;
    cluster.settled(2).await;
    let names = |rows: &[Value]| rows.iter().map(|row| row["name"].clone()).collect::<Vec<_>>();
    let before = cluster.rows("two rows", |rows| rows.len() == 2).await;
    cluster.api.watched(0).await;
    cluster.api.bookmark();

    cluster.api.forget(|_| cluster.set(&["", "ready", "ready"]));

    cluster.api.listed(1).await;
    cluster.rows("another pair", |rows| rows.len() == 2 && names(rows) != names(&before)).await;
    cluster.settled(2).await;
    assert_eq!(cluster.share(0, "moss").await, 0, "the pod that left while nobody told of it");
}

#[tokio::test]
async fn a_connection_that_is_cut_loses_no_pod_and_no_news() {
    let cluster = Cluster::new(2, &["ready", "ready"]).await;
    cluster.settled(2).await;
    cluster.api.watched(0).await;
    for n in 1..4 {
        cluster.api.cut();
        cluster.source("the cut to be told or mended", |source| source["rows"] == 2).await;
        cluster.api.watched(n).await;
    }
    cluster.set(&["ready", "unready"]);
    cluster.settled(1).await;
    cluster.source("that it answers", |source| source["answers"] == true).await;
}

#[tokio::test]
async fn an_api_server_that_is_gone_is_no_empty_fleet() {
    let mut cluster = Cluster::new(2, &["ready", "ready"]).await;
    cluster.settled(2).await;
    cluster.api.watched(0).await;
    let up = "warmgate_discovery_up{node=\"pool\"}";
    assert_eq!(cluster.gate.counter(up).await, 1.0);

    cluster.api.kill().await;
    // It stops answering first, and what is wrong shows when it is asked again.
    let is_refused =
        |source: &Value| source["problem"].as_str().is_some_and(|told| told.contains("Connection refused"));
    let source =
        cluster.source("that it does not answer", |source| source["answers"] == false && is_refused(source)).await;
    assert_eq!((&source["rows"], &source["by"]), (&json!(2), &json!("kubernetes")));
    assert_eq!(cluster.gate.counter(up).await, 0.0);
    assert!(cluster.gate.log().contains("pool: Kubernetes does not tell its endpoints"), "{}", cluster.gate.log());
    cluster.share(0, "moss").await;
    assert_eq!(cluster.pods.iter().map(|pod| pod.count()).sum::<usize>(), 10, "all were answered");
    cluster.settled(2).await;

    cluster.set(&["ready", ""]);
    cluster.api.revive();
    cluster.settled(1).await;
    let source = cluster.source("that it answers", |source| source["answers"] == true).await;
    assert_eq!(source["problem"], json!(null));
    assert_eq!(cluster.gate.counter(up).await, 1.0);
}

#[tokio::test]
async fn what_is_not_there_at_the_start_comes_later() {
    let (mut api, pods) = (KubeApi::start().await, made(1).await);
    api.set("vllm-a", pods[0].address().port(), endpoints(&pods, &["ready"]));
    api.kill().await;
    let gate = Gate::start_not_ready(&settings(&api, "service: vllm")).await;
    api.revive();
    let cluster = Cluster { api, pods, gate };
    cluster.settled(1).await;
    assert_eq!(cluster.share(0, "moss").await, 10);
}

#[tokio::test]
async fn a_refusal_says_what_to_do() {
    let (api, pods) = (KubeApi::start().await, made(1).await);
    api.set("vllm-a", pods[0].address().port(), endpoints(&pods, &["ready"]));
    api.refuse(Some(403));
    let gate = Gate::start_not_ready(&settings(&api, "service: vllm")).await;
    let cluster = Cluster { api, pods, gate };
    let source = cluster.source("a reason", |source| source["problem"].to_string().contains("403")).await;
    assert!(
        source["problem"].as_str().is_some_and(|told| told.contains("conf/kubernetes/endpoints.yaml")),
        "{source:#}"
    );
    cluster.api.refuse(None);
    cluster.settled(1).await;
}

#[tokio::test]
async fn a_service_without_ready_pods_is_told_and_empties_the_fleet() {
    let cluster = Cluster::new(2, &["ready", "ready"]).await;
    cluster.settled(2).await;
    cluster.set(&["unready", "unready"]);
    cluster.settled(0).await;
    let source = cluster.source("a reason", |source| source["problem"] != json!(null)).await;
    assert_eq!((&source["problem"], &source["answers"]), (&json!("none of its 2 endpoints is ready"), &json!(true)));
}

#[tokio::test]
async fn a_reload_watches_another_service() {
    let cluster = Cluster::new(1, &["ready"]).await;
    cluster.settled(1).await;
    cluster.gate.write(&settings(&cluster.api, "service: other, namespace: ml"));
    cluster.gate.reload().await;
    let lists = cluster.api.listed(1).await;
    assert!(lists[1].contains("service-name%3Dother"), "{lists:?}");
    cluster.settled(1).await;
    cluster.gate.write(&crate::gate::Settings::over(&[&cluster.pods[0]]));
    cluster.gate.reload().await;
    assert_eq!(cluster.gate.status().await["discovered"], json!([]));
}
