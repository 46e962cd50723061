//! What a managing call's body asks for: which model, made from what, of which blobs.
//!
//! Keys are read in any case, as Ollama reads them; a key that decides and comes twice is refused, since
//! two readers could take it for two things. The rest of the body is the node's to judge.

use std::ops::Range;

use serde_json::Value;
use serde_json::value::RawValue;
use thiserror::Error;

use super::key::folded;
use super::listed::Listed;
use super::peek::span;
use crate::routing::ask::Endpoint;
use crate::routing::uploads::Digest;

/// A managing call's body, as far as it decides where the call goes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Managed {
    /// The model, in a copy the source.
    pub model: String,
    /// Where its JSON string stands, quotes included.
    pub model_span: Range<usize>,
    pub stream: bool,
    /// The model that a create starts from.
    pub from: Option<String>,
    /// The other models that it names: what a create starts from, what a copy makes.
    pub others: Vec<String>,
    /// The blobs that a create is made of.
    pub blobs: Vec<Digest>,
}

/// The key under which a call names its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// `model`, or its older spelling `name`.
    Model,
    Source,
}

/// All are the client's to mend: status 400.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unreadable {
    #[error("the request body is not a JSON object; send one that names a model")]
    NotObject,
    #[error("the request has no `{0}`; name a model")]
    Missing(&'static str),
    #[error("the request has `{0}` twice; send it once")]
    Twice(&'static str),
    #[error("the request's `{0}` is not a string of at most {NAME_LIMIT} printable bytes")]
    NotName(&'static str),
    #[error("a digest is `sha256:` and 64 hexadecimal digits")]
    NotDigest,
    #[error("the request names more than {BLOBS_MAX} blobs")]
    TooManyBlobs,
}

/// Longest name of a model, in bytes.
const NAME_LIMIT: usize = 256;

/// Blobs of one create.
const BLOBS_MAX: usize = 1024;

pub fn read(bytes: &[u8], key: Key) -> Result<Managed, Unreadable> {
    let fields = Fields(serde_json::from_slice(bytes).map_err(|_| Unreadable::NotObject)?);
    let (model, raw) = match key {
        Key::Source => fields.name("source")?.ok_or(Unreadable::Missing("source"))?,
        Key::Model => match fields.name("model")? {
            Some(found) => found,
            None => fields.name("name")?.ok_or(Unreadable::Missing("model"))?,
        },
    };
    let stream = fields.one("stream")?.is_none_or(|raw| raw.get() != "false");
    let from = fields.name("from")?.map(|(name, _)| name);
    let made = fields.name("destination")?.map(|(name, _)| name).filter(|_| key == Key::Source);
    let others = from.clone().into_iter().chain(made).collect();
    Ok(Managed { model, model_span: span(bytes, raw), stream, from, others, blobs: fields.blobs()? })
}

/// What is said of by name.
struct Fields<'a>(Listed<'a>);

impl<'a> Fields<'a> {
    fn one(&self, key: &'static str) -> Result<Option<&'a RawValue>, Unreadable> {
        let mut named = self.0.named(key);
        let first = named.next();
        if named.next().is_some() { Err(Unreadable::Twice(key)) } else { Ok(first) }
    }

    /// A name that says something.
    fn name(&self, key: &'static str) -> Result<Option<(String, &'a RawValue)>, Unreadable> {
        let Some(raw) = self.one(key)?.filter(|raw| raw.get() != "null") else { return Ok(None) };
        let name: String = serde_json::from_str(raw.get()).map_err(|_| Unreadable::NotName(key))?;
        if name.len() > NAME_LIMIT || name.bytes().any(|byte| byte.is_ascii_control()) {
            return Err(Unreadable::NotName(key));
        }
        Ok((!name.trim().is_empty()).then_some((name, raw)))
    }

    /// The digests under `files` and `adapters`.
    fn blobs(&self) -> Result<Vec<Digest>, Unreadable> {
        let mut blobs = Vec::new();
        for key in ["files", "adapters"] {
            let Some(raw) = self.one(key)?.filter(|raw| raw.get() != "null") else { continue };
            let files: Listed = serde_json::from_str(raw.get()).map_err(|_| Unreadable::NotDigest)?;
            for (_, raw) in files.0 {
                let digest: String = serde_json::from_str(raw.get()).map_err(|_| Unreadable::NotDigest)?;
                blobs.push(Digest::parse(&digest).ok_or(Unreadable::NotDigest)?);
                if blobs.len() > BLOBS_MAX {
                    return Err(Unreadable::TooManyBlobs);
                }
            }
        }
        Ok(blobs)
    }
}

/// A request to unload is small; a larger body is not looked at.
const UNLOAD_BYTES_MAX: usize = 16 * 1024;

/// Whether an inference call only asks for the model to be unloaded: nothing to answer, and
/// `keep_alive` zero.
pub fn is_unload(bytes: &[u8], endpoint: Endpoint) -> bool {
    let empty: fn(&Value) -> bool = match endpoint {
        Endpoint::OllamaGenerate => |body| field(body, "prompt").is_none_or(|prompt| prompt.is_null() || prompt == ""),
        Endpoint::OllamaChat => |body| {
            field(body, "messages").is_none_or(|said| said.is_null() || said.as_array().is_some_and(Vec::is_empty))
        },
        _ => return false,
    };
    if bytes.len() > UNLOAD_BYTES_MAX {
        return false;
    }
    let Ok(body) = serde_json::from_slice::<Value>(bytes) else { return false };
    field(&body, "keep_alive").is_some_and(is_zero) && empty(&body)
}

fn field<'a>(body: &'a Value, key: &str) -> Option<&'a Value> {
    body.as_object()?.iter().find(|(name, _)| folded(name) == key).map(|(_, value)| value)
}

/// A duration as Ollama reads it: seconds, or Go's text such as `0`, `0s` or `0h0m`.
fn is_zero(keep_alive: &Value) -> bool {
    match keep_alive {
        Value::Number(seconds) => seconds.as_f64() == Some(0.0),
        Value::String(text) => {
            let zeros = |c: char| matches!(c, '0' | '.' | '+' | '-');
            text.contains('0') && text.chars().all(|c| zeros(c) || matches!(c, 'h' | 'm' | 's' | 'u' | 'µ' | 'n'))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, key: Key, expected: Result<&str, Unreadable>) {
        let read = read(body.as_bytes(), key);
        let model = read.as_ref().map(|managed| managed.model.as_str()).map_err(Clone::clone);
        assert_eq!(model, expected, "{body}");
        if let Ok(managed) = &read {
            let spelled: String = serde_json::from_str(&body[managed.model_span.clone()]).unwrap();
            assert_eq!(spelled, managed.model);
        }
    }

    #[test]
    fn the_model_is_under_model_or_name() {
        check(r#"{"model":"moss:7b"}"#, Key::Model, Ok("moss:7b"));
        check(r#"{"name":"moss:7b"}"#, Key::Model, Ok("moss:7b"));
        check(r#" {"name":"fern","model":"mo\u0073s"}"#, Key::Model, Ok("moss"));
        check(r#"{"model":"","Name":"moss"}"#, Key::Model, Ok("moss"));
        check(r#"{"source":"moss","destination":"fern"}"#, Key::Source, Ok("moss"));
        check(r#"{"destination":"fern"}"#, Key::Source, Err(Unreadable::Missing("source")));
        check(r#"{"model":null}"#, Key::Model, Err(Unreadable::Missing("model")));
        check(r#"{"model":"a","MODEL":"b"}"#, Key::Model, Err(Unreadable::Twice("model")));
        check(r#"{"source":"a","ſource":"b"}"#, Key::Source, Err(Unreadable::Twice("source")));
        check(r#"{"ſource":"moss","destination":"fern"}"#, Key::Source, Ok("moss"));
        check(r#"{"model":1}"#, Key::Model, Err(Unreadable::NotName("model")));
        check(r#"{"model":"a\nb"}"#, Key::Model, Err(Unreadable::NotName("model")));
        check("[]", Key::Model, Err(Unreadable::NotObject));
        check("", Key::Model, Err(Unreadable::NotObject));
        check(&"[".repeat(100_000), Key::Model, Err(Unreadable::NotObject));
    }

    #[test]
    fn a_create_names_what_it_is_made_of() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let body = format!(
            r#"{{"model":"m","from":"moss","stream":false,"files":{{"a":"{digest}"}},"adapters":{{"b":"{digest}"}}}}"#
        );
        let managed = read(body.as_bytes(), Key::Model).unwrap();
        assert_eq!((managed.from.as_deref(), managed.stream, managed.blobs.len()), (Some("moss"), false, 2));
        assert_eq!(managed.blobs[0].to_string(), digest);
        for files in [r#"{"a":"sha256:../../etc"}"#, r#"{"a":1}"#, "[]"] {
            let body = format!(r#"{{"model":"m","files":{files}}}"#);
            assert_eq!(read(body.as_bytes(), Key::Model), Err(Unreadable::NotDigest), "{files}");
        }
    }

    #[track_caller]
    fn check_unload(endpoint: Endpoint, body: &str, expected: bool) {
        assert_eq!(is_unload(body.as_bytes(), endpoint), expected, "{body}");
    }

    #[test]
    fn nothing_to_say_and_no_time_to_keep_is_an_unload() {
        for zero in ["0", "0.0", "-0", r#""0""#, r#""0s""#, r#""0m""#, r#""0h0m0s""#] {
            let generate = format!(r#"{{"model":"m","keep_alive":{zero}}}"#);
            check_unload(Endpoint::OllamaGenerate, &generate, true);
            check_unload(Endpoint::OllamaChat, &generate, true);
            check_unload(Endpoint::OllamaEmbed, &generate, false);
        }
        for other in ["null", "5", "-1", r#""""#, r#""5m""#, r#""10s""#, r#""s""#, "false", "[0]"] {
            check_unload(Endpoint::OllamaGenerate, &format!(r#"{{"model":"m","keep_alive":{other}}}"#), false);
        }
        check_unload(Endpoint::OllamaGenerate, r#"{"model":"m","prompt":"","keep_alive":0}"#, true);
        check_unload(Endpoint::OllamaGenerate, r#"{"model":"m","prompt":"hi","keep_alive":0}"#, false);
        check_unload(Endpoint::OllamaChat, r#"{"model":"m","messages":[],"keep_alive":0}"#, true);
        check_unload(Endpoint::OllamaChat, r#"{"model":"m","messages":[{}],"keep_alive":0}"#, false);
        check_unload(Endpoint::OllamaGenerate, r#"{"model":"m"}"#, false);
        check_unload(Endpoint::OllamaGenerate, "no", false);
    }
}
