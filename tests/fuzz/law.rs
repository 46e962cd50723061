//! One file a target: its laws.

pub mod answer;
pub mod config;
pub mod engines;
pub mod form;
pub mod observe;
pub mod peek;
pub mod prometheus;
pub mod request;

mod literals;
