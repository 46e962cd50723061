//! What cannot be said to an OpenAI-type engine, by the name of the field that says it.
//!
//! Each is the client's to mend: status 400. The sentence names the field and the reason, so that a person
//! who never heard of translation knows what to change or which kind of node to ask for.

use thiserror::Error;

/// Longest name of a field that is repeated to the client; names are the client's and may be long.
const NAME_CHARS: usize = 80;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{field}` cannot be translated for the OpenAI-type engine that holds this model: {why}")]
pub struct Untranslatable {
    /// Where in the body it stands, as in `messages[2].images[0]`.
    pub field: String,
    pub why: &'static str,
}

impl Untranslatable {
    pub(super) fn new(field: &str, why: &'static str) -> Untranslatable {
        Untranslatable { field: field.chars().take(NAME_CHARS).collect(), why }
    }
}

pub(super) fn refuse<T>(field: &str, why: &'static str) -> Result<T, Untranslatable> {
    Err(Untranslatable::new(field, why))
}
