//! Warmgate: an LLM ingress on Pingora.

pub mod config;
pub mod edge;
pub mod engines;
pub mod routing;
pub mod sim;
pub mod units;
pub mod wire;
