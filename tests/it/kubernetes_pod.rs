//! As a pod: by the files of its service account, over TLS, with a token that others renew.
//!
//! The client has fixed paths for them. So the process runs in a mount namespace of its own, where a folder of the test
//! is in their place, and it takes what may make one: root, or a kernel that lets everybody. Else the tests say that
//! they show nothing; as root they fail instead.

use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::gate::{Gate, Pod, Settings};
use crate::kube_api::KubeApi;
use crate::kubernetes::{Cluster, FAST, endpoints, made};
use crate::patience::until;
use crate::tls::Authority;

/// The files of a service account, put and renewed as a kubelet does it: all at once, by another link.
struct Account {
    folder: TempDir,
    authority: Authority,
}

impl Account {
    fn new() -> Account {
        Account { folder: tempfile::tempdir().expect("a folder"), authority: Authority::new("of the cluster") }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Of now on with that token, and with that authority's certificate.
    fn put(&self, token: &str, authority: &Authority) {
        let ca = std::fs::read(authority.file()).expect("an authority");
        let of_now = tempfile::tempdir_in(self.path()).expect("a folder").keep();
        for (name, bytes) in [("token", token.as_bytes()), ("ca.crt", &ca), ("namespace", b"own")] {
            std::fs::write(of_now.join(name), bytes).expect("a file");
            let _ = symlink(Path::new("..data").join(name), self.path().join(name));
        }
        let beside = self.path().join("..data_tmp");
        symlink(&of_now, &beside).expect("a link");
        std::fs::rename(&beside, self.path().join("..data")).expect("in place");
    }
}

/// How a mount namespace is made here; `None`: not at all, which is told.
fn unshare() -> Option<&'static str> {
    let works = |how: &&str| {
        let tried = Command::new("unshare").args([how, "sh", "-c", "mount -t tmpfs tmpfs /var/run"]).output();
        tried.is_ok_and(|tried| tried.status.success())
    };
    let found = ["-m", "-rm"].into_iter().find(works);
    let is_root = rustix::process::geteuid().is_root();
    assert!(
        found.is_some() || !is_root,
        "even root cannot make a mount namespace here (`unshare -m`): give this container CAP_SYS_ADMIN"
    );
    if found.is_none() {
        // Past the test harness, which keeps what a test prints that does not fail.
        let told =
            b"SKIPPED: the pod's own account is not tried, as `unshare -rm` is not allowed here; run it as root\n";
        let _ = std::io::stderr().write_all(told);
    }
    found
}

/// A gate in a pod, over the pods of a service that one API server tells by TLS.
struct InCluster {
    account: Account,
    cluster: Cluster,
}

impl InCluster {
    /// The account is put in place by `prepare`; `None`: it cannot be tried here.
    async fn new(states: &[&str], prepare: impl FnOnce(&Account, &KubeApi)) -> Option<InCluster> {
        let (unshare, account) = (unshare()?, Account::new());
        let api = KubeApi::start_secured(account.authority.signs("127.0.0.1", 2090)).await;
        let pods = made(states.len()).await;
        api.set("vllm-a", pods[0].address().port(), endpoints(&pods, states));
        prepare(&account, &api);
        let pod = Pod { account: account.path().to_owned(), api: api.address(), unshare };
        let keys = "name: pool, url: \"http://vllm.ml.svc\", discover: {kubernetes: {service: vllm}}";
        let gate = Gate::start_in_any_state(&Settings::default().upstream(keys).more(FAST).in_pod(pod)).await;
        Some(InCluster { account, cluster: Cluster { api, pods, gate } })
    }

    /// One that is known, and whose first list came.
    async fn known(states: &[&str]) -> Option<InCluster> {
        let pod = InCluster::new(states, |account, api| {
            account.put("token-of-monday", &account.authority);
            api.know("token-of-monday");
        });
        let pod = pod.await?;
        pod.cluster.source("the first list", |source| source["answers"] == true).await;
        Some(pod)
    }

    /// Returns once these words are all told of the source, in `/fleet/status` and in the log.
    async fn told(&self, words: &[&str]) {
        let said = |text: &str| words.iter().all(|words| text.contains(words));
        let is_told = |source: &Value| source["answers"] == false && source["problem"].as_str().is_some_and(said);
        let source = self.cluster.source(&format!("{words:?}"), is_told).await;
        let problem = source["problem"].as_str().expect("a problem");
        until("the log to say so", async || self.cluster.gate.log().contains(problem).then_some(())).await;
    }

    async fn recovers(&self, rows: usize) {
        let is_well = |source: &Value| source["answers"] == true && source["problem"] == json!(null);
        self.cluster.source("that all is well", is_well).await;
        self.cluster.settled(rows).await;
    }
}

#[tokio::test]
async fn a_pod_s_own_account_finds_pods_and_loses_none_whatever_the_api_server_does() {
    let Some(pod) = InCluster::known(&["ready", "ready", ""]).await else { return };
    let InCluster { account: _account, mut cluster } = pod;
    cluster.settled(2).await;
    let lists = cluster.api.listed(0).await;
    assert!(lists[0].contains("/namespaces/own/"), "the pod's own namespace, as its file has it: {lists:?}");
    let lists = lists.len();
    cluster.api.watched(0).await;
    cluster.set(&["ready", "ready", "ready"]);
    cluster.settled(3).await;

    // A watch whose time is over is begun again from where it was.
    let watches = cluster.api.watched(0).await.len();
    cluster.api.close();
    cluster.api.watched(watches).await;
    cluster.set(&["", "ready", "ready"]);
    cluster.settled(2).await;
    assert_eq!(cluster.api.lists(), lists, "all that came was told by the watch");
    assert_eq!(cluster.source("the source", |_| true).await["answers"], true);

    // One that is told 410 begins with a list.
    cluster.api.forget(|_| cluster.set(&["ready", "ready", ""]));
    cluster.api.listed(lists).await;
    assert_eq!(cluster.share(2, "moss").await, 0, "the pod that left while nobody told of it");
    cluster.settled(2).await;

    // Nobody is lost while the API server is gone; what changed meanwhile comes after.
    cluster.api.kill().await;
    cluster.source("that it does not answer", |source| source["answers"] == false && source["rows"] == 2).await;
    cluster.settled(2).await;
    cluster.set(&["", "ready", ""]);
    cluster.api.revive();
    cluster.settled(1).await;
    assert_eq!(cluster.share(1, "fern").await, 10);
}

#[tokio::test]
async fn an_api_server_of_another_authority_is_refused_in_words_until_its_authority_is_there() {
    let other = Authority::new("somebody else's");
    let Some(pod) = InCluster::new(&["ready"], |account, _| account.put("token-of-monday", &other)).await else {
        return;
    };
    pod.told(&["UnknownIssuer", "serviceaccount/ca.crt", "whoever runs the cluster must"]).await;
    assert_eq!(pod.cluster.api.lists(), 0, "nothing was asked, and no token shown");

    pod.account.put("token-of-monday", &pod.account.authority);
    pod.recovers(1).await;
}

#[tokio::test]
async fn a_token_that_is_renewed_is_used_and_one_that_is_not_known_is_told() {
    let Some(pod) = InCluster::known(&["ready"]).await else { return };
    pod.cluster.settled(1).await;
    let watches = pod.cluster.api.watched(0).await.len();

    // The client looks at the file when what it read is 50 s old; whoever is refused looks at once, and it is no fault.
    pod.account.put("token-of-tuesday", &pod.account.authority);
    pod.cluster.api.know("token-of-tuesday");
    pod.cluster.api.close();
    pod.cluster.api.watched(watches).await;
    pod.recovers(1).await;
    assert!(!pod.cluster.gate.log().contains("401"), "{}", pod.cluster.gate.log());

    pod.cluster.api.know("token-of-wednesday");
    pod.cluster.api.close();
    pod.told(&["401 Unauthorized", "serviceaccount/token", "ServiceAccount"]).await;
    pod.cluster.settled(1).await;
    assert_eq!(pod.cluster.share(0, "moss").await, 10, "the pod that was known stays");
    pod.account.put("token-of-wednesday", &pod.account.authority);
    pod.recovers(1).await;
    let log = pod.cluster.gate.log();
    assert!(!log.contains("token-of-"), "{log}");
}

#[tokio::test]
async fn what_the_account_may_not_is_told_by_the_rule_that_is_missing() {
    let Some(pod) = InCluster::known(&["ready"]).await else { return };
    pod.cluster.settled(1).await;
    let api = &pod.cluster.api;
    let rule = ["403", "namespace own must allow", "`endpointslices`", "conf/kubernetes/endpoints.yaml"];
    for (verb, refuse) in [
        ("cannot list", KubeApi::refuse as fn(&KubeApi, Option<u16>)),
        // With a rule that forgets it all is well with the list, and nothing is heard after.
        ("cannot watch", KubeApi::refuse_watches),
    ] {
        refuse(api, Some(403));
        api.close();
        let words: Vec<&str> = rule.into_iter().chain([verb]).collect();
        // What was open is refused as a watch; the list that follows says its own.
        pod.told(&words).await;
        pod.cluster.settled(1).await;
        let watches = api.watched(0).await.len();
        refuse(api, None);
        api.watched(watches).await;
        pod.recovers(1).await;
    }
}

#[tokio::test]
async fn a_pod_without_its_account_s_files_is_told_what_to_set() {
    let Some(pod) = InCluster::new(&["ready"], |_, _| ()).await else { return };
    pod.told(&["No such file", "`automountServiceAccountToken: true`"]).await;
    pod.account.put("token-of-monday", &pod.account.authority);
    pod.recovers(1).await;
}
