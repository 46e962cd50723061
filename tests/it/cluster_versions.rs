//! Replicas of several versions, or with clocks of their own: a newer one is heard as far as it is understood, another
//! kind is left alone, what comes late counts in no depth, and all three are told once.

use std::time::Duration;

use redis::aio::PubSub;

use crate::cluster::{Replicas, cluster_once};
use crate::patience::within;

const CHANNEL: &str = "test:replicas";

/// A message of the only replica in which it says all that it has at its nodes.
async fn overheard(replicas: &Replicas) -> Vec<u8> {
    let client = redis::Client::open(replicas.redis.direct_url()).expect("an address");
    let mut pubsub: PubSub = within("a connection", client.get_async_pubsub()).await.expect("a connection");
    within("a channel", pubsub.subscribe(CHANNEL)).await.expect("a channel");
    let mut messages = pubsub.on_message();
    within("all loads to be told", async {
        loop {
            let next = std::future::poll_fn(|context| {
                futures_core::Stream::poll_next(std::pin::Pin::new(&mut messages), context)
            });
            let message = next.await.expect("a message").get_payload_bytes().to_vec();
            // Of an idle replica all loads are none, and changes of them say so first: field 7, then `only_changes`.
            if !message.windows(4).any(|four| four == [0x3a, 0x02, 0x08, 0x01]) {
                return message;
            }
        }
    })
    .await
}

/// Says it again and again, as a replica that lives does.
fn say(replicas: &Replicas, message: Vec<u8>) -> tokio::task::JoinHandle<()> {
    let client = redis::Client::open(replicas.redis.direct_url()).expect("an address");
    tokio::spawn(async move {
        let mut connection = client.get_multiplexed_async_connection().await.expect("a connection");
        loop {
            let mut command = redis::cmd("PUBLISH");
            command.arg(CHANNEL).arg(&message);
            let _: usize = command.query_async(&mut connection).await.expect("an answer");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}

#[tokio::test]
async fn a_newer_replica_is_heard_and_another_kind_is_not() {
    let replicas = Replicas::start(1, 1, "").await;
    let gate = &replicas.gates[0];
    let mut newer = overheard(&replicas).await;
    // The same from a replica of its own, of minor version 7, sent in days to come, with fields that nobody knows yet:
    // of what stands twice the last counts.
    newer.extend([0x08, 7]);
    newer.extend([0x11, 1, 2, 3, 4, 5, 6, 7, 8]);
    newer.extend([0x20, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
    newer.extend([0x2a, 5]);
    newer.extend(b"later");
    newer.extend([0xa2, 0x38, 3, b'n', b'e', b'w']);
    newer.extend([0xa8, 0x38, 42]);
    let speaking = say(&replicas, newer.clone());
    let told = cluster_once(gate, "the newer one to be heard", |cluster| cluster["other_replicas"] == 1).await;
    assert_eq!(told["heard"][0]["name"], "later", "{told:#}");
    assert_eq!(told["other_versions"], serde_json::json!([]));
    speaking.abort();

    newer[0] += 1;
    let kind = newer[0];
    let speaking = say(&replicas, newer);
    cluster_once(gate, "the other kind to be noticed", |cluster| {
        cluster["other_versions"] == serde_json::json!([kind]) && cluster["other_replicas"] == 0
    })
    .await;
    speaking.abort();
    let log = gate.log();
    assert_eq!(log.matches("what is new in it is passed over").count(), 1, "{log}");
    assert_eq!(log.matches("they do not hear each other").count(), 1, "{log}");
}

#[tokio::test]
async fn a_replica_whose_clock_is_behind_is_told() {
    let replicas = Replicas::start(1, 1, "").await;
    let gate = &replicas.gates[0];
    let mut message = overheard(&replicas).await;
    // The same from a replica of its own that takes it for 1970.
    message.extend([0x11, 1, 2, 3, 4, 5, 6, 7, 8]);
    message.extend([0x20, 1]);
    message.extend([0x2a, 6]);
    message.extend(b"behind");
    let speaking = say(&replicas, message);
    let told = cluster_once(gate, "the late one to be told", |cluster| cluster["heard"][0]["late"] == true).await;
    assert_eq!(told["heard"][0]["name"], "behind", "{told:#}");
    let metrics = gate.metrics().await;
    assert!(metrics.contains("warmgate_cluster_late_replicas 1"), "{metrics}");
    speaking.abort();
    let log = gate.log();
    assert_eq!(log.matches("Set both clocks by NTP").count(), 1, "{log}");
}
