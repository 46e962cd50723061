//! Warmgate: an LLM ingress that sends each request to the node that will answer it soonest.
//!
//! A follow-up in a long conversation is nearly free on the node that served the last turn and very
//! dear on any other. Warmgate reads each request, recognises its conversation, scores every node by
//! eight signals of which warmth is one, and carries the stream.
//!
//! # The flow
//!
//! ```text
//! bytes arrive -> edge::intake reads the body -> wire::peek makes an Ask of it
//!   -> edge::pick: routing::select decides and routing::fleet books, in one critical section
//!   -> Pingora carries the stream -> wire::observe reads a copy
//!   -> the lease ends, the fleet has learnt -> the next decision
//! ```
//!
//! # Who may use whom
//!
//! `cli` -> `edge` -> `engines`, `wire`, `config` -> `routing` -> nothing. `sim` is an engine on its
//! own; the demo and the tests put `edge` in front of it. `routing` and `wire` are pure: no I/O, no
//! clock, no chance, no async, no globals, no logging; a test scans them for breaches.
//!
//! # The words
//!
//! An *upstream* is one server that runs models ("node" on screens and in headers); its *engine* is
//! the software it runs; a *dialect* is the API a client speaks. An [`Ask`](routing::ask::Ask) is what
//! a request wants. The [`Fleet`](routing::fleet::Fleet) is all upstreams and what is believed about
//! them. A *signal* judges an upstream for an ask; the *score* is the sum of the signals. A *session*
//! is one conversation, a [`Pin`](routing::session::Pin) the memory of who served it last. A
//! [`Lease`](edge::lease::Lease) is one running attempt's booking. *Depth* is the requests for a model
//! on an upstream, divided by its *slots*. A [`Receipt`](edge::receipt::Receipt) says why a request
//! went where it went. A [`Site`](edge::site::Site) is a server as the edge talks to it, a
//! [`Node`](edge::node::Node) one of its *rows*: the ranks behind one URL and the addresses behind one name
//! are rows of one configured upstream. The [`Roster`](edge::roster::Roster) holds all that there are now.
//!
//! # The laws
//!
//! L1 to L11 stand in [`routing::laws`], which checks what can be read off the state after every step
//! in debug builds; tests cite them by number.
//!
//! # In your own Pingora server
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use pingora_core::server::Server;
//! use pingora_core::services::background::background_service;
//! use pingora_proxy::http_proxy_service;
//! use warmgate::{Caretaker, Gateway, Ingress, config};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let plan = config::load("warmgate.yaml".as_ref())?;
//! let ingress = Arc::new(Ingress::new(plan)?);
//!
//! let mut server = Server::new(None)?;
//! server.bootstrap();
//! let mut proxy = http_proxy_service(&server.configuration, Gateway::new(ingress.clone()));
//! proxy.add_tcp("127.0.0.1:11435");
//! let proxy = server.add_service(proxy);
//! proxy.add_dependency(&server.add_service(background_service("fleet", Caretaker::new(ingress))));
//! server.run_forever();
//! # }
//! ```
//!
//! # The selection alone
//!
//! [`FleetSelection`] is a Pingora `BackendSelection`: the request's facts travel in the key, the live
//! state behind the [`Seat`](edge::selection::Seat) in each backend. See `tests/it/mounted.rs`.

pub mod cli;
pub mod config;
pub mod date;
pub mod edge;
pub mod engines;
pub mod routing;
pub mod sim;
pub mod units;
pub mod wire;

pub use edge::caretaker::Caretaker;
pub use edge::gateway::Gateway;
pub use edge::ingress::Ingress;
pub use edge::selection::FleetSelection;
