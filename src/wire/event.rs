//! One JSON message of an answer, read for what it tells about the run.
//!
//! Knows Ollama's, OpenAI's and llama.cpp's spellings at once, because they do not overlap and a server
//! may answer in another's. Only the fields needed are taken; everything else is skipped unparsed. A
//! message that is not JSON to its end tells nothing.

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess};

use super::prompt::Ids;
use super::value::{Scalar, Take, Taker, key, scalar};
use crate::routing::chain::mix;

const NANOS_PER_MILLI: u64 = 1_000_000;

/// What one message told. Absent is unknown, never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    pub usage: Usage,
    pub load_ms: Option<u64>,
    /// The link that a request which sends this `context` back begins with.
    pub context: Option<u64>,
    /// The answer ends here.
    pub is_last: bool,
    pub is_error: bool,
    /// Some of the model's output is in it.
    pub has_content: bool,
}

/// Counts of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub prompt: Option<u32>,
    pub cached: Option<u32>,
    pub output: Option<u32>,
}

impl Usage {
    /// These counts, and where one is unknown the other's.
    pub fn or(self, other: Usage) -> Usage {
        Usage {
            prompt: self.prompt.or(other.prompt),
            cached: self.cached.or(other.cached),
            output: self.output.or(other.output),
        }
    }
}

/// Reads a message; `None` if it is not JSON.
pub(super) fn read(json: &[u8]) -> Option<Reading> {
    let mut from = serde_json::Deserializer::from_slice(json);
    let reading = Take(Message).deserialize(&mut from).ok()?;
    from.end().ok()?;
    Some(reading)
}

struct Message;

#[derive(Clone, Copy)]
enum Field {
    Done,
    PromptEvalCount,
    EvalCount,
    LoadDuration,
    Error,
    Object,
    Usage,
    Timings,
    Choices,
    Message,
    Text,
    Context,
    Other,
}

impl Field {
    fn of(key: &str) -> Field {
        match key {
            "done" => Field::Done,
            "prompt_eval_count" => Field::PromptEvalCount,
            "eval_count" => Field::EvalCount,
            "load_duration" => Field::LoadDuration,
            "error" => Field::Error,
            "object" => Field::Object,
            "usage" => Field::Usage,
            "timings" => Field::Timings,
            "choices" => Field::Choices,
            "message" => Field::Message,
            "response" | "thinking" => Field::Text,
            "context" => Field::Context,
            _ => Field::Other,
        }
    }
}

impl<'de> Taker<'de> for Message {
    type Out = Reading;

    fn fields<A: MapAccess<'de>>(self, mut fields: A) -> Result<Reading, A::Error> {
        let mut told = Reading::default();
        let (mut usage, mut timings) = (Usage::default(), Usage::default());
        while let Some(field) = fields.next_key_seed(key(Field::of))? {
            match field {
                Field::Done => told.is_last |= fields.next_value_seed(scalar(|s| s == Scalar::Bool(true)))?,
                Field::PromptEvalCount => told.usage.prompt = fields.next_value_seed(scalar(|s| s.count_u32()))?,
                Field::EvalCount => told.usage.output = fields.next_value_seed(scalar(|s| s.count_u32()))?,
                Field::LoadDuration => {
                    told.load_ms = fields.next_value_seed(scalar(|s| s.count()))?.map(|ns| ns / NANOS_PER_MILLI);
                }
                Field::Error => told.is_error |= fields.next_value_seed(Take(Filled))?,
                // SGLang's errors are flat: {"object":"error","message":...}.
                Field::Object => told.is_error |= fields.next_value_seed(scalar(|s| s == Scalar::Text("error")))?,
                Field::Usage => usage = fields.next_value_seed(Take(Counts))?,
                Field::Timings => timings = fields.next_value_seed(Take(Counts))?,
                Field::Choices => fields.next_value_seed(Take(Choices(&mut told)))?,
                Field::Message => told.has_content |= fields.next_value_seed(Take(Speech))?,
                Field::Text => told.has_content |= fields.next_value_seed(Take(Filled))?,
                Field::Context => {
                    let mut ids = Ids::default();
                    fields.next_value_seed(Take(&mut ids))?;
                    told.context = ids.step().map(|step| mix(0, step.hash));
                }
                Field::Other => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        told.usage = told.usage.or(usage).or(timings);
        Ok(told)
    }
}

/// OpenAI's `usage`, its details, and llama.cpp's `timings`: objects of counts, whatever they are called.
struct Counts;

#[derive(Clone, Copy)]
enum Count {
    Prompt,
    Cached,
    /// Prompt tokens that were not cached.
    Fresh,
    Output,
    Details,
    Other,
}

impl Count {
    fn of(key: &str) -> Count {
        match key {
            "prompt_tokens" => Count::Prompt,
            "cached_tokens" | "cache_n" => Count::Cached,
            "prompt_n" => Count::Fresh,
            "completion_tokens" | "predicted_n" => Count::Output,
            "prompt_tokens_details" => Count::Details,
            _ => Count::Other,
        }
    }
}

impl<'de> Taker<'de> for Counts {
    type Out = Usage;

    fn fields<A: MapAccess<'de>>(self, mut fields: A) -> Result<Usage, A::Error> {
        let (mut usage, mut details, mut fresh) = (Usage::default(), Usage::default(), None);
        while let Some(count) = fields.next_key_seed(key(Count::of))? {
            let slot = match count {
                Count::Prompt => &mut usage.prompt,
                Count::Cached => &mut usage.cached,
                Count::Fresh => &mut fresh,
                Count::Output => &mut usage.output,
                Count::Details => {
                    details = fields.next_value_seed(Take(Counts))?;
                    continue;
                }
                Count::Other => {
                    fields.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            *slot = fields.next_value_seed(scalar(|s| s.count_u32()))?;
        }
        usage.cached = usage.cached.or(details.cached);
        usage.prompt = usage.prompt.or(fresh.map(|n: u32| n.saturating_add(usage.cached.unwrap_or(0))));
        Ok(usage)
    }
}

/// OpenAI's `choices`, of an event or of a whole answer.
struct Choices<'a>(&'a mut Reading);

impl<'de> Taker<'de> for Choices<'_> {
    type Out = ();

    fn items<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Take(Choice(self.0)))?.is_some() {}
        Ok(())
    }
}

struct Choice<'a>(&'a mut Reading);

#[derive(Clone, Copy)]
enum ChoiceField {
    Speech,
    Text,
    FinishReason,
    Other,
}

impl ChoiceField {
    fn of(key: &str) -> ChoiceField {
        match key {
            "delta" | "message" => ChoiceField::Speech,
            "text" => ChoiceField::Text,
            "finish_reason" => ChoiceField::FinishReason,
            _ => ChoiceField::Other,
        }
    }
}

impl<'de> Taker<'de> for Choice<'_> {
    type Out = ();

    fn fields<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(field) = fields.next_key_seed(key(ChoiceField::of))? {
            match field {
                ChoiceField::Speech => self.0.has_content |= fields.next_value_seed(Take(Speech))?,
                ChoiceField::Text => self.0.has_content |= fields.next_value_seed(Take(Filled))?,
                ChoiceField::FinishReason => self.0.is_last |= fields.next_value_seed(Take(Filled))?,
                ChoiceField::Other => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Whether a message or a delta of one says anything.
struct Speech;

impl<'de> Taker<'de> for Speech {
    type Out = bool;

    fn fields<A: MapAccess<'de>>(self, mut fields: A) -> Result<bool, A::Error> {
        let mut says = false;
        while let Some(names_the_speaker) = fields.next_key_seed(key(|name| name == "role"))? {
            if names_the_speaker {
                fields.next_value::<IgnoredAny>()?;
            } else {
                says |= fields.next_value_seed(Take(Filled))?;
            }
        }
        Ok(says)
    }
}

/// Whether a value is anything but null, false or empty.
struct Filled;

impl<'de> Taker<'de> for Filled {
    type Out = bool;

    fn scalar(self, scalar: Scalar<'_>) -> bool {
        scalar.is_filled()
    }

    fn items<A: SeqAccess<'de>>(self, mut items: A) -> Result<bool, A::Error> {
        let mut any = false;
        while items.next_element::<IgnoredAny>()?.is_some() {
            any = true;
        }
        Ok(any)
    }

    fn fields<A: MapAccess<'de>>(self, mut fields: A) -> Result<bool, A::Error> {
        let mut any = false;
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            any = true;
        }
        Ok(any)
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
        check(
            r#"{"usage":{"prompt_tokens":-1,"completion_tokens":"x","prompt_tokens_details":null}}"#,
            Reading::default(),
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
    fn half_a_message_tells_nothing() {
        for json in ["", "{", r#"{"done":true"#, r#"{"done":true} x"#, "[DONE]", "\u{1}"] {
            assert_eq!(read(json.as_bytes()), None, "{json}");
        }
    }
}
