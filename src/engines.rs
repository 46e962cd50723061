//! The software that upstreams run: one file an engine, one line in the roster.
//!
//! An engine is data: which paths to ask, what a good answer looks like, how names compare. The only
//! code is two pure functions over the bodies of answers: `read` says what one poll told, `recognises`
//! whether an unknown server is this engine. Reading is strict about shape, because a failed poll
//! must never look like an empty node, and lenient about fields it does not know. Nothing here opens
//! a connection; `edge::telemetry` and `edge::health` do the asking.

mod ollama;
mod openai;

use serde_json::Value;

use crate::routing::ask::Dialect;
pub use crate::routing::name::Naming;
use crate::routing::report::Report;
use crate::routing::upstream::Traits;

/// Every engine, by name. Configuration, detection and metrics run over it.
#[rustfmt::skip]
pub static ROSTER: &[&Engine] = &[
    &ollama::ENGINE,
    &openai::ENGINE,
];

/// Models one upstream may list. LiteLLM and hosted catalogues have hundreds; what exceeds this is
/// no list of models.
const MODELS_MAX: usize = 4096;

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
    /// GET path whose answer gives the engine away.
    pub fingerprint_path: &'static str,
    /// Whether the body of a 200 from `fingerprint_path` is this engine's.
    pub recognises: fn(&[u8]) -> bool,
    /// What others imitate: recognised only when no other engine is.
    pub generic: bool,
}

impl Engine {
    /// What routing must know of it.
    pub fn traits(&self) -> Traits {
        Traits {
            dialects: self.dialects,
            naming: self.naming,
            fixed_models: self.fixed_models,
            stores_responses: self.naming == Naming::Exact,
            default_slots: self.default_slots,
        }
    }
}

/// The engine of that name.
pub fn find(name: &str) -> Option<&'static Engine> {
    ROSTER.iter().copied().find(|engine| engine.name == name)
}

/// The engines in the order in which an unknown server is tried for them; the first to recognise
/// its answer is right.
pub fn detection_order() -> impl Iterator<Item = &'static Engine> {
    let particular = ROSTER.iter().copied().filter(|engine| !engine.generic);
    particular.chain(ROSTER.iter().copied().filter(|engine| engine.generic))
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

/// The entries of the list under `key` in a JSON object, and nothing less.
fn entries(body: &[u8], key: &str) -> Result<Vec<Value>, String> {
    let answer: Value = serde_json::from_slice(body).map_err(|e| format!("not JSON: {e}"))?;
    let Value::Object(mut answer) = answer else {
        return Err("not a JSON object".to_string());
    };
    match answer.remove(key) {
        Some(Value::Array(entries)) if entries.len() > MODELS_MAX => Err(format!("more than {MODELS_MAX} models")),
        Some(Value::Array(entries)) if !entries.iter().all(Value::is_object) => {
            Err(format!("`{key}` lists something that is not an object"))
        }
        Some(Value::Array(entries)) => Ok(entries),
        // How Go writes an empty slice.
        Some(Value::Null) => Ok(Vec::new()),
        Some(_) => Err(format!("`{key}` is not a list")),
        None => Err(format!("no `{key}`")),
    }
}

/// Tokens as the core counts them.
fn tokens(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
