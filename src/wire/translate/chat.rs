//! `/api/chat` as `/v1/chat/completions`.
//!
//! Tools need no translation: Ollama's are in OpenAI's form.

use super::draft::Draft;
use super::fields::Fields;
use super::json::Json;
use super::refusal::{Untranslatable, refuse};
use super::{Translated, format, message, raw, think};
use crate::routing::ask::Endpoint;

/// Fields of a conversation or a prompt that have no translation, and why.
pub(super) const UNTRANSLATABLE: [(&str, &str); 4] = [
    ("_debug_render_only", "only Ollama shows the prompt that it makes"),
    ("adapters", "such an engine knows adapters as models of their own"),
    ("n", "an answer in Ollama's words is one answer"),
    ("template", "such an engine has the model's own template"),
];

pub(super) fn request(fields: Fields<'_>, model: &str) -> Result<Translated, Untranslatable> {
    let mut draft = Draft::new(Endpoint::OpenAiChat, model, fields);
    draft.refuse(&UNTRANSLATABLE)?;
    let messages = draft.take("messages");
    if messages.is_some_and(|messages| !raw::is_list(messages)) {
        return refuse("messages", "it is not a list");
    }
    let Some(messages) = messages.filter(|messages| raw::is_filled(messages)) else {
        return draft.nothing();
    };
    draft.body.put("messages", message::list(messages)?);
    finish(draft)
}

/// What a conversation and a prompt have in common.
pub(super) fn finish(mut draft: Draft<'_>) -> Result<Translated, Untranslatable> {
    draft.stream()?;
    draft.options()?;
    // OpenAI's own servers refuse a list of no tools.
    let tools = draft.take_filled("tools");
    draft.body.put_some("tools", tools.map(Json::Raw));
    if let Some(wanted) = draft.take_filled("format") {
        draft.body.put("response_format", format::response_format(wanted)?);
    }
    if let Some(wanted) = draft.take("think").filter(|raw| raw.get() != "\"\"") {
        think::translate(wanted, &mut draft)?;
    }
    draft.finish()
}
