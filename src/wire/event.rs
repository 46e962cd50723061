//! One JSON message of an answer, read for what it tells about the run.
//!
//! Knows every dialect's and llama.cpp's spellings at once, because they do not overlap and a server
//! may answer in another's. Only the fields needed are taken; everything else is skipped unparsed. A
//! message that is not JSON to its end tells nothing.

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess};

use super::prompt::Ids;
use super::speech::{Choices, Delta, Filled, Speech};
use super::usage::{Counts, Usage};
use super::value::{Scalar, Take, Taker, key, scalar};
use crate::routing::chain::{hash_text, mix};

const NANOS_PER_MILLI: u64 = 1_000_000;

/// What one message told. Absent is unknown, never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    pub usage: Usage,
    pub load_ms: Option<u64>,
    /// The link that a request which sends this `context` back begins with.
    pub context: Option<u64>,
    /// Hash of the id under which OpenAI's Responses keeps this answer.
    pub response_id: Option<u64>,
    /// The answer ends here.
    pub is_last: bool,
    pub is_error: bool,
    /// Some of the model's output is in it.
    pub has_content: bool,
}

impl Reading {
    /// It tells nothing, or only that something was said.
    pub fn is_usual(&self) -> bool {
        Reading { has_content: false, ..*self } == Reading::default()
    }
}

/// Reads a message; `None` if it is not JSON.
pub(super) fn read(json: &[u8]) -> Option<Reading> {
    let mut from = serde_json::Deserializer::from_slice(json);
    let reading = Take(Message).deserialize(&mut from).ok()?;
    from.end().ok()?;
    Some(reading)
}

/// What a message's own `type` says, where it has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sort {
    is_last: bool,
    is_error: bool,
}

impl Sort {
    fn of(name: &str) -> Sort {
        match name {
            "message_stop"
            | "response.completed"
            | "response.incomplete"
            | "transcript.text.done"
            | "speech.audio.done" => Sort { is_last: true, is_error: false },
            "response.failed" => Sort { is_last: true, is_error: true },
            "error" => Sort { is_last: false, is_error: true },
            _ => Sort::default(),
        }
    }
}

/// What kind of object it is, where it says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Object {
    #[default]
    Other,
    Response,
    /// SGLang's errors are flat: {"object":"error","message":...}.
    Error,
}

impl Object {
    fn of(name: &str) -> Object {
        match name {
            "response" => Object::Response,
            "error" => Object::Error,
            _ => Object::Other,
        }
    }
}

struct Message;

#[derive(Clone, Copy)]
enum Field {
    Type,
    Object,
    Id,
    Done,
    PromptEvalCount,
    EvalCount,
    LoadDuration,
    Error,
    Usage,
    Timings,
    Choices,
    Message,
    Response,
    Delta,
    Text,
    Context,
    Other,
}

impl Field {
    fn of(key: &str) -> Field {
        match key {
            "type" => Field::Type,
            "object" => Field::Object,
            "id" => Field::Id,
            "done" => Field::Done,
            "prompt_eval_count" => Field::PromptEvalCount,
            "eval_count" => Field::EvalCount,
            "load_duration" => Field::LoadDuration,
            "error" => Field::Error,
            "usage" => Field::Usage,
            "timings" => Field::Timings,
            "choices" => Field::Choices,
            "message" => Field::Message,
            "response" => Field::Response,
            "delta" => Field::Delta,
            "thinking" | "content" | "output" => Field::Text,
            "context" => Field::Context,
            _ => Field::Other,
        }
    }
}

impl<'de> Taker<'de> for Message {
    type Out = Reading;

    fn fields<A: MapAccess<'de>>(self, mut fields: A) -> Result<Reading, A::Error> {
        let mut told = Told::default();
        while let Some(field) = fields.next_key_seed(key(Field::of))? {
            told.take(field, &mut fields)?;
        }
        Ok(told.reading())
    }
}

/// A message while it is read.
#[derive(Default)]
struct Told {
    reading: Reading,
    usage: Usage,
    timings: Usage,
    sort: Sort,
    object: Object,
    id: Option<u64>,
}

impl Told {
    fn take<'de, A: MapAccess<'de>>(&mut self, field: Field, fields: &mut A) -> Result<(), A::Error> {
        let reading = &mut self.reading;
        match field {
            Field::Type => self.sort = fields.next_value_seed(scalar(|s| s.text().map(Sort::of)))?.unwrap_or_default(),
            Field::Object => {
                self.object = fields.next_value_seed(scalar(|s| s.text().map(Object::of)))?.unwrap_or_default();
            }
            Field::Id => self.id = fields.next_value_seed(scalar(|s| s.text().map(hash_text)))?,
            Field::Done => reading.is_last |= fields.next_value_seed(scalar(|s| s == Scalar::Bool(true)))?,
            Field::PromptEvalCount => reading.usage.prompt = fields.next_value_seed(scalar(|s| s.count_u32()))?,
            Field::EvalCount => reading.usage.output = fields.next_value_seed(scalar(|s| s.count_u32()))?,
            Field::LoadDuration => {
                reading.load_ms = fields.next_value_seed(scalar(|s| s.count()))?.map(|ns| ns / NANOS_PER_MILLI);
            }
            Field::Error => reading.is_error |= fields.next_value_seed(Take(Filled))?,
            Field::Usage => self.usage = fields.next_value_seed(Take(Counts))?,
            Field::Timings => self.timings = fields.next_value_seed(Take(Counts))?,
            Field::Choices => {
                let chosen = fields.next_value_seed(Take(Choices))?;
                reading.has_content |= chosen.says;
                reading.is_last |= chosen.finished;
            }
            Field::Message => {
                let said = fields.next_value_seed(Take(Speech))?;
                reading.has_content |= said.anything;
                self.usage = self.usage.or(said.usage);
            }
            Field::Response => self.answer(fields.next_value_seed(Take(Answer))?),
            Field::Delta => reading.has_content |= fields.next_value_seed(Take(Delta))?,
            Field::Text => reading.has_content |= fields.next_value_seed(Take(Filled))?,
            Field::Context => {
                let mut ids = Ids::default();
                fields.next_value_seed(Take(&mut ids))?;
                reading.context = ids.step().map(|step| mix(0, step.hash));
            }
            Field::Other => drop(fields.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }

    fn answer(&mut self, answer: Reading) {
        self.usage = self.usage.or(answer.usage);
        self.reading.response_id = self.reading.response_id.or(answer.response_id);
        self.reading.is_error |= answer.is_error;
        self.reading.has_content |= answer.has_content;
    }

    fn reading(self) -> Reading {
        let mut reading = self.reading;
        reading.usage = reading.usage.or(self.usage).or(self.timings);
        reading.is_last |= self.sort.is_last;
        reading.is_error |= self.sort.is_error || self.object == Object::Error;
        if self.object == Object::Response {
            reading.response_id = self.id;
        }
        reading
    }
}

/// `response`: with Ollama a text, in an event of OpenAI's Responses the answer as far as it has come.
struct Answer;

impl<'de> Taker<'de> for Answer {
    type Out = Reading;

    fn scalar(self, scalar: Scalar<'_>) -> Reading {
        Reading { has_content: scalar.is_filled(), ..Reading::default() }
    }

    fn fields<A: MapAccess<'de>>(self, fields: A) -> Result<Reading, A::Error> {
        // Its output came in the events before.
        Ok(Reading { has_content: false, ..Message.fields(fields)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: Reading) {
        assert_eq!(read(json.as_bytes()), Some(expected));
    }

    fn usage(prompt: impl Into<Option<u32>>, cached: impl Into<Option<u32>>, output: impl Into<Option<u32>>) -> Usage {
        Usage { prompt: prompt.into(), cached: cached.into(), output: output.into() }
    }

    #[test]
    fn acc_02_ollama_tells_counts_on_its_last_line() {
        check(
            r#"{"message":{"role":"assistant","content":""},"done":true,"load_duration":2500000000,"eval_count":31}"#,
            Reading { usage: usage(None, None, 31), load_ms: Some(2500), is_last: true, ..Reading::default() },
        );
        check(
            r#"{"embeddings":[[0.1]],"prompt_eval_count":7}"#,
            Reading { usage: usage(7, None, None), ..Reading::default() },
        );
        check(
            r#"{"done":true,"prompt_eval_count":0}"#,
            Reading { usage: usage(0, None, None), is_last: true, ..Reading::default() },
        );
    }

    #[test]
    fn deltas_with_output_are_told_from_those_without() {
        let content = Reading { has_content: true, ..Reading::default() };
        check(r#"{"model":"m","message":{"role":"assistant","content":"Hi"},"done":false}"#, content);
        check(r#"{"response":"Hi","done":false}"#, content);
        check(r#"{"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}"#, content);
        check(r#"{"choices":[{"index":0,"delta":{"reasoning_content":"Hm"},"finish_reason":null}]}"#, content);
        check(r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0}]}}],"usage":null}"#, content);
        check(r#"{"choices":[{"index":0,"text":"Hi"}]}"#, content);
        check(r#"{"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#, Reading::default());
    }

    #[test]
    fn usage_has_several_spellings() {
        check(
            r#"{"usage":{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":8}}}"#,
            Reading { usage: usage(9, 8, 4), ..Reading::default() },
        );
        check(
            r#"{"choices":[{"finish_reason":"stop"}],"timings":{"cache_n":236,"prompt_n":1,"predicted_n":35}}"#,
            Reading { usage: usage(237, 236, 35), is_last: true, ..Reading::default() },
        );
    }

    #[test]
    fn str_11_errors_have_several_shapes() {
        let error = Reading { is_error: true, ..Reading::default() };
        check(r#"{"error":"runner stopped"}"#, error);
        check(r#"{"error":{"message":"x","code":500}}"#, error);
        check(r#"{"object":"error","message":"x"}"#, Reading { has_content: false, ..error });
        check(r#"{"error":null}"#, Reading::default());
        check(r#"{"message":{"content":"{\"error\":1}"}}"#, Reading { has_content: true, ..Reading::default() });
    }

    #[test]
    fn anthropics_events_tell_counts_first_and_last() {
        check(
            r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":3,"cache_read_input_tokens":100,"output_tokens":1}}}"#,
            Reading { usage: usage(103, 100, 1), ..Reading::default() },
        );
        check(
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":15}}"#,
            Reading { usage: usage(None, None, 15), ..Reading::default() },
        );
        check(r#"{"type":"message_stop"}"#, Reading { is_last: true, ..Reading::default() });
        let error = Reading { is_error: true, ..Reading::default() };
        check(r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, error);
        let content = Reading { has_content: true, ..Reading::default() };
        check(r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}"#, content);
        check(
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":""}}"#,
            Reading::default(),
        );
        check(r#"{"type":"ping"}"#, Reading::default());
        check(
            r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":1}}"#,
            Reading { usage: usage(9, None, 1), ..content },
        );
    }

    #[test]
    fn a_response_tells_its_id_and_its_end() {
        let id = Some(hash_text("resp_1"));
        let event = |name: &str, rest: &str| {
            let response = format!(r#"{{"id":"resp_1","object":"response","error":null,"usage":null{rest}}}"#);
            format!(r#"{{"type":"response.{name}","response":{response}}}"#)
        };
        let begun = Reading { response_id: id, ..Reading::default() };
        check(&event("created", ""), begun);
        let counts =
            r#","usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":8},"output_tokens":4},"output":[{}]"#;
        let ended = Reading { usage: usage(9, 8, 4), is_last: true, ..begun };
        check(&event("completed", counts), ended);
        check(&event("incomplete", counts), ended);
        check(&event("failed", r#","error":{"code":"x"}"#), Reading { is_last: true, is_error: true, ..begun });
        let error = Reading { is_error: true, ..Reading::default() };
        check(r#"{"type":"error","code":"x","message":"y","param":null}"#, error);
        let content = Reading { has_content: true, ..Reading::default() };
        check(r#"{"type":"response.output_text.delta","item_id":"a","delta":"Hi"}"#, content);
        check(
            r#"{"id":"resp_1","object":"response","status":"completed","output":[{}],"usage":{"input_tokens":9,"output_tokens":4}}"#,
            Reading { usage: usage(9, None, 4), has_content: true, ..begun },
        );
        // Other objects have ids too.
        check(r#"{"id":"chatcmpl-1","object":"chat.completion.chunk"}"#, Reading::default());
    }

    #[test]
    fn half_a_message_tells_nothing() {
        for json in ["", "{", r#"{"done":true"#, r#"{"done":true} x"#, "[DONE]", "\u{1}"] {
            assert_eq!(read(json.as_bytes()), None, "{json}");
        }
    }
}
