//! The software that upstreams run: one file an engine, one line in the roster.
//!
//! An engine is data: which paths to ask, what a good answer looks like, how names compare. The only
//! code is `read`, a pure function from the bodies of one poll to what they say. Nothing here opens
//! a connection; `edge::telemetry` and `edge::health` do the asking.

use serde_json::Value;

use crate::routing::ask::Dialect;
use crate::routing::report::Report;

/// How clients' model names compare with the engine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// Ollama's: case folds, no tag means `:latest`, default registry and namespace may be left out.
    Ollama,
    /// To the letter.
    Exact,
}

/// One engine, as data.
pub struct Engine {
    /// The value of `engine:` in the configuration.
    pub name: &'static str,
    pub dialects: &'static [Dialect],
    pub naming: Naming,
    /// GET path that is cheap and answers 200 while the engine can serve.
    pub probe_path: &'static str,
    /// GET paths of one telemetry round, in the order `read` expects their bodies.
    pub poll_paths: &'static [&'static str],
    /// The engine serves the models it lists and no others: always resident, nothing to load.
    pub fixed_models: bool,
    /// Parallel requests a model, assumed only to divide depth by, never to limit.
    pub default_slots: u32,
    /// Understands the bodies of one round; an error says which body is not what it should be.
    pub read: fn(&[&[u8]]) -> Result<Reading, String>,
}

/// What one telemetry round gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    pub report: Report,
    /// The entries as the engine lists them, for the merged catalogue.
    pub listings: Vec<Listing>,
}

/// One model's entries in the engine's own lists, untouched.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    pub name: String,
    /// Entry of `/api/tags`.
    pub tags: Option<Value>,
    /// Entry of `/api/ps`.
    pub ps: Option<Value>,
    /// Entry of `/v1/models`.
    pub openai: Option<Value>,
}
