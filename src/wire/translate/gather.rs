//! Tool calls out of the pieces in which a stream tells them.
//!
//! OpenAI streams a call's arguments as fragments of JSON text; Ollama's clients expect whole calls with
//! arguments as an object. Pieces belong together by their index. Where a server gives none, or the same to
//! all, a new id or a name begins a new call.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::fields::Fields;
use super::json::{Json, Object};
use super::raw;

/// Most calls of one answer.
const CALLS_MAX: usize = 128;

/// Most bytes of all their ids, names and arguments together.
const BYTES_MAX: usize = 1024 * 1024;

const UNREADABLE: Problem = Problem::Node("the node sent a tool call that cannot be read");
const TOO_LONG: Problem = Problem::Model("the model's tool calls are too long to be translated");
const NOT_AN_OBJECT: Problem = Problem::Model("the model called a tool with arguments that are not a JSON object");

/// Why calls cannot be told, by whose doing that is: what a model writes is no fault of the node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    Node(&'static str),
    Model(&'static str),
}

#[derive(Debug, Default)]
pub(super) struct Gather {
    calls: Vec<Call>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Call {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl Gather {
    /// Adds the pieces of one message.
    pub fn add(&mut self, pieces: &RawValue) -> Result<(), Problem> {
        let pieces = raw::items(pieces).ok_or(UNREADABLE)?;
        pieces.into_iter().try_for_each(|piece| self.piece(Fields::of(piece).ok_or(UNREADABLE)?))
    }

    /// The calls so far, whole, in Ollama's form. None are left.
    pub fn take(&mut self) -> Result<Option<Json<'static>>, Problem> {
        self.bytes = 0;
        let calls = std::mem::take(&mut self.calls).into_iter().enumerate();
        let calls: Vec<_> = calls.map(|(at, call)| call.finish(at)).collect::<Result<_, _>>()?;
        Ok((!calls.is_empty()).then_some(Json::List(calls)))
    }

    /// The same of an answer that was cut off: a call that is not whole was not made.
    pub fn take_whole(&mut self) -> Result<Option<Json<'static>>, Problem> {
        self.calls.retain(Call::is_whole);
        self.take()
    }

    fn piece(&mut self, mut piece: Fields<'_>) -> Result<(), Problem> {
        let index = piece.take("index").and_then(raw::count);
        let mut function = piece.take_fields("function");
        let (id, name) = (read(piece.take("id"))?, read(function.take("name"))?);
        let arguments = function.take("arguments");
        let arguments = match arguments {
            // Some servers do not put it into a text.
            Some(object) if raw::is_object(object) => Cow::Borrowed(object.get()),
            other => read(other)?,
        };
        self.bytes += id.len() + name.len() + arguments.len();
        if self.bytes > BYTES_MAX {
            return Err(TOO_LONG);
        }
        let call = self.call_of(index, &id, &name)?;
        if call.id.is_empty() {
            call.id = id.into_owned();
        }
        if call.name.is_empty() {
            call.name = name.into_owned();
        }
        call.arguments += &arguments;
        Ok(())
    }

    /// The call that a piece goes on with, or a new one.
    fn call_of(&mut self, index: Option<u64>, id: &str, name: &str) -> Result<&mut Call, Problem> {
        let known = match index {
            Some(_) => self.calls.iter().rposition(|call| call.index == index),
            None if name.is_empty() => self.calls.len().checked_sub(1),
            None => None,
        };
        let at = match known.filter(|&at| id.is_empty() || self.calls[at].id.is_empty() || self.calls[at].id == id) {
            Some(at) => at,
            None if self.calls.len() == CALLS_MAX => return Err(TOO_LONG),
            None => {
                self.calls.push(Call { index, ..Call::default() });
                self.calls.len() - 1
            }
        };
        Ok(&mut self.calls[at])
    }
}

impl Call {
    fn is_whole(&self) -> bool {
        serde_json::from_str::<&RawValue>(&self.arguments).is_ok_and(raw::is_object)
    }

    fn finish(self, at: usize) -> Result<Json<'static>, Problem> {
        let arguments = if self.arguments.trim_ascii().is_empty() { "{}".to_owned() } else { self.arguments };
        let arguments = RawValue::from_string(arguments).map_err(|_| NOT_AN_OBJECT)?;
        if !raw::is_object(&arguments) {
            return Err(NOT_AN_OBJECT);
        }
        let function = Object::of([
            ("index", Json::Count(at as u64)),
            ("name", Json::text(self.name)),
            ("arguments", Json::Made(arguments)),
        ]);
        let mut call = Object::default();
        call.put_some("id", (!self.id.is_empty()).then(|| Json::text(self.id)));
        call.put("function", function.into());
        Ok(call.into())
    }
}

fn read(text: Option<&RawValue>) -> Result<Cow<'_, str>, Problem> {
    text.map_or(Ok(Cow::Borrowed("")), |raw| raw::text(raw).ok_or(UNREADABLE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(messages: &[&str]) -> Result<String, Problem> {
        let mut gather = Gather::default();
        for message in messages {
            gather.add(serde_json::from_str(message).unwrap())?;
        }
        Ok(serde_json::to_string(&gather.take()?.unwrap_or(Json::Null)).unwrap())
    }

    #[track_caller]
    fn check(messages: &[&str], expected: &[(&str, &str, &str)]) {
        let calls = expected.iter().enumerate().map(|(at, (id, name, arguments))| {
            format!(r#"{{"id":"{id}","function":{{"index":{at},"name":"{name}","arguments":{arguments}}}}}"#)
        });
        assert_eq!(gathered(messages), Ok(format!("[{}]", calls.collect::<Vec<_>>().join(","))));
    }

    #[test]
    fn acc_03_two_parallel_calls_one_piece_without_index() {
        check(
            &[
                r#"[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}]"#,
                r#"[{"index":0,"function":{"arguments":"{\"x\": "}}]"#,
                r#"[{"index":1,"id":"b","function":{"name":"g"}}]"#,
                r#"[{"function":{"arguments":"{\"y\":"}}]"#,
                r#"[{"index":1,"function":{"arguments":"[2]}"}},{"index":0,"function":{"arguments":"\"\\ud83e\\udd80\"}"}}]"#,
            ],
            &[("a", "f", r#"{"x": "\ud83e\udd80"}"#), ("b", "g", r#"{"y":[2]}"#)],
        );
    }

    #[test]
    fn calls_that_share_an_index_are_told_apart_by_id() {
        check(
            &[
                r#"[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]"#,
                r#"[{"index":0,"id":"b","function":{"name":"f","arguments":{"x":1}}}]"#,
            ],
            &[("a", "f", "{}"), ("b", "f", r#"{"x":1}"#)],
        );
    }

    #[test]
    fn whole_calls_without_index_are_separate() {
        check(
            &[
                r#"[{"id":"a","function":{"name":"f","arguments":" "}},{"id":"b","function":{"name":"g","arguments":"{}"}}]"#,
            ],
            &[("a", "f", "{}"), ("b", "g", "{}")],
        );
    }

    #[test]
    fn broken_arguments_and_endless_ones_fail() {
        for arguments in [r#"{\"x\":"#, "[1]", "x"] {
            let piece = format!(r#"[{{"index":0,"function":{{"name":"f","arguments":"{arguments}"}}}}]"#);
            assert_eq!(gathered(&[&piece]), Err(NOT_AN_OBJECT));
        }
        let long = format!(r#"[{{"index":0,"function":{{"arguments":"{}"}}}}]"#, "x".repeat(BYTES_MAX / 2 + 1));
        assert_eq!(gathered(&[&long, &long]), Err(TOO_LONG));
        let many = format!("[{}]", vec![r#"{"id":"a","function":{"name":"f"}}"#; CALLS_MAX + 1].join(","));
        assert_eq!(gathered(&[&many]), Err(TOO_LONG));
        assert_eq!(gathered(&["[1]"]), Err(UNREADABLE));
    }
}
