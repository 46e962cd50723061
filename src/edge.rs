//! Everything that touches the outside: sockets, clocks, files, logs.
//!
//! A thin shell. It implements Pingora's traits (`ProxyHttp`, `BackendSelection`, `HealthCheck`,
//! `ServiceDiscovery`, `BackgroundService`), turns bytes into asks with `wire`, asks `routing` for
//! decisions and carries them out. Rules live there, not here.

pub mod access_log;
pub mod active;
pub mod address;
pub mod admin;
pub mod answer;
pub mod body;
pub mod budget;
pub mod caretaker;
pub mod catalogue;
pub mod clock;
pub mod coding;
pub mod complaint;
pub mod cors;
pub mod departure;
pub mod descriptors;
pub mod discovery;
pub mod door;
pub mod exchange;
pub mod explain;
pub mod fetch;
pub mod gateway;
pub mod handover;
pub mod headers;
pub mod health;
pub mod history;
pub mod ingress;
pub mod inquiries;
pub mod intake;
pub mod jwt;
pub mod lease;
pub mod lists;
pub mod live;
pub mod local;
pub mod manage;
pub mod metrics;
pub mod misfit;
pub mod movers;
pub mod nobody;
pub mod node;
pub mod orders;
pub mod payload;
pub mod pick;
pub mod probe;
pub mod problem;
pub mod receipt;
pub mod refusal;
pub mod reload;
pub mod replay;
pub mod request_id;
pub mod resolver;
pub mod resume;
pub mod roster;
pub mod route;
pub mod securing;
pub mod selection;
pub mod server;
pub mod shared_fleet;
pub mod shutdown;
pub mod site;
pub mod snapshot;
pub mod standing;
pub mod state;
pub mod state_file;
pub mod tally;
pub mod target;
pub mod telemetry;
pub mod tenants;
#[cfg(test)]
mod testbed;
pub mod trace;
pub mod translation;
pub mod verdict;
pub mod waiting_room;
