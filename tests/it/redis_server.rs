//! A real `redis-server` of the test's own: on a free port, in memory only, gone when the test is.
//!
//! It can be killed and started again, stopped, and made slow: gates reach it through a wire whose delay a test
//! sets.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use crate::patience::within;

pub struct RedisServer {
    process: Option<Child>,
    port: u16,
    directory: tempfile::TempDir,
    wire: u16,
    delay_ms: Arc<AtomicU64>,
}

impl RedisServer {
    pub async fn start() -> RedisServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let wire = listener.local_addr().expect("an address").port();
        let directory = tempfile::tempdir().expect("a directory");
        let delay_ms = Arc::new(AtomicU64::new(0));
        // Between its choice and its use somebody else may take a port.
        for _ in 0..5 {
            let free = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let port = free.local_addr().expect("an address").port();
            drop(free);
            let mut server = RedisServer {
                process: None,
                port,
                directory: tempfile::tempdir().expect("a directory"),
                wire,
                delay_ms: delay_ms.clone(),
            };
            if server.launch().await {
                server.directory = directory;
                tokio::spawn(carry(listener, port, delay_ms));
                return server;
            }
        }
        panic!("redis-server does not start on any of five free ports");
    }

    /// For `cluster.redis`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.wire)
    }

    /// The same without the wire.
    pub fn direct_url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Every answer takes so much longer.
    pub fn delay(&self, delay: Duration) {
        self.delay_ms.store(delay.as_millis() as u64, Ordering::Relaxed);
    }

    pub async fn kill(&mut self) {
        self.process.take().expect("a running server").kill().await.expect("a process to kill");
    }

    /// Starts it again on its port, and empty.
    pub async fn restart(&mut self) {
        assert!(self.launch().await, "redis-server does not start again on its port");
    }

    pub fn signal(&self, signal: Signal) {
        let id = self.process.as_ref().and_then(Child::id).expect("a running server");
        let pid = Pid::from_raw(i32::try_from(id).expect("an id")).expect("an id");
        kill_process(pid, signal).expect("a process to signal");
    }

    /// A command, as words; its answer.
    pub async fn command(&self, words: &[&str]) -> redis::Value {
        let client = redis::Client::open(("127.0.0.1", self.port)).expect("an address");
        let mut connection =
            within("a connection to Redis", client.get_multiplexed_async_connection()).await.expect("a connection");
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| {
            command.arg(*word);
        });
        within("an answer of Redis", command.query_async(&mut connection)).await.expect("an answer")
    }

    async fn launch(&mut self) -> bool {
        let arguments = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--loglevel", "warning"];
        let started = Command::new("redis-server")
            .args(["--port", &self.port.to_string()])
            .args(arguments)
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn();
        let process = started.unwrap_or_else(|why| {
            panic!("redis-server cannot be started ({why}): install it, as with `apt-get install redis-server`")
        });
        let process = self.process.insert(process);
        within("redis-server to answer", async {
            loop {
                if process.try_wait().expect("a process").is_some() {
                    return false;
                }
                if TcpStream::connect(("127.0.0.1", self.port)).await.is_ok() {
                    return true;
                }
                // There is no event to await from outside; the pause keeps this from spinning.
                sleep(Duration::from_millis(10)).await;
            }
        })
        .await
    }
}

async fn carry(listener: TcpListener, port: u16, delay_ms: Arc<AtomicU64>) {
    while let Ok((client, _)) = listener.accept().await {
        let delay_ms = delay_ms.clone();
        tokio::spawn(async move {
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
            tokio::select! {
                () = pass(from_client, to_server, Arc::default()) => {}
                () = pass(from_server, to_client, delay_ms) => {}
            }
        });
    }
}

/// Passes bytes on in order, each so long after it came.
async fn pass(mut from: impl AsyncReadExt + Unpin, mut to: impl AsyncWriteExt + Unpin, delay_ms: Arc<AtomicU64>) {
    let (sender, mut due) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let reading = async move {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            let at = Instant::now() + Duration::from_millis(delay_ms.load(Ordering::Relaxed));
            if sender.send((at, buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    };
    let writing = async move {
        while let Some((at, bytes)) = due.recv().await {
            // A sleep that is over already takes a moment all the same.
            if at > Instant::now() {
                sleep_until(at).await;
            }
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(reading, writing);
}
