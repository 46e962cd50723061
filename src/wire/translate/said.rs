//! One message of an engine's answer: an event of a stream, or all of a plain answer.
//!
//! Texts stay as they were written. Only the choice of index 0 is looked at; a request never asks for more.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::fault;
use super::fields::Fields;
use super::raw;

#[derive(Debug, Default)]
pub(super) struct Said<'a> {
    /// It speaks for the model, whatever it says.
    pub has_choice: bool,
    pub content: Option<&'a RawValue>,
    pub thinking: Option<&'a RawValue>,
    pub tool_calls: Option<&'a RawValue>,
    pub logprobs: Option<&'a RawValue>,
    /// Why the model stopped; it has, if it is there.
    pub finish: Option<Cow<'a, str>>,
    pub usage: Usage,
    pub error: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub prompt: Option<u64>,
    pub output: Option<u64>,
}

impl Usage {
    pub fn or(self, earlier: Usage) -> Usage {
        Usage { prompt: self.prompt.or(earlier.prompt), output: self.output.or(earlier.output) }
    }

    pub fn take(fields: &mut Fields<'_>) -> Usage {
        let mut counts = fields.take_fields("usage");
        let mut count = |name| counts.take(name).and_then(raw::count);
        Usage { prompt: count("prompt_tokens"), output: count("completion_tokens") }
    }
}

/// Reads a message; `None` if it has not the shape of one.
pub(super) fn read(json: &[u8]) -> Option<Said<'_>> {
    let mut fields = Fields::read(json)?;
    if let Some(error) = fault::take(&mut fields) {
        return Some(Said { error: Some(error), ..Said::default() });
    }
    let mut said = Said { usage: Usage::take(&mut fields), ..Said::default() };
    let choices = fields.take("choices").map_or(Some(Vec::new()), raw::items)?;
    let choices = choices.into_iter().map(Fields::of).collect::<Option<Vec<_>>>()?;
    // A server that numbers none means the first.
    let at = choices.iter().position(|choice| choice.get("index").and_then(raw::count) == Some(0)).unwrap_or(0);
    if let Some(choice) = choices.into_iter().nth(at) {
        said.has_choice = true;
        said.choice(choice)?;
    }
    Some(said)
}

impl<'a> Said<'a> {
    fn choice(&mut self, mut choice: Fields<'a>) -> Option<()> {
        let speech = choice.take("delta").or(choice.take("message"));
        let mut speech = speech.map_or(Some(Fields::default()), Fields::of)?;
        self.content = speech.take_filled("content").or(speech.take_filled("refusal")).or(choice.take_filled("text"));
        self.thinking = speech.take_filled("reasoning_content").or(speech.take_filled("reasoning"));
        self.tool_calls = speech.take_filled("tool_calls");
        self.logprobs = choice.take_fields("logprobs").take_filled("content");
        self.finish = choice.take_filled("finish_reason").and_then(raw::text);
        let texts = [self.content, self.thinking];
        texts.into_iter().flatten().all(raw::is_text).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deltas_messages_and_texts_are_read_alike() {
        for json in [
            r#"{"choices":[{"delta":{"role":"assistant","content":"Hi \ud83d"}}]}"#,
            r#"{"choices":[{"index":0,"message":{"content":"Hi \ud83d","refusal":null}},{"message":{"content":"x"}}]}"#,
            r#"{"choices":[{"text":"Hi \ud83d","finish_reason":null}],"usage":null}"#,
            r#"{"choices":[{"message":{"content":null,"refusal":"Hi \ud83d"}}]}"#,
        ] {
            assert_eq!(read(json.as_bytes()).unwrap().content.unwrap().get(), r#""Hi \ud83d""#, "{json}");
        }
    }

    #[test]
    fn of_several_choices_the_one_of_index_0_counts_wherever_it_stands() {
        let json =
            r#"{"choices":[{"index":1,"delta":{"content":"B"}},{"index":0,"delta":{"content":"A"}},{"index":0}]}"#;
        assert_eq!(read(json.as_bytes()).unwrap().content.unwrap().get(), r#""A""#);
    }

    #[test]
    fn odd_shapes_are_told_from_quiet_messages() {
        for json in ["x", "[]", r#"{"choices":{}}"#, r#"{"choices":[1]}"#, r#"{"choices":[{"delta":{"content":[1]}}]}"#]
        {
            assert!(read(json.as_bytes()).is_none(), "{json}");
        }
        for json in ["{}", r#"{"choices":null}"#, r#"{"choices":[]}"#, r#"{"choices":[{"delta":null}],"error":null}"#] {
            assert!(read(json.as_bytes()).unwrap().content.is_none(), "{json}");
        }
    }

    #[test]
    fn acc_02_absent_counts_are_unknown() {
        let usage = |json: &str| read(json.as_bytes()).unwrap().usage;
        assert_eq!(
            usage(r#"{"usage":{"prompt_tokens":9,"completion_tokens":"x"}}"#),
            Usage { prompt: Some(9), output: None }
        );
        assert_eq!(usage(r#"{"usage":null}"#), Usage::default());
    }
}
