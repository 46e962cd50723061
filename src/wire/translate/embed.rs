//! `/api/embed` and the older `/api/embeddings` as `/v1/embeddings`.
//!
//! The texts go through as they were written, one or a list. Vectors are asked for as numbers, which is what
//! Ollama answers with.

use super::draft::Draft;
use super::fields::Fields;
use super::json::Json;
use super::refusal::Untranslatable;
use super::{Translated, options};
use crate::routing::ask::Endpoint;

/// `texts` is the field that holds what is to be embedded.
pub(super) fn request(fields: Fields<'_>, model: &str, texts: &'static str) -> Result<Translated, Untranslatable> {
    let mut draft = Draft::new(Endpoint::OpenAiEmbeddings, model, fields);
    let Some(input) = draft.take_filled(texts) else {
        return draft.nothing();
    };
    draft.body.put("input", Json::Raw(input));
    draft.body.put("encoding_format", Json::text("float"));
    if let Some(raw) = draft.take("options") {
        options::drop_all(raw, &mut draft)?;
    }
    draft.finish()
}
