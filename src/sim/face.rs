//! The simulated engine behind a socket, in real time, on Pingora.
//!
//! A node passes for one of several engines: `kind` is the roster of their paths, pages and refusals,
//! `voice` the dialects in which they answer. A `Node` listens, reads requests with Pingora's HTTP code, hands them to an `Engine` and streams
//! what comes of it, one token a chunk. It can be told to misbehave, stopped and started again, and
//! keeps a record of every request for comparison with what an ingress says it did. It calls a tool when
//! the user's last message says `call NAME`, gives JSON when a format is asked for, refuses what it
//! cannot simulate with the words of its engine, and never claims an answer to be real.

mod answer;
mod app;
mod behaviour;
mod call;
mod desk;
mod form;
mod infer;
mod journal;
mod keep_alive;
mod kind;
mod node;
mod params;
mod refusal;
mod shelf;
#[cfg(test)]
mod tests;
mod text;
mod voice;

pub use behaviour::{Behaviour, Order};
pub use journal::{Outcome, Record, Stats};
pub use kind::{Kind, ROSTER};
pub use node::{Node, serve};
pub use params::{Card, NodeModel, NodeParams};
