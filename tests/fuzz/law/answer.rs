//! `wire::translate::Answer`: an engine's answer for a client that speaks Ollama.
//!
//! However the answer is cut into chunks, the client gets the same bytes: whole JSON, a line at a time in
//! a stream, `done:true` once and only when it is complete, and no word that the engine did not say.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use warmgate::routing::ask::Endpoint;
use warmgate::routing::chain::{hash_text, mix};
use warmgate::wire::translate::{Answer, End, Took};

use super::literals::{contains, meant};
use super::observe::cut;
use crate::chance::Chance;
use crate::target::{Target, law};

pub static TARGET: Target = Target {
    name: "answer",
    words: &[
        "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
        "data: [DONE]\n\n",
        "\"finish_reason\":\"stop\"",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}}]}\n\n",
        "\"reasoning_content\":\"hm\"",
        "\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}",
        "\"error\":\"x\"",
        "\"index\":0",
        "\"embedding\":[0.5]",
        "\"data\":[",
        ": ping\n\n",
        "event: error\n",
        "\r\n\r\n",
        "\"text\":\"a\"",
        "\"logprobs\":{\"content\":[\n]}",
    ],
    check,
};

const EVENTS: &str = "text/event-stream; charset=utf-8";
const WHOLE: &str = "application/json";
const AT: &str = "2026-01-02T03:04:05.6Z";
const MODEL: &str = "moss:7b";

fn check(input: &[u8]) -> Result<u64, String> {
    let mut chance = Chance::new(hash_text(&String::from_utf8_lossy(input)));
    let mut end = 0;
    for (endpoint, status, content_type) in [
        (Endpoint::OllamaChat, 200, EVENTS),
        (Endpoint::OllamaGenerate, 200, EVENTS),
        (Endpoint::OllamaChat, 200, WHOLE),
        (Endpoint::OllamaGenerate, 200, WHOLE),
        (Endpoint::OllamaEmbed, 200, WHOLE),
        (Endpoint::OllamaEmbeddings, 200, WHOLE),
        (Endpoint::OllamaChat, 404, WHOLE),
    ] {
        let what = |words: String| format!("{endpoint:?}, {status}, {content_type}: {words}");
        let (told, complete) = translated(endpoint, status, content_type, [input]);
        for chunks in [input.chunks(1).collect(), cut(input, &mut chance)] {
            let again = translated(endpoint, status, content_type, chunks);
            law(again == (told.clone(), complete), || {
                what(format!("in chunks {}", String::from_utf8_lossy(&again.0)))
            })?;
        }
        let lines = if content_type == EVENTS {
            is_stream(&told, complete, input)
        } else {
            is_whole(&told, complete, status, input)
        };
        end = mix(end, mix(u64::from(complete), lines.map_err(what)?));
    }
    Ok(end)
}

fn translated<'a>(
    endpoint: Endpoint,
    status: u16,
    content_type: &str,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<u8>, bool) {
    let mut answer = Answer::new(endpoint, MODEL, status, content_type);
    let mut told: Vec<u8> = chunks.into_iter().flat_map(|chunk| answer.feed(chunk, AT)).collect();
    let took = Took { first_token: Duration::from_millis(5), total: Duration::from_millis(9) };
    let ending = answer.finish(AT, took);
    told.extend(ending.bytes);
    (told, ending.end == End::Whole)
}

#[derive(Deserialize)]
struct Told<'a> {
    #[serde(default)]
    done: bool,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    message: Option<&'a RawValue>,
    response: Option<&'a RawValue>,
}

fn is_stream(told: &[u8], complete: bool, input: &[u8]) -> Result<u64, String> {
    let text = std::str::from_utf8(told).map_err(|error| error.to_string())?;
    law(text.ends_with('\n'), || "the last line is open".into())?;
    let lines: Vec<&str> = text.lines().collect();
    let mut kinds = 0;
    for (at, line) in lines.iter().enumerate() {
        let object: Told = serde_json::from_str(line).map_err(|error| format!("{error} in {line}"))?;
        let is_last = at + 1 == lines.len();
        law(!object.done || (is_last && complete), || format!("done in line {at} of {}", lines.len()))?;
        law(object.error.is_none() || (is_last && !complete), || format!("an error in line {at} of {}", lines.len()))?;
        law(object.error.is_some() || object.message.or(object.response).is_some(), || format!("nothing in {line}"))?;
        was_said(&object, input)?;
        kinds = mix(
            kinds,
            u64::from(object.done) << 2
                | u64::from(object.error.is_some()) << 1
                | u64::from(line.contains("tool_calls")),
        );
    }
    // Beyond some lines, more of them are no other end.
    Ok(if lines.len() > 5 { lines.len().ilog2().into() } else { kinds })
}

fn is_whole(told: &[u8], complete: bool, status: u16, input: &[u8]) -> Result<u64, String> {
    if !complete {
        // Nothing, or an error where the model wrote what cannot be translated.
        let is_error = serde_json::from_slice(told).is_ok_and(|told: Told| told.error.is_some() && !told.done);
        let fits = status == 200 && (told.trim_ascii().is_empty() || is_error);
        return law(fits, || "a body of half an answer".into()).map(|()| 1);
    }
    let object: Told =
        serde_json::from_slice(told).map_err(|error| format!("{error} in {}", String::from_utf8_lossy(told)))?;
    law((status == 200) == object.error.is_none(), || "an error that is none".into())?;
    was_said(&object, input)?;
    Ok(2 + u64::from(object.done))
}

/// Texts and thoughts stand in the engine's answer as they are; tool calls are put together anew.
fn was_said(object: &Told<'_>, input: &[u8]) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Message<'a> {
        role: &'a RawValue,
        #[serde(borrow)]
        content: Option<&'a RawValue>,
        thinking: Option<&'a RawValue>,
    }
    let message: Option<Message> =
        object.message.map(|raw| serde_json::from_str(raw.get())).transpose().map_err(|error| error.to_string())?;
    let mut texts = vec![object.response];
    if let Some(message) = message {
        law(meant(message.role.get().as_bytes()) == "assistant", || "another role".into())?;
        texts.extend([message.content, message.thinking]);
    }
    for text in texts.into_iter().flatten().map(RawValue::get) {
        law(text == "\"\"" || contains(input, text.as_bytes()), || format!("nobody said {text}"))?;
    }
    Ok(())
}
