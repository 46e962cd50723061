//! Other people's bytes: what clients send, what engines answer, and how errors are spelled.
//!
//! Everything here is pure: bytes in, values out, no clock, no I/O, no logging. Requests are read in
//! one pass and never rewritten here; answers are read on a copy and never changed, but for translation and
//! for the one event that `unasked` takes out. No input, however broken, makes this code panic, and every
//! buffer has a named limit.

pub mod border;
pub mod cache_salt;
pub mod count;
pub mod edit;
pub mod error;
pub mod framing;
pub mod managed;
pub mod observe;
pub mod peek;
pub mod progress;
pub mod prometheus;
pub mod replicas;
pub mod resume;
pub mod translate;
pub mod unasked;

mod body;
mod digest;
mod event;
mod form;
mod frame_end;
mod item;
mod key;
mod lexer;
mod lines;
mod listed;
mod message;
mod number;
mod pattern;
mod piece;
mod prompt;
mod size;
mod speech;
mod sse;
mod steps;
mod stream_options;
mod surrogate;
mod turn;
mod usage;
mod value;
mod whole;
