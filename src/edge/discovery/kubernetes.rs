//! Watches Kubernetes for the endpoints of services: a list, then news as they come, for each upstream that asks for it.
//!
//! While Kubernetes does not answer, what was known stays: that a watch failed is no sign that pods are gone. It is
//! told, and tried again ever more slowly. Each new attempt begins with a list, which takes the place of all that was
//! known in one step. It reads what the pod's service account or `KUBECONFIG` lets it, and nothing but EndpointSlices.

mod slices;

use std::env;
use std::error::Error;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::config::KubeConfigOptions;
use kube::core::Status;
use kube::runtime::watcher::{self, DefaultBackoff, Event, watcher};
use kube::{Api, Client, Config};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::take;
use crate::config::{Discover, Endpoints};
use crate::edge::ingress::Ingress;
use crate::edge::roster::Name;
use slices::Slices;

/// Of every service that an upstream names.
pub struct Watches {
    ingress: Arc<Ingress>,
    watched: Mutex<Vec<Watched>>,
}

/// One that is watched, by a task that ends with this.
struct Watched {
    name: Arc<Name>,
    task: JoinHandle<()>,
    /// Whether it was told once how things are, or why that is not known.
    told: watch::Receiver<bool>,
}

/// How long the start waits for the first lists.
const FIRST_LOOK_MAX: Duration = Duration::from_millis(1500);

/// A watch is begun anew after it, so that a connection which died silently is noticed. Whatever is read must come
/// before the second.
const WATCH_S: u32 = 60;
const READ_MAX: Duration = Duration::from_secs(75);

/// News that come one after the other are taken as one: an endpoint that moves to another slice leaves the first.
const SETTLED_AFTER: Duration = Duration::from_millis(50);

/// Slices in one answer to a list.
const PAGE: u32 = 100;

/// Of what is told of an error.
const WORDS_CHARS_MAX: usize = 200;

impl Watches {
    pub fn new(ingress: &Arc<Ingress>) -> Watches {
        Watches { ingress: ingress.clone(), watched: Mutex::default() }
    }

    /// Begins, and waits a moment for the first lists: whoever is served first finds the nodes.
    pub async fn first_look(&self) {
        self.follow();
        let told: Vec<_> = self.watched.lock().iter().map(|watched| watched.told.clone()).collect();
        let all = async {
            for mut told in told {
                let _ = told.wait_for(|told| *told).await;
            }
        };
        let _ = timeout(FIRST_LOOK_MAX, all).await;
    }

    /// Watches what the configuration in force names, for as long as this runs.
    pub async fn keep(&self) {
        let mut news = self.ingress.roster.news();
        loop {
            self.follow();
            if news.changed().await.is_err() {
                return;
            }
        }
    }

    fn follow(&self) {
        let nodes = self.ingress.roster.nodes();
        let mut watched = self.watched.lock();
        watched.retain(|watched| nodes.names().iter().any(|name| Arc::ptr_eq(name, &watched.name)));
        for name in nodes.names() {
            let Some(Discover::Kubernetes(endpoints)) = &name.upstream.discover else { continue };
            if watched.iter().any(|watched| Arc::ptr_eq(name, &watched.name)) {
                continue;
            }
            let (tell, told) = watch::channel(false);
            let watching =
                Watching { ingress: self.ingress.clone(), name: name.clone(), endpoints: endpoints.clone(), tell };
            watched.push(Watched { name: name.clone(), task: tokio::spawn(watching.go_on()), told });
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Watching {
    ingress: Arc<Ingress>,
    name: Arc<Name>,
    endpoints: Endpoints,
    tell: watch::Sender<bool>,
}

impl Watching {
    async fn go_on(self) {
        let mut pauses = DefaultBackoff::default();
        loop {
            let why = self.until_it_fails(&mut pauses).await;
            self.name.note(false, format!("Kubernetes does not tell its endpoints: {why}"));
            self.tell.send_replace(true);
            sleep(pauses.next().unwrap_or(READ_MAX)).await;
        }
    }

    /// Why it came to an end.
    async fn until_it_fails(&self, pauses: &mut DefaultBackoff) -> String {
        let client = match client().await {
            Ok(client) => client,
            Err(why) => return why,
        };
        let namespace = self.endpoints.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        let api: Api<EndpointSlice> = Api::namespaced(client, &namespace);
        let labels = format!("kubernetes.io/service-name={}", self.endpoints.service);
        let wanted = watcher::Config::default().labels(&labels).timeout(WATCH_S).page_size(PAGE);
        let mut events = pin!(watcher(api, wanted));
        let (mut slices, mut listed) = (Slices::default(), Slices::default());
        let mut settled: Option<Instant> = None;
        loop {
            let due = settled;
            let event = tokio::select! {
                () = async { sleep_until(due.unwrap_or_else(Instant::now)).await }, if due.is_some() => {
                    settled = None;
                    self.tell_of(&slices);
                    continue;
                }
                event = next(events.as_mut()) => event,
            };
            match event {
                Some(Ok(Event::Init)) => listed = Slices::default(),
                Some(Ok(Event::InitApply(slice))) => listed.put(&slice, self.endpoints.port.as_ref()),
                Some(Ok(Event::InitDone)) => {
                    slices = std::mem::take(&mut listed);
                    settled = None;
                    *pauses = DefaultBackoff::default();
                    self.tell_of(&slices);
                }
                Some(Ok(Event::Apply(slice))) => {
                    slices.put(&slice, self.endpoints.port.as_ref());
                    settled = due.or_else(|| Some(Instant::now() + SETTLED_AFTER));
                }
                Some(Ok(Event::Delete(slice))) => {
                    slices.remove(&slice);
                    settled = due.or_else(|| Some(Instant::now() + SETTLED_AFTER));
                }
                // It remembers no more what was told since; a list follows.
                Some(Err(watcher::Error::WatchError(status))) if status.code == 410 => {}
                Some(Err(why)) => return words_of(&why),
                None => return "the watch has ended".into(),
            }
        }
    }

    fn tell_of(&self, slices: &Slices) {
        let roster = &self.ingress.roster;
        let joined = slices.joined(&roster.behind(&self.name));
        let taken = take(roster, &self.name, joined.places, &self.ingress.plan());
        let problem = joined.problem.unwrap_or(taken);
        self.name.note(true, problem);
        self.tell.send_replace(true);
    }
}

/// As who this process is: by `KUBECONFIG`, by its service account, or as its user.
async fn client() -> Result<Client, String> {
    let is_in_cluster = env::var_os("KUBECONFIG").is_none() && env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let mut config = match is_in_cluster {
        true => Config::incluster().map_err(|why| words_of(&why))?,
        false => Config::from_kubeconfig(&KubeConfigOptions::default()).await.map_err(|why| words_of(&why))?,
    };
    config.read_timeout = Some(READ_MAX);
    config.reset_reader_on_write = true;
    // Trying again is done here, and told.
    config.default_retry = false;
    Client::try_from(config).map_err(|why| words_of(&why))
}

async fn next<S: Stream>(mut stream: Pin<&mut S>) -> Option<S::Item> {
    poll_fn(|context| stream.as_mut().poll_next(context)).await
}

/// What went wrong, in one short line: the innermost reason says the most.
fn words_of(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let boxed = innermost.downcast_ref::<Box<Status>>().map(Box::as_ref);
    let status = boxed.or(innermost.downcast_ref::<Status>());
    let (text, hint) = match status {
        Some(status) if status.code == 401 || status.code == 403 => {
            (format!("{} {}", status.code, status.message), "; see conf/kubernetes/endpoints.yaml")
        }
        Some(status) => (format!("{} {}", status.code, status.message), ""),
        None => (innermost.to_string(), ""),
    };
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(WORDS_CHARS_MAX).collect();
    format!("{}{hint}", line.trim())
}
