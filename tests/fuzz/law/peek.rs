//! `wire::peek::peek`: what a body asks for.
//!
//! The model's place is its place: what stands there means the model, and another name put there is the
//! only thing that changes. Sizes are bounded, spelling does not matter, and what is no body is refused.

use serde_json::value::RawValue;
use warmgate::routing::ask::{Ask, Endpoint};
use warmgate::routing::chain::mix;
use warmgate::routing::runner::RunnerOptions;
use warmgate::wire::cache_salt;
use warmgate::wire::edit::edited;
use warmgate::wire::peek::{PeekError, Peeked, peek, spell};

use crate::target::{Target, law};

pub static TARGET: Target = Target {
    name: "peek",
    words: &[
        "\"model\":",
        "\"Model\":",
        "\"name\":",
        "\"m\"",
        "\"messages\":",
        "\"role\":\"user\"",
        "\"content\":",
        "\"prompt\":",
        "\"input\":",
        "\"tools\":[{}]",
        "\"options\":{\"num_ctx\":1}",
        "\"images\":[\"iVBORw0KGgo\"]",
        "\"tool_calls\":",
        "\"system\":",
        "\"context\":[1]",
        "\"stream\":true",
        "\"previous_response_id\":\"r\"",
        "\"prompt_cache_key\":\"k\"",
        "{\"type\":\"text\",\"text\":\"x\"}",
        "\"documents\":",
        "\"cache_salt\":",
        ",",
    ],
    check,
};

/// As in `wire::peek`; names go into headers and logs.
const NAME_BYTES_MAX: usize = 256;

/// Four lists of steps and two single ones (`wire::steps`).
const LINKS_MAX: usize = 4 * 16 * 1024 + 2;

fn check(input: &[u8]) -> Result<u64, String> {
    let mut end = 0;
    for endpoint in Endpoint::ALL.into_iter().filter(|endpoint| !endpoint.takes_form()) {
        let found = peek(input, endpoint);
        end = mix(
            end,
            match &found {
                Ok(peeked) => {
                    holds(input, endpoint, peeked).map_err(|words| format!("{endpoint:?}: {words}"))?;
                    shape(&peeked.ask)
                }
                Err(error) => {
                    law(error.to_string().len() < 300, || format!("{endpoint:?}: long words: {error}"))?;
                    kind(error)
                }
            },
        );
    }
    Ok(end)
}

fn holds(input: &[u8], endpoint: Endpoint, peeked: &Peeked) -> Result<(), String> {
    let Peeked { ask, model_span, option_spans, usage_edit, names_others: _ } = peeked;
    for (option, span) in option_spans {
        let value = input.get(span.clone()).and_then(|value| serde_json::from_slice::<&RawValue>(value).ok());
        law(value.is_some(), || format!("{option:?} has no value at {span:?}"))?;
    }
    if let Some(edit) = usage_edit {
        let asking = edited(input, vec![edit.clone()]).ok_or("an edit outside the body")?;
        let again = peek(&asking, endpoint);
        law(again.as_ref().is_ok_and(|again| again.ask == *ask && again.usage_edit.is_none()), || {
            format!("asked for counts it asks for something else: {again:?}")
        })?;
    }
    let salted = edited(input, cache_salt::edits(input, |own| format!("S{own}"))).ok_or("a salt outside the body")?;
    let again = peek(&salted, endpoint).map(|peeked| peeked.ask);
    law(again.as_ref() == Ok(ask), || format!("with a salt it asks for something else: {again:?}"))?;
    let named = input.get(model_span.clone()).ok_or_else(|| format!("{model_span:?} is not in the body"))?;
    let means: Option<String> = serde_json::from_slice(named).ok();
    // Half a character in the name is read as U+FFFD, which serde_json does not do.
    let halved = String::from_utf8_lossy(named).to_ascii_lowercase().contains("\\ud");
    law(means.as_deref() == Some(&ask.model) || halved, || {
        format!("{:?} stands at {model_span:?}, not {:?}", String::from_utf8_lossy(named), ask.model)
    })?;
    let fit = ask.model.len() <= NAME_BYTES_MAX && !ask.model.trim().is_empty();
    law(fit && !ask.model.bytes().any(|byte| byte.is_ascii_control()), || format!("a name {:?}", ask.model))?;

    let links = &ask.chain.links;
    law(links.len() <= LINKS_MAX, || format!("{} links", links.len()))?;
    law(links.is_empty() || (ask.chain.root as usize) < links.len(), || format!("root {}", ask.chain.root))?;
    law(links.is_sorted_by_key(|link| link.tokens), || "a prompt shrinks along its chain".into())?;
    law(links.last().is_none_or(|last| last.tokens <= ask.prompt_tokens), || "a chain of more than all".into())?;
    law(endpoint.is_conversation() || links.is_empty(), || "a chain without a conversation".into())?;

    let other = Ask { model: "other \"m\" \\ é".into(), ..ask.clone() };
    let exchanged = [&input[..model_span.start], &spell(endpoint, &other.model), &input[model_span.end..]].concat();
    let again = peek(&exchanged, endpoint).map(|peeked| peeked.ask);
    // A name over the other spelling of `name` is looked at only while `model` says nothing.
    law(again == Ok(other), || format!("another name changes more than the name: {again:?}"))?;

    let again = peek(&spaced(input), endpoint).map(|peeked| peeked.ask);
    law(again.as_ref() == Ok(ask), || format!("blanks change what is asked: {again:?}"))
}

/// The same JSON with blanks between its parts.
fn spaced(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() * 2);
    let (mut in_text, mut escaped) = (false, false);
    for &byte in json {
        let between = !in_text && matches!(byte, b'{' | b'}' | b'[' | b']' | b',' | b':');
        if between {
            out.extend_from_slice(b"\n\t");
        }
        out.push(byte);
        if between {
            out.push(b' ');
        }
        if byte == b'"' && !escaped {
            in_text = !in_text;
        }
        escaped = in_text && byte == b'\\' && !escaped;
    }
    out
}

fn shape(ask: &Ask) -> u64 {
    let flags = [
        ask.stream,
        ask.needs.vision,
        ask.needs.tools,
        ask.runner != RunnerOptions::default(),
        ask.max_output_tokens.is_some(),
        ask.session_name.is_some(),
        ask.previous_response.is_some(),
    ];
    let flags = flags.iter().fold(1, |all, flag| all << 1 | u64::from(*flag));
    let sizes = mix(ask.chain.links.len().ilog2_or_zero(), ask.prompt_tokens.ilog2() as u64);
    mix(mix(flags, sizes), u64::from(ask.chain.root.min(3)))
}

trait Log2 {
    fn ilog2_or_zero(self) -> u64;
}

impl Log2 for usize {
    fn ilog2_or_zero(self) -> u64 {
        self.checked_ilog2().map_or(0, |log| u64::from(log) + 1)
    }
}

fn kind(error: &PeekError) -> u64 {
    match error {
        PeekError::Empty => 1,
        PeekError::NotJson { .. } => 2,
        PeekError::TooDeep => 3,
        PeekError::NotObject => 4,
        PeekError::NotForm => 5,
        PeekError::NoModel { .. } => 6,
        PeekError::EmptyModel { .. } => 7,
        PeekError::ModelNotText { .. } => 8,
        PeekError::ModelTwice => 9,
        PeekError::ModelTooLong { .. } => 10,
        PeekError::ModelUnprintable { .. } => 11,
        PeekError::TooMany => 12,
        PeekError::OddPart => 13,
    }
}
