//! Redis behind sentinels, as a cluster of three masters, and over TLS: real processes of the test's own.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use redis::{Client, ConnectionAddr, IntoConnectionInfo, RedisResult, TlsCertificates, Value};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::sleep;

use crate::patience::{within, within_time};
use crate::tls::Authority;

/// One process, in a directory of its own.
pub struct Server {
    process: Child,
    pub port: u16,
    directory: tempfile::TempDir,
    ca: Option<PathBuf>,
}

/// Masters that share the slots.
pub struct RedisCluster {
    pub masters: Vec<Server>,
}

/// A master, its replica, and three who watch them.
pub struct Watched {
    pub master: Option<Server>,
    pub replica: Server,
    sentinels: Vec<Server>,
}

/// Under which the sentinels know the master.
pub const MASTER: &str = "main";

const SLOTS: u16 = 16384;

/// A failover: until the master is missed, one of those who watch is chosen, and it has chosen.
const FAILOVER_MAX: Duration = Duration::from_secs(90);

impl Server {
    /// With these arguments, among which `PORT` and `BUS` stand for free ports of this machine.
    pub async fn start(arguments: &[&str], ca: Option<PathBuf>) -> Server {
        // Between its choice and its use somebody else may take a port.
        for _ in 0..5 {
            let (port, bus) = (free_port().await, free_port().await);
            let arguments = arguments.iter().map(|argument| match *argument {
                "PORT" => port.to_string(),
                "BUS" => bus.to_string(),
                other => other.to_owned(),
            });
            let directory = tempfile::tempdir().expect("a directory");
            let process = spawn(arguments.collect(), &directory);
            let mut server = Server { process, port, directory, ca: ca.clone() };
            if server.is_up().await {
                return server;
            }
            assert!(!server.log().contains("tls-"), "this redis-server is built without TLS: {}", server.log());
        }
        panic!("redis-server does not start on any of five free ports");
    }

    pub async fn command(&self, words: &[&str]) -> Value {
        self.try_command(words).await.expect("an answer")
    }

    async fn try_command(&self, words: &[&str]) -> RedisResult<Value> {
        let (host, port) = ("127.0.0.1".to_owned(), self.port);
        let client = match &self.ca {
            None => Client::open((host, port)).expect("an address"),
            Some(ca) => {
                let address = ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None };
                let root_cert = Some(std::fs::read(ca).expect("an authority"));
                let info = address.into_connection_info().expect("an address");
                Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert }).expect("an authority")
            }
        };
        let connecting = within("a connection to Redis", client.get_multiplexed_async_connection());
        let mut connection = connecting.await?;
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        within("an answer of Redis", command.query_async(&mut connection)).await
    }

    /// The same as text; what is no text is nothing.
    pub async fn told(&self, words: &[&str]) -> String {
        redis::from_redis_value(self.command(words).await).unwrap_or_default()
    }

    pub async fn kill(mut self) {
        self.process.kill().await.expect("a process to kill");
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    async fn is_up(&mut self) -> bool {
        within("redis-server to answer", async {
            loop {
                if self.process.try_wait().expect("a process").is_some() {
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

impl RedisCluster {
    pub async fn start(authority: Option<&Authority>) -> RedisCluster {
        let secured = authority.map(tls_arguments).unwrap_or_default();
        let (plain, bus) = (["--port", "PORT"], ["--cluster-enabled", "yes", "--cluster-port", "BUS"]);
        let mut arguments: Vec<&str> = bus.to_vec();
        match authority {
            None => arguments.extend(plain),
            Some(_) => arguments.extend(secured.iter().map(String::as_str).chain(["--tls-cluster", "yes"])),
        }
        let ca = authority.map(Authority::file);
        let mut masters = Vec::new();
        for _ in 0..3 {
            masters.push(Server::start(&arguments, ca.clone()).await);
        }
        let cluster = RedisCluster { masters };
        cluster.share_slots().await;
        cluster
    }

    /// For `cluster.redis`; not all of them, as the others are found.
    pub fn url(&self) -> String {
        let scheme = if self.masters[0].ca.is_some() { "rediss" } else { "redis" };
        format!("{scheme}+cluster://127.0.0.1:{},127.0.0.1:{}", self.masters[0].port, self.masters[1].port)
    }

    async fn share_slots(&self) {
        let first = &self.masters[0];
        let each = SLOTS / self.masters.len() as u16;
        for (n, master) in self.masters.iter().enumerate() {
            let from = n as u16 * each;
            let to = if n + 1 == self.masters.len() { SLOTS - 1 } else { from + each - 1 };
            master.command(&["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()]).await;
            master.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(n + 1).to_string()]).await;
            let bus = match master.command(&["CONFIG", "GET", "cluster-port"]).await {
                Value::Array(pair) => redis::from_redis_value::<String>(pair[1].clone()).expect("a port"),
                other => panic!("{other:?}"),
            };
            if n > 0 {
                first.command(&["CLUSTER", "MEET", "127.0.0.1", &master.port.to_string(), &bus]).await;
            }
        }
        for master in &self.masters {
            within("the cluster to agree", async {
                loop {
                    let told = master.told(&["CLUSTER", "INFO"]).await;
                    if told.contains("cluster_state:ok") && told.contains("cluster_known_nodes:3") {
                        return;
                    }
                    // There is no event to await from outside; the pause keeps this from spinning.
                    sleep(Duration::from_millis(20)).await;
                }
            })
            .await;
        }
    }
}

impl Watched {
    pub async fn start() -> Watched {
        let master = Server::start(&["--port", "PORT"], None).await;
        let of = master.port.to_string();
        let replica = Server::start(&["--port", "PORT", "--replicaof", "127.0.0.1", &of], None).await;
        until(&replica, &["INFO", "replication"], "master_link_status:up").await;
        let mut sentinels = Vec::new();
        let monitor = format!("{MASTER} 127.0.0.1 {of} 2");
        for _ in 0..3 {
            let file = tempfile::NamedTempFile::new().expect("a file");
            let text = format!(
                "sentinel monitor {monitor}\nsentinel down-after-milliseconds {MASTER} 1500\n\
                 sentinel failover-timeout {MASTER} 10000\n"
            );
            std::fs::write(file.path(), text).expect("a file");
            let (_, path) = file.keep().expect("a file");
            let path = path.to_str().expect("a path").to_owned();
            sentinels.push(Server::start(&[&path, "--sentinel", "--port", "PORT"], None).await);
        }
        for sentinel in &sentinels {
            until(sentinel, &["INFO", "sentinel"], "slaves=1,sentinels=3").await;
        }
        Watched { master: Some(master), replica, sentinels }
    }

    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
        format!("redis+sentinel://{}/{MASTER}", hosts.join(","))
    }

    /// The master is killed; returns once its replica has its place.
    pub async fn fail_over(&mut self) {
        self.master.take().expect("a master").kill().await;
        until(&self.replica, &["INFO", "replication"], "role:master").await;
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        for sentinel in &self.sentinels {
            let config = std::fs::read_to_string(format!("/proc/{}/cmdline", sentinel.process.id().unwrap_or(0)));
            let file = config.unwrap_or_default().split('\0').nth(1).map(PathBuf::from);
            let _ = file.filter(|file| file.starts_with(std::env::temp_dir())).map(std::fs::remove_file);
        }
    }
}

/// For a server that speaks TLS only.
pub fn tls_arguments(authority: &Authority) -> Vec<String> {
    let signed = authority.signs("127.0.0.1", 2100);
    let path = |path: &PathBuf| path.to_str().expect("a path").to_owned();
    let files = [
        ("--tls-cert-file", path(&signed.cert_file)),
        ("--tls-key-file", path(&signed.key_file)),
        ("--tls-ca-cert-file", path(&authority.file())),
    ];
    let words = ["--port", "0", "--tls-port", "PORT", "--tls-auth-clients", "no"].map(str::to_owned);
    words.into_iter().chain(files.into_iter().flat_map(|(word, file)| [word.to_owned(), file])).collect()
}

/// Returns once it says so. With the word that makes it the master a sentinel cuts every client off (`CLIENT KILL TYPE
/// normal`), so that they look for the master anew: whoever asks at that moment, or is just connecting, asks again.
async fn until(server: &Server, words: &[&str], wanted: &str) {
    let is_told = async || match server.try_command(words).await {
        Ok(told) => redis::from_redis_value::<String>(told).is_ok_and(|told| told.contains(wanted)),
        Err(why) if why.is_io_error() || why.is_connection_dropped() => false,
        Err(why) => panic!("{words:?}: {why}"),
    };
    within_time(FAILOVER_MAX, wanted, async {
        while !is_told().await {
            // There is no event to await from outside; the pause keeps this from spinning.
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

async fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    free.local_addr().expect("an address").port()
}

fn spawn(arguments: Vec<String>, directory: &tempfile::TempDir) -> Child {
    let log = std::fs::File::create(directory.path().join("log")).expect("a log");
    let started = Command::new("redis-server")
        .args(arguments)
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--loglevel", "warning"])
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a log"))
        .stderr(log)
        .kill_on_drop(true)
        .spawn();
    started.unwrap_or_else(|why| {
        panic!("redis-server cannot be started ({why}): install it, as with `apt-get install redis-server`")
    })
}
