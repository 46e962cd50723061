//! `/api/generate`: a prompt in the model's template is a chat of one message; a raw one is a completion.
//!
//! Ollama puts a prompt and its `system` text through the model's chat template, so `/v1/completions`, which
//! has none, would make an instructed model ramble. Only `raw: true`, which asks for no template, goes there.

use serde_json::value::RawValue;

use super::draft::Draft;
use super::fields::Fields;
use super::json::Json;
use super::refusal::{Untranslatable, refuse};
use super::{Translated, chat, format, message, raw};
use crate::routing::ask::Endpoint;

/// What a prompt has beyond a conversation.
const UNTRANSLATABLE: [(&str, &str); 2] = [
    ("context", "its numbers are tokens of an Ollama's answer; send the conversation's text to /api/chat"),
    ("suffix", "such engines do not fill in between a prompt and a suffix"),
];

const UNTRANSLATABLE_RAW: [(&str, &str); 5] = [
    ("images", "a raw prompt goes to /v1/completions, which takes no images"),
    ("logprobs", "/v1/completions tells them in another form"),
    ("system", "a raw prompt has no place for it"),
    ("think", "a raw prompt has no template that could switch it"),
    ("tools", "a raw prompt has no place for them"),
];

pub(super) fn request(mut fields: Fields<'_>, model: &str) -> Result<Translated, Untranslatable> {
    let is_raw = match fields.take("raw") {
        Some(raw) => raw::flag(raw).ok_or_else(|| Untranslatable::new("raw", "it is neither true nor false"))?,
        None => false,
    };
    let to = if is_raw { Endpoint::OpenAiCompletions } else { Endpoint::OpenAiChat };
    let mut draft = Draft::new(to, model, fields);
    draft.refuse(&chat::UNTRANSLATABLE)?;
    draft.refuse(&UNTRANSLATABLE)?;
    let prompt = draft.take("prompt");
    if prompt.is_some_and(|prompt| !raw::is_text(prompt)) {
        return refuse("prompt", "it is not a text");
    }
    let Some(prompt) = prompt.filter(|prompt| raw::is_filled(prompt)) else {
        return draft.nothing();
    };
    if is_raw {
        return completion(draft, prompt);
    }
    let system = draft.take_filled("system").map(|system| message::simple("system", system, None)).transpose()?;
    let images = draft.take_filled("images");
    let user = message::simple("user", prompt, images)?;
    draft.body.put("messages", Json::List(system.into_iter().chain([user]).collect()));
    chat::finish(draft)
}

fn completion<'a>(mut draft: Draft<'a>, prompt: &'a RawValue) -> Result<Translated, Untranslatable> {
    draft.refuse(&UNTRANSLATABLE_RAW)?;
    draft.body.put("prompt", Json::Raw(prompt));
    draft.stream()?;
    draft.options()?;
    if !draft.body.has("max_tokens") {
        // Absent would mean sixteen tokens to vLLM; null means no limit to every engine.
        let limit = draft.take("max_tokens").map_or(Json::Null, Json::Raw);
        draft.body.put("max_tokens", limit);
    }
    if let Some(wanted) = draft.take_filled("format") {
        draft.body.put("response_format", format::response_format(wanted)?);
    }
    draft.finish()
}
