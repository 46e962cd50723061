//! Watches Kubernetes for the endpoints of services: a list, then news as they come, for each upstream that asks for it.
//!
//! While Kubernetes does not answer, what was known stays: that a watch failed is no sign that pods are gone. It is
//! told, and tried again ever more slowly, with the credentials that there are by then. Each new attempt begins with a
//! list, which takes the place of all that was known in one step. It reads what the pod's service account or
//! `KUBECONFIG` lets it, and nothing but EndpointSlices.

mod reason;
mod slices;

use std::error::Error;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::config::KubeConfigOptions;
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
use reason::Identity;
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

/// A watch that went on for so long, or told something, is none that fails as soon as it is begun.
const STEADY_AFTER: Duration = Duration::from_secs(10);

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

/// How an attempt came to its end.
#[derive(Default)]
struct Ended {
    why: String,
    /// It is told only if the next ends like it.
    may_pass: bool,
    /// It did not fail as soon as it had begun.
    was_steady: bool,
}

impl Watching {
    async fn go_on(self) {
        let (mut pauses, mut passed) = (DefaultBackoff::default(), 0);
        loop {
            let Ended { why, may_pass, was_steady } = self.until_it_ends().await;
            if was_steady {
                (pauses, passed) = (DefaultBackoff::default(), 0);
            }
            passed = if may_pass { passed + 1 } else { 0 };
            if passed != 1 {
                self.name.note(false, format!("Kubernetes does not tell its endpoints: {why}"));
                self.tell.send_replace(true);
            }
            sleep(pauses.next().unwrap_or(READ_MAX)).await;
        }
    }

    async fn until_it_ends(&self) -> Ended {
        let identity = Identity::of_this_process();
        let client = match client(identity).await {
            Ok(client) => client,
            Err(why) => return Ended { why, ..Ended::default() },
        };
        let namespace = self.endpoints.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        let api: Api<EndpointSlice> = Api::namespaced(client, &namespace);
        let labels = format!("kubernetes.io/service-name={}", self.endpoints.service);
        let wanted = watcher::Config::default().labels(&labels).timeout(WATCH_S).page_size(PAGE);
        let mut events = pin!(watcher(api, wanted));
        let (mut slices, mut listed) = (Slices::default(), Slices::default());
        let (mut settled, mut listed_at): (Option<Instant>, Option<Instant>) = (None, None);
        let mut has_news = false;
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
                    (settled, listed_at) = (None, Some(Instant::now()));
                    self.tell_of(&slices);
                }
                Some(Ok(Event::Apply(slice))) => {
                    has_news = true;
                    slices.put(&slice, self.endpoints.port.as_ref());
                    settled = due.or_else(|| Some(Instant::now() + SETTLED_AFTER));
                }
                Some(Ok(Event::Delete(slice))) => {
                    has_news = true;
                    slices.remove(&slice);
                    settled = due.or_else(|| Some(Instant::now() + SETTLED_AFTER));
                }
                // It remembers no more what was told since; a list follows.
                Some(Err(watcher::Error::WatchError(status))) if status.code == 410 => {}
                Some(Err(why)) => {
                    let is_old = listed_at.is_some_and(|listed_at| listed_at.elapsed() > STEADY_AFTER);
                    return Ended {
                        why: identity.words_of_call(&why, &namespace),
                        may_pass: listed_at.is_some() && is_of_the_past(&why),
                        was_steady: is_old || has_news,
                    };
                }
                None => return Ended { why: "the watch has ended".into(), ..Ended::default() },
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

/// The next attempt, which begins with a list and what is on disk by then, may do without it: too old a version was asked
/// for, or the token has been renewed since it was read.
fn is_of_the_past(why: &watcher::Error) -> bool {
    matches!(why, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if [401, 410].contains(&status.code))
}

/// As who this process is. Its token and its authority are read anew with each client, and about once a minute by it.
async fn client(identity: Identity) -> Result<Client, String> {
    let words = |why: &(dyn Error + 'static)| identity.words_of_settings(why);
    let mut config = match identity {
        Identity::ServiceAccount => Config::incluster().map_err(|why| words(&why))?,
        Identity::Kubeconfig => {
            Config::from_kubeconfig(&KubeConfigOptions::default()).await.map_err(|why| words(&why))?
        }
    };
    config.read_timeout = Some(READ_MAX);
    config.reset_reader_on_write = true;
    // Trying again is done here, and told.
    config.default_retry = false;
    Client::try_from(config).map_err(|why| words(&why))
}

async fn next<S: Stream>(mut stream: Pin<&mut S>) -> Option<S::Item> {
    poll_fn(|context| stream.as_mut().poll_next(context)).await
}
