//! A scripted upstream: an engine whose every byte and silence the test decides.
//!
//! It listens on a free port of this machine, answers an engine's polling paths from a model list
//! that the test sets, and plays one script for each request that runs a model. It writes down what
//! it received and how each request ended. It knows nothing of Warmgate.

mod blobs;
mod catalogue;
mod journal;
mod script;
mod serve;
mod usual;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub use catalogue::{Engine, Model, Polled, Polls};
pub use journal::{End, Record};
pub use script::{Hold, Script};

use crate::patience::within;
use serve::Stage;

/// One scripted node. Dropping it closes everything.
pub struct Upstream {
    name: String,
    address: SocketAddr,
    stage: Arc<Stage>,
    running: Option<Running>,
    /// Keeps the port while nothing listens on it, so that no other test can get it.
    port_holder: Option<TcpSocket>,
}

/// The accepting task and the way to end it.
struct Running {
    stop: oneshot::Sender<()>,
    done: JoinHandle<()>,
}

impl Upstream {
    /// A node that looks like Ollama.
    pub async fn ollama(name: &str, models: Vec<Model>) -> Upstream {
        Upstream::start(name, Engine::Ollama, models).await
    }

    /// A node that speaks OpenAI's API only.
    pub async fn openai(name: &str, models: Vec<Model>) -> Upstream {
        Upstream::start(name, Engine::OpenAi, models).await
    }

    /// A node that looks like a LiteLLM proxy.
    pub async fn litellm(name: &str, models: Vec<Model>) -> Upstream {
        Upstream::start(name, Engine::LiteLlm, models).await
    }

    /// A vLLM.
    pub async fn vllm(name: &str, models: Vec<Model>) -> Upstream {
        Upstream::start(name, Engine::Vllm, models).await
    }

    /// An Ollama node at an address of its own.
    pub async fn ollama_at(name: &str, address: &str, models: Vec<Model>) -> Upstream {
        Upstream::start_at(address, name, Engine::Ollama, models).await
    }

    /// A node that looks like llama.cpp's server.
    pub async fn llama_cpp(name: &str, models: Vec<Model>) -> Upstream {
        Upstream::start(name, Engine::LlamaCpp, models).await
    }

    async fn start(name: &str, engine: Engine, models: Vec<Model>) -> Upstream {
        Upstream::start_at("127.0.0.1:0", name, engine, models).await
    }

    async fn start_at(address: &str, name: &str, engine: Engine, models: Vec<Model>) -> Upstream {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let mut upstream = Upstream {
            name: name.to_owned(),
            address: listener.local_addr().expect("an address"),
            stage: Arc::new(Stage::new(engine, models)),
            running: None,
            port_holder: None,
        };
        upstream.serve(listener);
        upstream
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The value of `engine:` in Warmgate's configuration.
    pub fn engine(&self) -> &'static str {
        self.stage.catalogue.lock().expect("catalogue").engine.name()
    }

    /// What every request plays that has no script of its own.
    pub fn always(&self, script: Script) {
        self.stage.scripts.lock().expect("scripts").always = script;
    }

    /// What the next request plays; several calls queue up.
    pub fn next(&self, script: Script) {
        let mut scripts = self.stage.scripts.lock().expect("scripts");
        scripts.queue.push_back(script);
    }

    pub fn set_models(&self, models: Vec<Model>) {
        self.stage.catalogue.lock().expect("catalogue").models = models;
    }

    pub fn set_metrics(&self, text: &str) {
        self.stage.catalogue.lock().expect("catalogue").metrics = text.to_owned();
    }

    /// The keys that it signs tokens with, as `/keys` shows them.
    pub fn set_keys(&self, keys: serde_json::Value) {
        self.stage.catalogue.lock().expect("catalogue").keys = keys;
    }

    pub fn set_polls(&self, polls: Polls) {
        self.stage.catalogue.lock().expect("catalogue").polls = polls;
    }

    /// Method and path of each poll so far, in order.
    pub fn polls(&self) -> Vec<String> {
        self.stage.polls.borrow().clone()
    }

    /// Returns once so many more polls of that path have been answered.
    pub async fn polled(&self, path: &str, more: usize) {
        let mut polls = self.stage.polls.subscribe();
        let count = |polls: &Vec<String>| polls.iter().filter(|poll| poll.ends_with(path)).count();
        let wanted = count(&polls.borrow()) + more;
        let counted = async { polls.wait_for(|polls| count(polls) >= wanted).await.is_ok() };
        assert!(within(&format!("{more} more polls of {path}"), counted).await);
    }

    /// The version that it says it is, where it is a vLLM.
    pub fn set_version(&self, version: &'static str) {
        self.stage.catalogue.lock().expect("catalogue").version = version;
    }

    /// Polls of that path hang from now on.
    pub fn hang_at(&self, path: &'static str) {
        self.stage.catalogue.lock().expect("catalogue").silent_paths.insert(path);
    }

    /// It answers there again, and its `/metrics` say this.
    pub fn recover_with_metrics(&self, text: &str) {
        let mut catalogue = self.stage.catalogue.lock().expect("catalogue");
        catalogue.silent_paths.clear();
        catalogue.metrics = text.to_owned();
    }

    /// Polls without that `Authorization` get a 401.
    pub fn demand(&self, authorization: &str) {
        self.stage.catalogue.lock().expect("catalogue").authorization = Some(authorization.to_owned());
    }

    /// All polls since the last call.
    pub fn take_polls(&self) -> Vec<Polled> {
        std::mem::take(&mut self.stage.catalogue.lock().expect("catalogue").polled)
    }

    /// Ends it as a killed process ends: connections close, new ones are refused.
    pub async fn kill(&mut self) {
        let running = self.running.take().expect("a running upstream");
        let _ = running.stop.send(());
        running.done.await.expect("the accepting task");
        self.port_holder = Some(within("the same port to be free", hold(self.address)).await);
    }

    /// Listens again on the same port.
    pub fn revive(&mut self) {
        let holder = self.port_holder.take().expect("a killed upstream");
        self.serve(holder.listen(1024).expect("listening again"));
    }

    /// After `kill`: connections to its port are neither taken nor refused, as behind a firewall.
    pub async fn swallow(&mut self) -> Swallowing {
        let holder = self.port_holder.take().expect("a killed upstream");
        let listener = holder.listen(1).expect("listening again");
        let mut waiting = Vec::new();
        // The kernel lets one more in than it was told; from then on it drops what asks to connect.
        while let Ok(Ok(stream)) =
            tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(self.address)).await
        {
            waiting.push(stream);
        }
        Swallowing { _listener: listener, _waiting: waiting }
    }

    /// How many requests have arrived, polls not counted.
    pub fn count(&self) -> usize {
        self.stage.journal.count()
    }

    /// The blobs it holds, by path: their size and their hash.
    pub fn blobs(&self) -> std::collections::HashMap<String, (u64, u128)> {
        self.stage.blobs.all()
    }

    /// From now on no blob is read until the test lets it.
    pub fn hold_blobs(&self, hold: &Hold) {
        self.stage.blobs.hold(hold);
    }

    /// How many calls for blobs have arrived.
    pub fn blob_calls(&self) -> usize {
        self.stage.blobs.calls()
    }

    /// How many of them have not ended.
    pub fn in_flight(&self) -> usize {
        self.stage.journal.in_flight()
    }

    /// The nth request (from 0), as soon as all of it has arrived.
    #[track_caller]
    pub fn request(&self, n: usize) -> impl Future<Output = Record> + '_ {
        self.stage.journal.request(&self.name, n)
    }

    /// The moment at which the peer of the nth request closed before it had its answer.
    #[track_caller]
    pub fn peer_gone(&self, n: usize) -> impl Future<Output = Instant> + '_ {
        self.stage.journal.ended(&self.name, n, End::PeerGone)
    }

    /// The moment at which the last byte of the nth answer was written.
    #[track_caller]
    pub fn answered(&self, n: usize) -> impl Future<Output = Instant> + '_ {
        self.stage.journal.ended(&self.name, n, End::Played)
    }

    fn serve(&mut self, listener: TcpListener) {
        let (stop, stopped) = oneshot::channel();
        let done = tokio::spawn(serve::accept(listener, self.stage.clone(), stopped));
        self.running = Some(Running { stop, done });
    }
}

/// A port that swallows connections for as long as this lives.
pub struct Swallowing {
    _listener: TcpListener,
    _waiting: Vec<TcpStream>,
}

/// Keeps a port without listening on it. On a busy machine the kernel takes a moment to let go of it.
pub async fn hold(address: SocketAddr) -> TcpSocket {
    loop {
        let holder = TcpSocket::new_v4().expect("a socket");
        holder.set_reuseaddr(true).expect("SO_REUSEADDR");
        match holder.bind(address) {
            Ok(()) => return holder,
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}
