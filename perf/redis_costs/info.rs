//! Redis' own counts.

use redis::aio::MultiplexedConnection;

/// The value of a line of `INFO`.
pub async fn text(connection: &mut MultiplexedConnection, section: &str, name: &str) -> String {
    let all: String = redis::cmd("INFO").arg(section).query_async(connection).await.expect("INFO");
    let line = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().to_owned()
}

pub async fn number(connection: &mut MultiplexedConnection, section: &str, name: &str) -> f64 {
    text(connection, section, name).await.parse().unwrap_or_default()
}

/// What it has used of a processor, seconds.
pub async fn cpu_s(connection: &mut MultiplexedConnection) -> f64 {
    number(connection, "cpu", "used_cpu_user").await + number(connection, "cpu", "used_cpu_sys").await
}

/// Microseconds that commands of that name have taken, by Redis' own watch.
pub async fn command_us(connection: &mut MultiplexedConnection, name: &str) -> f64 {
    let told = text(connection, "commandstats", &format!("cmdstat_{name}")).await;
    let us = told.split(',').find_map(|part| part.strip_prefix("usec="));
    us.and_then(|us| us.parse().ok()).unwrap_or_default()
}
