//! `wire::translate::request`: an Ollama body for an engine that speaks OpenAI.
//!
//! What comes out is one JSON object whose members stand there once, that names the model it was told,
//! and whose texts are the client's or are known words of the translation.

use std::collections::HashSet;

use serde_json::value::RawValue;
use warmgate::routing::ask::Endpoint;
use warmgate::routing::chain::{hash_text, mix};
use warmgate::wire::translate::{self, Translated};

use super::literals::{contains, literals, meant};
use crate::target::{Target, law};

pub static TARGET: Target = Target {
    name: "request",
    words: &[
        "\"model\":\"m\"",
        "\"messages\":[",
        "{\"role\":\"user\",\"content\":\"x\"}",
        "\"images\":[\"iVBORw0KGgoAAAAN\"]",
        "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{}}}]",
        "{\"role\":\"tool\",\"tool_name\":\"f\"}",
        "\"options\":{\"num_predict\":9,\"stop\":[\"x\"]}",
        "\"format\":\"json\"",
        "\"think\":\"high\"",
        "\"stream\":false",
        "\"raw\":true",
        "\"prompt\":\"x\"",
        "\"input\":[\"x\"]",
        "\"keep_alive\":0",
        "\"max_tokens\":1",
        "\"tools\":[{}]",
        "\"thinking\":\"hm\"",
        "\"id\":\"a\"",
        ",",
        "null",
    ],
    check,
};

const MODEL: &str = "up/stream \"m\"";

/// Words that a translation adds of its own.
#[rustfmt::skip]
const OWN: [&str; 43] = [
    "model", "messages", "role", "content", "stream", "stream_options", "include_usage", "max_tokens", "prompt",
    "input", "encoding_format", "float", "user", "system", "type", "text", "image_url", "url", "tool_calls", "id",
    "function", "name", "arguments", "{}", "tool_call_id", "reasoning_content", "reasoning", "reasoning_effort",
    "chat_template_kwargs", "enable_thinking", "thinking", "response_format", "json_object", "json_schema", "schema",
    "strict", "answer", "tools", "repetition_penalty", "repeat_penalty", "", "frequency_penalty", MODEL,
];

fn check(input: &[u8]) -> Result<u64, String> {
    let mut end = 0;
    for endpoint in [Endpoint::OllamaChat, Endpoint::OllamaGenerate, Endpoint::OllamaEmbed, Endpoint::OllamaEmbeddings]
    {
        end = mix(
            end,
            match translate::request(endpoint, input, MODEL) {
                Ok(Translated::Call(call)) => {
                    holds(input, &call.body).map_err(|words| format!("{endpoint:?}: {words}"))?;
                    mix(hash_text(call.path), call.dropped.len() as u64)
                }
                Ok(Translated::NothingToRun) => 1,
                Err(refused) => {
                    law(refused.field.chars().count() <= 80, || {
                        format!("{endpoint:?}: a long name {}", refused.field)
                    })?;
                    // Places differ by number only; those would all be new ends.
                    let place: String = refused.field.chars().filter(|c| c.is_ascii_alphabetic()).take(12).collect();
                    mix(hash_text(refused.why), place.len() as u64)
                }
            },
        );
    }
    Ok(end)
}

fn holds(input: &[u8], body: &[u8]) -> Result<(), String> {
    let shown = || String::from_utf8_lossy(body).chars().take(2000).collect::<String>();
    let members: Members = serde_json::from_slice(body).map_err(|error| format!("{error} in {}", shown()))?;
    let mut names = HashSet::new();
    law(members.0.iter().all(|(name, _)| names.insert(name)), || format!("a member twice in {}", shown()))?;
    let model = members.0.iter().find(|(name, _)| name == "model").map(|(_, value)| meant(value.get().as_bytes()));
    law(model.as_deref() == Some(MODEL), || format!("the model is {model:?}"))?;
    let theirs: HashSet<&[u8]> = literals(input).into_iter().collect();
    for literal in literals(body).into_iter().filter(|literal| !theirs.contains(literal)) {
        let text = meant(literal);
        let is_call = text.strip_prefix("call").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
        let data = text.strip_prefix("data:image/").and_then(|url| url.split_once(";base64,")).map(|(_, data)| data);
        let said = data.unwrap_or(&text);
        let known = OWN.contains(&&*text) || is_call || contains(input, said.as_bytes());
        law(known || theirs.iter().any(|theirs| meant(theirs) == said), || {
            format!("nobody said {text:?}: {}", shown())
        })?;
    }
    Ok(())
}

struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> serde::Deserialize<'de> for Members {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Members, D::Error> {
        struct Reader;
        impl<'de> serde::de::Visitor<'de> for Reader {
            type Value = Members;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(Reader)
    }
}
