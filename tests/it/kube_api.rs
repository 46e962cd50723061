//! A scripted Kubernetes API server: EndpointSlices of one service, which the test writes, listed and watched.
//!
//! HTTP on a free port, plain or over TLS. It speaks as the real one does: a list has a version, a watch tells all that came after
//! one, line by line, and says 410 to those who ask for what it remembers no more; it answers only those whom it knows and
//! who may ask. It knows nothing of Warmgate.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::http1::{Head, Inbound};
use crate::patience::within;
use crate::tls::{Signed, acceptor};
use crate::upstream::{Upstream, hold};

pub struct KubeApi {
    address: SocketAddr,
    state: Arc<State>,
    running: Option<JoinHandle<()>>,
    /// Keeps the port while nothing listens on it.
    port_holder: Option<TcpSocket>,
}

/// What all connections share.
struct State {
    tls: Option<TlsAcceptor>,
    told: Mutex<Told>,
    /// Counts whatever the watches must look at.
    news: watch::Sender<u64>,
    /// Requests so far, by their kind.
    lists: watch::Sender<Vec<String>>,
    watches: watch::Sender<Vec<String>>,
}

#[derive(Default)]
struct Told {
    slices: BTreeMap<String, Value>,
    version: u64,
    /// What watches are told: versions and lines.
    log: Vec<(u64, Value)>,
    /// What is asked of an older version is gone.
    oldest: u64,
    /// Connections that were opened before are cut.
    cuts: u64,
    /// Watches that were begun before come to their end.
    closes: u64,
    /// Whoever has another token is not known.
    token: Option<String>,
    /// Every request is refused with this status, or every watch.
    refuses: Option<u16>,
    refuses_watches: Option<u16>,
}

/// An endpoint as a test writes it.
pub fn pod(node: &Upstream, state: &str) -> Value {
    let conditions = match state {
        "ready" => json!({"ready": true, "serving": true, "terminating": false}),
        "terminating" => json!({"ready": false, "serving": true, "terminating": true}),
        "unready" => json!({"ready": false, "serving": false, "terminating": false}),
        other => panic!("{other}"),
    };
    let uid = format!("uid-of-{}", node.name());
    json!({
        "addresses": [node.address().ip().to_string()],
        "conditions": conditions,
        "targetRef": {"kind": "Pod", "name": node.name(), "uid": uid},
    })
}

impl KubeApi {
    pub async fn start() -> KubeApi {
        KubeApi::start_with(None).await
    }

    /// Over TLS, with this certificate.
    pub async fn start_secured(signed: Signed) -> KubeApi {
        KubeApi::start_with(Some(acceptor(signed, None))).await
    }

    async fn start_with(tls: Option<TlsAcceptor>) -> KubeApi {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let told = Mutex::new(Told { version: 100, ..Told::default() });
        let (news, lists, watches) = (watch::Sender::new(0), watch::Sender::default(), watch::Sender::default());
        let state = Arc::new(State { tls, told, news, lists, watches });
        let running = Some(tokio::spawn(accept(listener, state.clone())));
        KubeApi { address, state, running, port_holder: None }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A `KUBECONFIG` that leads here.
    pub fn kubeconfig(&self) -> String {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "test", "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": "own"}}],
        });
        config.to_string()
    }

    /// There is that slice now, with these endpoints at that port.
    pub fn set(&self, slice: &str, port: u16, endpoints: Vec<Value>) {
        self.change(|told| {
            let version = told.version;
            let made = json!({
                "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
                "metadata": {"name": slice, "resourceVersion": version.to_string()},
                "addressType": "IPv4",
                "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
                "endpoints": endpoints,
            });
            let before = told.slices.insert(slice.to_owned(), made.clone());
            json!({"type": if before.is_some() { "MODIFIED" } else { "ADDED" }, "object": made})
        });
    }

    pub fn remove(&self, slice: &str) {
        self.change(|told| {
            let mut gone = told.slices.remove(slice).expect("a slice");
            gone["metadata"]["resourceVersion"] = json!(told.version.to_string());
            json!({"type": "DELETED", "object": gone})
        });
    }

    /// Tells those who watch how far they are.
    pub fn bookmark(&self) {
        self.change(|told| {
            let metadata = json!({"resourceVersion": told.version.to_string()});
            let kinds = json!({"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "metadata": metadata});
            json!({"type": "BOOKMARK", "object": kinds})
        });
    }

    /// Forgets all that was told: whoever watches hears 410, and changes until then are in lists only.
    pub fn forget(&self, change: impl FnOnce(&KubeApi)) {
        change(self);
        let mut told = self.state.told.lock().expect("what is told");
        told.oldest = told.version;
        told.log.clear();
        drop(told);
        self.state.news.send_modify(|news| *news += 1);
    }

    /// Cuts every connection that is open in the middle of what it says.
    pub fn cut(&self) {
        self.state.told.lock().expect("what is told").cuts += 1;
        self.state.news.send_modify(|news| *news += 1);
    }

    /// Ends every watch as it ends when its time is over.
    pub fn close(&self) {
        self.state.told.lock().expect("what is told").closes += 1;
        self.state.news.send_modify(|news| *news += 1);
    }

    /// Refuses everything with that status, or nothing any more.
    pub fn refuse(&self, status: Option<u16>) {
        self.state.told.lock().expect("what is told").refuses = status;
    }

    /// The same of watches alone.
    pub fn refuse_watches(&self, status: Option<u16>) {
        self.state.told.lock().expect("what is told").refuses_watches = status;
    }

    /// Knows from now on whoever shows this token, and nobody else.
    pub fn know(&self, token: &str) {
        self.state.told.lock().expect("what is told").token = Some(token.to_owned());
    }

    /// Ends as a killed process ends.
    pub async fn kill(&mut self) {
        let running = self.running.take().expect("a running server");
        running.abort();
        let _ = running.await;
        self.port_holder = Some(within("the same port to be free", hold(self.address)).await);
    }

    /// Listens again on its port.
    pub fn revive(&mut self) {
        let listener = self.port_holder.take().expect("a killed server").listen(64).expect("listening again");
        self.running = Some(tokio::spawn(accept(listener, self.state.clone())));
    }

    /// Returns once there were more than so many lists; gives what they asked for.
    pub async fn listed(&self, than: usize) -> Vec<String> {
        more(&self.state.lists, than, "lists").await
    }

    /// The same of watches.
    pub async fn watched(&self, than: usize) -> Vec<String> {
        more(&self.state.watches, than, "watches").await
    }

    pub fn lists(&self) -> usize {
        self.state.lists.borrow().len()
    }

    fn change(&self, change: impl FnOnce(&mut Told) -> Value) {
        let mut told = self.state.told.lock().expect("what is told");
        told.version += 1;
        let line = change(&mut told);
        let version = told.version;
        told.log.push((version, line));
        drop(told);
        self.state.news.send_modify(|news| *news += 1);
    }
}

async fn more(counted: &watch::Sender<Vec<String>>, than: usize, what: &str) -> Vec<String> {
    let mut counted = counted.subscribe();
    let more = async { counted.wait_for(|counted| counted.len() > than).await.expect("a server").clone() };
    within(&format!("more than {than} {what}"), more).await
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    // They end with this.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let state = state.clone();
        connections.spawn(async move { Connection::new(stream, state).await?.serve().await });
    }
}

struct Connection {
    inbound: Inbound<Box<dyn AsyncRead + Send + Unpin>>,
    outbound: Box<dyn AsyncWrite + Send + Unpin>,
    state: Arc<State>,
}

impl Connection {
    async fn new(stream: TcpStream, state: Arc<State>) -> io::Result<Connection> {
        let (read, outbound): (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>) = match &state.tls
        {
            None => {
                let (read, write) = stream.into_split();
                (Box::new(read), Box::new(write))
            }
            Some(tls) => {
                let (read, write) = tokio::io::split(tls.accept(stream).await?);
                (Box::new(read), Box::new(write))
            }
        };
        Ok(Connection { inbound: Inbound::new(read), outbound, state })
    }

    async fn serve(mut self) -> io::Result<()> {
        while let Some(head) = self.inbound.head().await? {
            let is_watch = head.word(1).contains("watch=true");
            if let Some((status, message)) = self.refusal(&head, is_watch) {
                let reason = if status == 401 { "Unauthorized" } else { "Forbidden" };
                let why = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status,
                    "message": message, "reason": reason});
                self.answer(status, &why).await?;
            } else if is_watch {
                if !self.watch(&head).await? {
                    return Ok(());
                }
            } else {
                self.list(&head).await?;
            }
        }
        Ok(())
    }

    /// Its status, and what the real one says.
    fn refusal(&self, head: &Head, is_watch: bool) -> Option<(u16, String)> {
        let told = self.state.told.lock().expect("what is told");
        let bearer = told.token.as_ref().map(|token| format!("Bearer {token}"));
        if bearer.is_some_and(|bearer| head.get("authorization") != Some(&bearer)) {
            return Some((401, "Unauthorized".to_owned()));
        }
        let status = told.refuses.or(told.refuses_watches.filter(|_| is_watch))?;
        let verb = if is_watch { "watch" } else { "list" };
        let namespace = head.word(1).split('/').nth(5).unwrap_or_default();
        let message = format!(
            "endpointslices.discovery.k8s.io is forbidden: User \"system:serviceaccount:own:warmgate\" cannot {verb} \
             resource \"endpointslices\" in API group \"discovery.k8s.io\" in the namespace \"{namespace}\""
        );
        Some((status, message))
    }

    async fn list(&mut self, head: &Head) -> io::Result<()> {
        let answer = {
            let told = self.state.told.lock().expect("what is told");
            let items: Vec<&Value> = told.slices.values().collect();
            json!({"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1",
                "metadata": {"resourceVersion": told.version.to_string()}, "items": items})
        };
        self.answer(200, &answer).await?;
        self.state.lists.send_modify(|lists| lists.push(head.word(1).to_owned()));
        Ok(())
    }

    /// Whether the connection stands after it, as it does when the watch comes to its own end.
    async fn watch(&mut self, head: &Head) -> io::Result<bool> {
        let asked = head.word(1).split(['?', '&']).find_map(|pair| pair.strip_prefix("resourceVersion="));
        let mut seen: u64 = asked.and_then(|version| version.parse().ok()).expect("a version to watch from");
        let start = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
        self.outbound.write_all(start.as_bytes()).await?;
        self.outbound.flush().await?;
        let mut news = self.state.news.subscribe();
        let (cuts, closes) = {
            let told = self.state.told.lock().expect("what is told");
            (told.cuts, told.closes)
        };
        self.state.watches.send_modify(|watches| watches.push(head.word(1).to_owned()));
        loop {
            news.mark_unchanged();
            let (lines, is_gone, is_cut, is_over) = {
                let told = self.state.told.lock().expect("what is told");
                let lines: Vec<(u64, Value)> =
                    told.log.iter().filter(|(version, _)| *version > seen).cloned().collect();
                (lines, seen < told.oldest, told.cuts > cuts, told.closes > closes)
            };
            if is_cut {
                // In the middle of a chunk.
                self.outbound.write_all(b"400\r\n{\"type\":\"MODI").await?;
                self.outbound.flush().await?;
                return Ok(false);
            }
            if is_over {
                self.outbound.write_all(b"0\r\n\r\n").await?;
                self.outbound.flush().await?;
                return Ok(true);
            }
            if is_gone {
                let gone = json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "status": "Failure",
                    "reason": "Expired", "message": "too old resource version"}});
                self.line(&gone).await?;
                self.outbound.write_all(b"0\r\n\r\n").await?;
                self.outbound.flush().await?;
                return Ok(true);
            }
            for (version, line) in lines {
                self.line(&line).await?;
                seen = version;
            }
            tokio::select! {
                changed = news.changed() => if changed.is_err() { return Ok(false) },
                () = self.inbound.gone() => return Ok(false),
            }
        }
    }

    async fn line(&mut self, line: &Value) -> io::Result<()> {
        let text = format!("{line}\n");
        self.outbound.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).await?;
        self.outbound.flush().await
    }

    async fn answer(&mut self, status: u16, body: &Value) -> io::Result<()> {
        let body = body.to_string();
        let head =
            format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        self.outbound.write_all(format!("{head}{body}").as_bytes()).await?;
        self.outbound.flush().await
    }
}
