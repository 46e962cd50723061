//! Warmgate: an LLM ingress that sends each request to the node that will answer it soonest.

pub mod config;
pub mod engines;
pub mod routing;
pub mod sim;
pub mod units;
pub mod wire;
