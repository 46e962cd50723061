//! The engine's request while it is written: what all three kinds have in common.
//!
//! Each step takes its fields out of the client's request. What no step took goes through as it is; a field
//! by a name that was written already is refused, since it would say one thing twice.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::fields::Fields;
use super::json::{Json, Object};
use super::raw;
use super::refusal::{Untranslatable, refuse};
use super::{Call, Translated, options};
use crate::routing::ask::Endpoint;

pub(super) struct Draft<'a> {
    pub body: Object<'a>,
    pub dropped: Vec<&'static str>,
    to: Endpoint,
    fields: Fields<'a>,
}

/// Steer how long and how a model stays in Ollama's memory, or ask to cut what is too long, which
/// such an engine refuses aloud instead.
const HARMLESS: [&str; 3] = ["keep_alive", "truncate", "shift"];

impl<'a> Draft<'a> {
    pub fn new(to: Endpoint, model: &'a str, mut fields: Fields<'a>) -> Draft<'a> {
        // What the client calls the model was read already; `name` is the older spelling.
        fields.take("model");
        fields.take("name");
        let body = Object::of([("model", Json::text(model))]);
        Draft { body, dropped: Vec::new(), to, fields }
    }

    /// Takes a field of the client's request.
    pub fn take(&mut self, name: &str) -> Option<&'a RawValue> {
        self.fields.take(name)
    }

    /// Takes a field of the client's request that says something.
    pub fn take_filled(&mut self, name: &str) -> Option<&'a RawValue> {
        self.fields.take_filled(name)
    }

    /// Fields that have no translation; one that says nothing does no harm.
    pub fn refuse(&mut self, fields: &[(&str, &'static str)]) -> Result<(), Untranslatable> {
        fields.iter().try_for_each(|(name, why)| match self.take_filled(name) {
            Some(_) => refuse(name, why),
            None => Ok(()),
        })
    }

    /// A request with nothing for the model to read: Ollama loads the model then, or unloads it where it is
    /// to be kept for no time, in whichever unit.
    pub fn nothing(mut self) -> Result<Translated, Untranslatable> {
        let kept = self.fields.take("keep_alive").map(|raw| raw::text(raw).unwrap_or(Cow::Borrowed(raw.get())));
        match kept.map(|kept| kept.trim_end_matches(char::is_alphabetic).parse()) {
            Some(Ok(0.0)) => refuse("keep_alive", "such an engine cannot unload its model"),
            _ => Ok(Translated::NothingToRun),
        }
    }

    pub fn stream(&mut self) -> Result<(), Untranslatable> {
        let stream = match self.fields.take("stream") {
            Some(raw) => raw::flag(raw).ok_or_else(|| Untranslatable::new("stream", "it is neither true nor false"))?,
            None => true,
        };
        self.body.put("stream", Json::Bool(stream));
        if stream {
            // Without it, the last line would have no counts.
            let options = Object::of([("include_usage", Json::Bool(true))]);
            self.body.put("stream_options", options.into());
        }
        Ok(())
    }

    pub fn options(&mut self) -> Result<(), Untranslatable> {
        match self.fields.take("options") {
            Some(raw) => options::translate(raw, self),
            None => Ok(()),
        }
    }

    /// The request, and with it all fields that nobody took.
    pub fn finish(mut self) -> Result<Translated, Untranslatable> {
        for name in HARMLESS {
            if self.fields.take(name).is_some() {
                self.dropped.push(name);
            }
        }
        if let Err(name) = self.body.put_rest(self.fields) {
            return refuse(&name, "another field of the request says the same in Ollama's words; keep one");
        }
        Ok(Translated::Call(Call { path: self.to.path(), body: self.body.to_bytes(), dropped: self.dropped }))
    }
}
