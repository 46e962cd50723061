//! Warmgate proven from outside: the real program between a raw client and scripted upstreams.
//!
//! The kit comes first, then one file of tests for each thing that must hold. Tests that answer a
//! fault from the field carry its number in their name (`can_01_…`).

// The kit.
mod bystander;
mod client;
mod exposition;
mod frames;
mod gate;
mod http1;
mod http2;
#[cfg(feature = "kube")]
mod kube_api;
mod name_server;
mod patience;
mod redis_kinds;
mod redis_server;
mod rig;
mod talk;
mod upstream;
mod waiting;

// What must hold.
mod accounting;
mod admin_token;
mod apart;
mod attack;
mod attack_bodies;
mod attack_connections;
mod attack_http2;
mod bad_input;
mod balance;
mod bodies;
mod booking;
mod broken;
mod busy;
mod cancel;
mod cases;
mod cluster;
mod cluster_failures;
mod cluster_kinds;
mod cluster_repairs;
mod cluster_shares;
mod cluster_versions;
mod cold;
mod counted;
mod cut;
mod dashboard;
mod dialects;
mod drain;
mod expected;
mod exposure;
mod failover;
mod first_byte;
mod first_light;
mod framing;
mod groups;
mod guard_options;
mod heartbeat;
mod hygiene;
mod inquiries;
mod jwt;
mod kit;
#[cfg(feature = "kube")]
mod kubernetes;
#[cfg(feature = "kube")]
mod kubernetes_away;
#[cfg(feature = "kube")]
mod kubernetes_pod;
mod lead;
mod limits;
mod listen_tls;
mod lists;
mod loops;
mod management;
mod manners;
mod metric_table;
mod mounted;
mod pipelined;
mod purity;
mod queries;
mod reload;
mod resume;
mod rows;
mod srv;
mod state_file;
mod states;
mod stop;
mod strays;
mod stream;
mod sums;
mod surface;
mod tenants;
mod timeouts;
mod tls;
mod top;
mod trace;
mod upgrade;
