//! A node's life: bound, started, stopped, started again on the same port.
//!
//! Stopping is what a killed process looks like from outside: the listener closes, connections drop,
//! whatever the engine held is gone. The journal and the orders to misbehave belong to the node and
//! survive. A node that is dropped stops.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pingora_core::apps::ServerApp;
use pingora_core::protocols::l4::stream::Stream;
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::app::Face;
use super::behaviour::{Mood, Order};
use super::desk::Desk;
use super::journal::{Journal, Record, Stats};
use super::params::NodeParams;
use super::shelf::Shelf;

/// Connections beyond this are closed as they come.
const CONNECTIONS_MAX: usize = 16_384;

/// Pause after a failed accept, mostly for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A simulated node: its handle.
pub struct Node {
    shared: Arc<Shared>,
    address: SocketAddr,
    state: Mutex<State>,
}

/// What a node's connections share, through every restart.
pub struct Shared {
    pub params: NodeParams,
    pub journal: Arc<Journal>,
    pub mood: Mood,
    /// Tells this node's answers from those of others, and of itself in another life.
    mark: u64,
    answers: AtomicU64,
}

enum State {
    /// The port is taken, and nobody accepts yet.
    Bound(TcpListener),
    Running {
        stop: oneshot::Sender<()>,
        done: JoinHandle<()>,
    },
    Stopped,
}

/// Serves on a listener, from within a tokio runtime.
pub fn serve(listener: TcpListener, params: NodeParams) -> io::Result<Node> {
    let node = Node::on(listener, params)?;
    node.start()?;
    Ok(node)
}

impl Node {
    /// Takes the port (zero: any) but serves only when started; needs no runtime.
    pub fn bind(address: SocketAddr, params: NodeParams) -> io::Result<Node> {
        Node::on(TcpListener::bind(address)?, params)
    }

    fn on(listener: TcpListener, params: NodeParams) -> io::Result<Node> {
        Ok(Node {
            address: listener.local_addr()?,
            shared: Arc::new(Shared {
                params,
                journal: Journal::new(),
                mood: Mood::default(),
                mark: RandomState::new().hash_one(0),
                answers: AtomicU64::new(0),
            }),
            state: Mutex::new(State::Bound(listener)),
        })
    }

    pub fn name(&self) -> &str {
        &self.shared.params.name
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Serves, on the tokio runtime it is called in. Does nothing if it serves already.
    pub fn start(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        let listener = match std::mem::replace(&mut *state, State::Stopped) {
            State::Bound(listener) => listener,
            State::Stopped => TcpListener::bind(self.address)?,
            running @ State::Running { .. } => {
                *state = running;
                return Ok(());
            }
        };
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (stop, stopped) = oneshot::channel();
        let done = tokio::spawn(accept(listener, self.shared.clone(), stopped));
        *state = State::Running { stop, done };
        Ok(())
    }

    /// Closes the listener and every connection; when it returns, connecting is refused.
    pub async fn stop(&self) {
        let state = std::mem::replace(&mut *self.state.lock(), State::Stopped);
        if let State::Running { stop, done } = state {
            drop(stop);
            // An error means that the runtime is ending, and the task with it.
            let _ = done.await;
        }
    }

    /// How to behave from the next request on.
    pub fn behave(&self, order: impl Into<Order>) {
        self.shared.mood.set(order.into());
    }

    /// The last requests, oldest first, as at `/sim/log`.
    pub fn records(&self) -> Vec<Record> {
        self.shared.journal.records()
    }

    /// Sums over all requests, as at `/sim/stats`.
    pub fn stats(&self) -> Stats {
        self.shared.journal.stats()
    }
}

impl Shared {
    /// An id that no other answer has.
    pub fn next_answer(&self) -> String {
        format!("{:016x}{:08x}", self.mark, self.answers.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// Accepts until the other end of `stop` is dropped; then everything that it began ends too.
async fn accept(listener: tokio::net::TcpListener, shared: Arc<Shared>, mut stop: oneshot::Receiver<()>) {
    let desk = Desk::new(shared.params.engine());
    let mut tasks = JoinSet::new();
    tasks.spawn(desk.clone().run());
    let face = Arc::new(Face { shared, desk, shelf: Arc::new(Shelf::default()) });
    loop {
        tokio::select! {
            _ = &mut stop => break,
            Some(_) = tasks.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if face.shared.mood.refuses_connection() => reset(stream),
                Ok((stream, _)) if tasks.len() <= CONNECTIONS_MAX => {
                    tasks.spawn(connection(stream, face.clone()));
                }
                Ok(_) => {}
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
    drop(listener);
    tasks.shutdown().await;
}

async fn connection(stream: TcpStream, face: Arc<Face>) {
    // One token a packet: a held back token would look like a slow engine.
    let _ = stream.set_nodelay(true);
    // Connections end with the node's own stop, not with Pingora's.
    let (_never, shutdown) = watch::channel(false);
    face.process_new(Box::new(Stream::from(stream)), &shutdown).await;
}

/// Closes so that the client sees a reset rather than an orderly end.
fn reset(stream: TcpStream) {
    let _ = stream.set_zero_linger();
}
