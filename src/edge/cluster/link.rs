//! One connection to Redis, a sentinel's master or a cluster, and the calls that are made over it.
//!
//! Commands of many requests share it: it is never waited for, only for answers. What is wrong is told as a `Fault`;
//! a URL's password is in none.

use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection, PubSub};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, FromRedisValue, IntoConnectionInfo, RedisError,
    RedisFuture, RedisResult, Script, TlsCertificates, TlsMode, Value, pipe,
};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::fault::{Fault, code_of};
use crate::config::{Cluster, Pem, RedisForm, RedisUrl};

#[derive(Clone)]
pub struct Link {
    connection: Connection,
    pub prefix: String,
    is_by_sentinels: bool,
}

#[derive(Clone)]
enum Connection {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// To connect, all hosts together.
pub const CONNECT_MAX: Duration = Duration::from_secs(2);

/// For the answer of one call. What takes longer says that the connection hangs.
pub const ANSWER_MAX: Duration = Duration::from_secs(1);

impl Link {
    /// A connection, and what is published on the channel from now on.
    pub async fn open(config: &Cluster) -> Result<(Link, PubSub), Fault> {
        let opening = async {
            match &config.redis.form {
                RedisForm::Cluster => over_cluster(config).await,
                RedisForm::Sentinel(master) => over_client(&master_of(config, master).await?).await,
                RedisForm::Single => over_client(&client(config, 0)?).await,
            }
        };
        let opened = timeout(CONNECT_MAX, opening).await;
        let (connection, mut pubsub) = opened.map_err(|_| Fault::TimedOut)?.map_err(|why| Fault::of(&why))?;
        let is_by_sentinels = matches!(config.redis.form, RedisForm::Sentinel(_));
        let link = Link { connection, prefix: config.prefix.clone(), is_by_sentinels };
        let subscribing = timeout(ANSWER_MAX, pubsub.subscribe(link.channel())).await;
        subscribing.map_err(|_| Fault::TimedOut)?.map_err(|why| Fault::of(&why))?;
        Ok((link, pubsub))
    }

    pub fn channel(&self) -> String {
        format!("{}:replicas", self.prefix)
    }

    /// It refused one call and is there all the same. A master that takes no writes any more is none: the sentinels
    /// know another.
    pub fn is_refusal(&self, why: &RedisError) -> bool {
        code_of(why).is_some_and(|code| !(self.is_by_sentinels && code == "READONLY"))
    }

    pub async fn call<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        command.query_async(&mut self.connection.clone()).await
    }

    pub async fn run<T: FromRedisValue>(&self, script: &Script, keys: &[String], args: &[String]) -> RedisResult<T> {
        let mut invocation = script.prepare_invoke();
        for key in keys {
            invocation.key(key);
        }
        for arg in args {
            invocation.arg(arg);
        }
        invocation.invoke_async(&mut self.connection.clone()).await
    }

    /// All of them, in any order; the first error.
    pub async fn call_all(&self, commands: Vec<Cmd>) -> RedisResult<()> {
        if commands.is_empty() {
            return Ok(());
        }
        match &self.connection {
            Connection::One(connection) => {
                let mut all = pipe();
                for command in commands {
                    all.add_command(command).ignore();
                }
                all.query_async(&mut connection.clone()).await
            }
            // A pipeline of a cluster goes to one node only.
            Connection::Cluster(connection) => {
                let mut calls = JoinSet::new();
                for command in commands {
                    let mut connection = connection.clone();
                    calls.spawn(async move { command.exec_async(&mut connection).await });
                }
                let mut outcome = Ok(());
                while let Some(called) = calls.join_next().await {
                    outcome = outcome.and(called.unwrap_or(Ok(())));
                }
                outcome
            }
        }
    }
}

async fn over_client(client: &Client) -> RedisResult<(Connection, PubSub)> {
    let connection = client.get_multiplexed_async_connection_with_config(&config()).await?;
    Ok((Connection::One(connection), client.get_async_pubsub().await?))
}

async fn over_cluster(config: &Cluster) -> RedisResult<(Connection, PubSub)> {
    let url = &config.redis;
    let nodes = (0..url.hosts.len()).map(|at| info(url, at)).collect::<RedisResult<Vec<_>>>()?;
    let mut builder =
        ClusterClientBuilder::new(nodes).connection_timeout(CONNECT_MAX).response_timeout(ANSWER_MAX).retries(1);
    if url.tls {
        builder = builder.tls(TlsMode::Secure).certs(certificates(config));
    }
    let connection = builder.build()?.get_async_connection().await?;
    // What is published at one node of a cluster is heard at each.
    let mut last = RedisError::from((redis::ErrorKind::InvalidClientConfig, "no hosts"));
    // One that hangs keeps nobody from the next.
    let each_max = CONNECT_MAX / (2 * url.hosts.len().max(1)) as u32;
    for at in 0..url.hosts.len() {
        let client = client(config, at)?;
        match timeout(each_max, client.get_async_pubsub()).await {
            Ok(Ok(pubsub)) => return Ok((Connection::Cluster(connection), pubsub)),
            Ok(Err(why)) => last = why,
            Err(_) => last = RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut)),
        }
    }
    Err(last)
}

async fn master_of(config: &Cluster, master: &str) -> RedisResult<Client> {
    let url = &config.redis;
    let sentinels = url.hosts.iter().map(|(host, port)| address(host, *port, url.tls));
    let mut builder =
        SentinelClientBuilder::new(sentinels, master, SentinelServerType::Master)?.set_client_to_redis_db(url.database);
    if url.tls {
        let tls = TlsMode::Secure;
        builder = builder.set_client_to_redis_tls_mode(tls).set_client_to_sentinel_tls_mode(tls);
        builder = builder.set_client_to_redis_certificates(certificates(config));
        builder = builder.set_client_to_sentinel_certificates(certificates(config));
    }
    if let Some(user) = &url.user {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = &url.password {
        builder = builder.set_client_to_redis_password(password);
    }
    builder.build()?.async_get_client().await
}

fn client(config: &Cluster, at: usize) -> RedisResult<Client> {
    let info = info(&config.redis, at)?;
    if config.redis.tls { Client::build_with_tls(info, certificates(config)) } else { Client::open(info) }
}

/// Nothing: whom this machine trusts.
fn certificates(config: &Cluster) -> TlsCertificates {
    TlsCertificates { client_tls: None, root_cert: config.ca.as_ref().map(Pem::to_text) }
}

fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_MAX)).set_response_timeout(Some(ANSWER_MAX))
}

fn address(host: &str, port: u16, tls: bool) -> ConnectionAddr {
    let host = host.to_owned();
    match tls {
        true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
        false => ConnectionAddr::Tcp(host, port),
    }
}

fn info(url: &RedisUrl, at: usize) -> RedisResult<ConnectionInfo> {
    let (host, port) = url.hosts.get(at).ok_or((redis::ErrorKind::InvalidClientConfig, "no hosts"))?;
    let info = address(host, *port, url.tls).into_connection_info()?;
    let mut settings = info.redis_settings().clone().set_db(url.database);
    if let Some(user) = &url.user {
        settings = settings.set_username(user);
    }
    if let Some(password) = &url.password {
        settings = settings.set_password(password);
    }
    Ok(info.set_redis_settings(settings))
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Connection::One(connection) => connection.req_packed_command(command),
            Connection::Cluster(connection) => connection.req_packed_command(command),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        commands: &'a redis::Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Connection::One(connection) => connection.req_packed_commands(commands, offset, count),
            Connection::Cluster(connection) => connection.req_packed_commands(commands, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Connection::One(connection) => connection.get_db(),
            Connection::Cluster(connection) => connection.get_db(),
        }
    }
}
