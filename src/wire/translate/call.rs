//! Tool calls of earlier turns, and the results that belong to them.
//!
//! Ollama ties a result to its call by the tool's name, OpenAI by an id. Where the client kept no id one is
//! made up from the call's place in the conversation, so that each turn spells its past as the turn before
//! did. It has nine letters and digits, since templates of Mistral's models insist on that.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::fields::{Fields, UNREADABLE};
use super::json::{Json, Object};
use super::raw;
use super::refusal::{Untranslatable, refuse};

/// Most calls whose results are awaited at once; finding one walks over them.
const OPEN_MAX: usize = 1024;

#[derive(Default)]
pub(super) struct Calls<'a> {
    made: usize,
    /// Tool and id of the calls without a result so far, oldest first.
    open: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> Calls<'a> {
    /// The user has spoken: calls without a result will get none.
    pub fn forget(&mut self) {
        self.open.clear();
    }

    /// The calls of one message.
    pub fn make(&mut self, calls: &'a RawValue, place: &str) -> Result<Json<'a>, Untranslatable> {
        let place = format!("{place}.tool_calls");
        let Some(calls) = raw::items(calls) else {
            return refuse(&place, "it is not a list");
        };
        let calls = calls.into_iter().enumerate();
        Ok(Json::List(calls.map(|(at, call)| self.call(call, &format!("{place}[{at}]"))).collect::<Result<_, _>>()?))
    }

    fn call(&mut self, call: &'a RawValue, place: &str) -> Result<Json<'a>, Untranslatable> {
        let mut fields = Fields::of(call).ok_or_else(|| Untranslatable::new(place, UNREADABLE))?;
        let mut function = fields.take_fields("function");
        let Some(name) = function.take_filled("name").and_then(raw::text) else {
            return refuse(place, "it names no function");
        };
        let arguments = arguments(function.take("arguments"), place)?;
        // There is one type, and the order says what an index does.
        for known in ["index", "type"] {
            fields.take(known);
            function.take(known);
        }
        let id = fields.take_filled("id").and_then(raw::text).unwrap_or_else(|| format!("call{:05}", self.made).into());
        self.made += 1;
        if self.open.len() == OPEN_MAX {
            return refuse(place, "more than 1,024 calls wait for their results");
        }
        self.open.push((name.clone(), id.clone()));

        let mut to = Object::of([("name", Json::Text(name)), ("arguments", arguments)]);
        to.put_rest(function).or_else(|name| refuse(&format!("{place}.function.{name}"), "it is said twice"))?;
        let mut to = Object::of([("id", Json::Text(id)), ("type", Json::text("function")), ("function", to.into())]);
        to.put_rest(fields).or_else(|name| refuse(&format!("{place}.{name}"), "it is said twice"))?;
        Ok(to.into())
    }

    /// The id of the call that a result belongs to: the oldest open one of that tool.
    pub fn answered(
        &mut self,
        id: Option<&'a RawValue>,
        tool: Option<&'a RawValue>,
        place: &str,
    ) -> Result<Json<'a>, Untranslatable> {
        let id = id.and_then(raw::text);
        let tool = tool.and_then(raw::text);
        let at = self.open.iter().position(|(name, open)| match (&id, &tool) {
            (Some(id), _) => open == id,
            (None, Some(tool)) => name == tool,
            (None, None) => true,
        });
        let open = at.map(|at| self.open.remove(at).1);
        match id.or(open) {
            Some(id) => Ok(Json::Text(id)),
            None => refuse(place, "no earlier message calls the tool whose result this is"),
        }
    }
}

/// Arguments as JSON text, spelled as they were.
fn arguments<'a>(arguments: Option<&'a RawValue>, place: &str) -> Result<Json<'a>, Untranslatable> {
    match arguments {
        None => Ok(Json::text("{}")),
        Some(raw) if raw::is_text(raw) => Ok(Json::Raw(raw)),
        Some(raw) if raw::is_object(raw) => Ok(Json::text(raw.get())),
        Some(_) => refuse(&format!("{place}.function.arguments"), "it is not an object"),
    }
}
