//! Counts of tokens, in every engine's spelling.
//!
//! OpenAI's chats count the prompt as a whole and say in the details how much was cached; so do its
//! Responses, in other words. Anthropic and llama.cpp's timings count apart what was read from the
//! cache. Here a prompt is always the whole of it.

use serde::de::{IgnoredAny, MapAccess};

use super::value::{Take, Taker, key, scalar};

/// Counts of tokens. Absent is unknown, never zero.
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

/// Takes an object of counts.
pub(super) struct Counts;

#[derive(Clone, Copy)]
enum Count {
    Prompt,
    Cached,
    /// Prompt tokens that were not read from the cache, if others were.
    Fresh,
    CacheRead,
    CacheWritten,
    Output,
    Details,
    Other,
}

impl Count {
    fn of(key: &str) -> Count {
        match key {
            "prompt_tokens" => Count::Prompt,
            "cached_tokens" => Count::Cached,
            "prompt_n" | "input_tokens" => Count::Fresh,
            "cache_n" | "cache_read_input_tokens" => Count::CacheRead,
            "cache_creation_input_tokens" => Count::CacheWritten,
            "completion_tokens" | "predicted_n" | "output_tokens" => Count::Output,
            "prompt_tokens_details" | "input_tokens_details" => Count::Details,
            _ => Count::Other,
        }
    }
}

impl<'de> Taker<'de> for Counts {
    type Out = Usage;

    fn fields<A: MapAccess<'de>>(self, mut fields: A) -> Result<Usage, A::Error> {
        let (mut usage, mut details) = (Usage::default(), Usage::default());
        let (mut fresh, mut read, mut written) = (None, None, None);
        while let Some(count) = fields.next_key_seed(key(Count::of))? {
            let slot = match count {
                Count::Prompt => &mut usage.prompt,
                Count::Cached => &mut usage.cached,
                Count::Fresh => &mut fresh,
                Count::CacheRead => &mut read,
                Count::CacheWritten => &mut written,
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
        let sum = |fresh: u32| fresh.saturating_add(read.unwrap_or(0)).saturating_add(written.unwrap_or(0));
        usage.prompt = usage.prompt.or(fresh.map(sum));
        usage.cached = usage.cached.or(read).or(details.cached);
        Ok(usage)
    }
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeSeed;

    use super::*;

    #[track_caller]
    fn check(json: &str, prompt: Option<u32>, cached: Option<u32>, output: Option<u32>) {
        let usage = Take(Counts).deserialize(&mut serde_json::Deserializer::from_str(json)).unwrap();
        assert_eq!(usage, Usage { prompt, cached, output });
    }

    #[test]
    fn a_prompt_is_the_whole_of_it() {
        check(
            r#"{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":8}}"#,
            Some(9),
            Some(8),
            Some(4),
        );
        check(
            r#"{"input_tokens":9,"input_tokens_details":{"cached_tokens":8},"output_tokens":4,"output_tokens_details":{"reasoning_tokens":3}}"#,
            Some(9),
            Some(8),
            Some(4),
        );
        check(
            r#"{"input_tokens":3,"cache_creation_input_tokens":20,"cache_read_input_tokens":100,"output_tokens":1}"#,
            Some(123),
            Some(100),
            Some(1),
        );
        check(r#"{"cache_n":236,"prompt_n":1,"predicted_n":35}"#, Some(237), Some(236), Some(35));
        check(r#"{"input_tokens":3,"output_tokens":1}"#, Some(3), None, Some(1));
    }

    #[test]
    fn what_is_no_count_is_unknown() {
        check(r#"{"prompt_tokens":-1,"completion_tokens":"x","prompt_tokens_details":null}"#, None, None, None);
        check(r#"{"cache_read_input_tokens":5,"input_tokens":null}"#, None, Some(5), None);
        check("[1]", None, None, None);
    }
}
