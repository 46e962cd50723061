//! Messages of a conversation.
//!
//! Texts go through as they were written. Images become parts in front of the text, where Ollama's own
//! prompts have them. What the model thought goes under both names engines read, and fields nobody here
//! knows go along.

use serde_json::value::RawValue;

use super::call::Calls;
use super::fields::{Fields, UNREADABLE};
use super::json::{Json, Object};
use super::refusal::{Untranslatable, refuse};
use super::{image, raw};

pub(super) fn list(messages: &RawValue) -> Result<Json<'_>, Untranslatable> {
    let Some(messages) = raw::items(messages) else {
        return refuse("messages", "it is not a list of at most 65,536 messages");
    };
    let mut calls = Calls::default();
    let messages = messages.into_iter().enumerate();
    Ok(Json::List(
        messages.map(|(at, raw)| message(raw, &format!("messages[{at}]"), &mut calls)).collect::<Result<_, _>>()?,
    ))
}

fn message<'a>(raw: &'a RawValue, place: &str, calls: &mut Calls<'a>) -> Result<Json<'a>, Untranslatable> {
    let mut fields = Fields::of(raw).ok_or_else(|| Untranslatable::new(place, UNREADABLE))?;
    let Some(role) = fields.take("role").and_then(raw::text) else {
        return refuse(place, "it has no `role`");
    };
    let content = content(fields.take("content"), fields.take_filled("images"), place)?;
    let mut to = Object::of([("role", Json::Text(role.clone())), ("content", content)]);
    if let Some(thinking) = fields.take_filled("thinking") {
        // llama.cpp and SGLang read the first, vLLM the second.
        to.put("reasoning_content", Json::Raw(thinking));
        to.put("reasoning", Json::Raw(thinking));
    }
    if let Some(made) = fields.take_filled("tool_calls") {
        to.put("tool_calls", calls.make(made, place)?);
    }
    match &*role {
        "tool" => {
            let (id, tool) = (fields.take_filled("tool_call_id"), fields.take_filled("tool_name"));
            let tool = tool.or(fields.take_filled("name"));
            to.put("tool_call_id", calls.answered(id, tool, place)?);
        }
        "user" => calls.forget(),
        _ => {}
    }
    to.put_rest(fields).or_else(|name| refuse(&format!("{place}.{name}"), "another field says the same"))?;
    Ok(to.into())
}

/// A message of one role and one text, with images.
pub(super) fn simple<'a>(
    role: &'static str,
    text: &'a RawValue,
    images: Option<&'a RawValue>,
) -> Result<Json<'a>, Untranslatable> {
    // Nothing stands before it: the images of a prompt are a field of the request itself.
    let content = content(Some(text), images, "")?;
    Ok(Object::of([("role", Json::text(role)), ("content", content)]).into())
}

fn content<'a>(
    text: Option<&'a RawValue>,
    images: Option<&'a RawValue>,
    place: &str,
) -> Result<Json<'a>, Untranslatable> {
    let Some(images) = images else {
        return Ok(text.map_or(Json::text(""), Json::Raw));
    };
    let place = format!("{place}.images").trim_start_matches('.').to_owned();
    let Some(images) = raw::items(images) else {
        return refuse(&place, "it is not a list");
    };
    if text.is_some_and(|text| !raw::is_text(text)) {
        return refuse(&place, "the text beside it is not a text");
    }
    let images = images.into_iter().enumerate();
    let mut parts: Vec<_> =
        images.map(|(at, raw)| image::part(raw, &format!("{place}[{at}]"))).collect::<Result<_, _>>()?;
    if let Some(text) = text.filter(|text| raw::is_filled(text)) {
        parts.push(Object::of([("type", Json::text("text")), ("text", Json::Raw(text))]).into());
    }
    Ok(Json::List(parts))
}
