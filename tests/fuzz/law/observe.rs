//! `wire::observe` and the scanners of events and lines under it, and `wire::error`'s last frame.
//!
//! However a stream is cut into chunks and however its lines end, it tells the same. Wherever it breaks
//! off, an error frame put there is seen as an error.

use warmgate::routing::ask::{Dialect, Endpoint};
use warmgate::routing::chain::{hash_text, mix};
use warmgate::wire::error;
use warmgate::wire::observe::{Observed, Observer, Place};

use crate::chance::Chance;
use crate::target::{Target, law};

pub static TARGET: Target = Target {
    name: "observe",
    words: &[
        "data: ",
        "data:",
        "event: error\n",
        "event: response.completed\n",
        ": ping\n\n",
        "[DONE]",
        "\r\n\r\n",
        "\r\r",
        "id: 1\n",
        "retry: 3\n",
        "{\"done\":true}",
        "{\"error\":\"x\"}",
        "\"usage\":{\"prompt_tokens\":9}",
        "\"choices\":[{\"delta\":{\"content\":\"a\"}}]",
        "\"finish_reason\":\"stop\"",
        "\"type\":\"message_stop\"",
        "\"context\":[1,2]",
        "\"load_duration\":1",
        "\u{feff}",
    ],
    check,
};

const EVENTS: &str = "text/event-stream";
const LINES: &str = "application/x-ndjson";
const WHOLE: &str = "application/json; charset=utf-8";

const ENDPOINTS: [Endpoint; 6] = [
    Endpoint::OllamaChat,
    Endpoint::OllamaGenerate,
    Endpoint::OpenAiChat,
    Endpoint::OpenAiResponses,
    Endpoint::AnthropicMessages,
    Endpoint::OpenAiEmbeddings,
];

fn check(input: &[u8]) -> Result<u64, String> {
    let mut chance = Chance::new(hash_text(&String::from_utf8_lossy(input)));
    let mut end = 0;
    for content_type in [EVENTS, LINES, WHOLE] {
        let endpoint = *chance.pick(&ENDPOINTS);
        let what = |words: &str| format!("{endpoint:?}, {content_type}: {words}");
        let (seen, place) = observe(endpoint, content_type, [input]);
        for chunks in [input.chunks(1).collect(), cut(input, &mut chance)] {
            let told = observe(endpoint, content_type, chunks);
            law(told == (seen, place), || what(&format!("in chunks {told:?}, in one {:?}", (seen, place))))?;
        }
        if !input.contains(&b'\r') {
            for line_end in [&b"\r\n"[..], b"\r"] {
                let other = input.split(|byte| *byte == b'\n').collect::<Vec<_>>().join(line_end);
                let (told, _) = observe(endpoint, content_type, [&other[..]]);
                law(told == seen, || what(&format!("with {line_end:?} {told:?}, with LF {seen:?}")))?;
            }
        }
        let sent = &input[..chance.below(input.len() + 1)];
        ends_with_an_error(sent, endpoint, content_type, &String::from_utf8_lossy(input))
            .map_err(|words| what(&words))?;
        end = mix(end, shape(&seen, place));
    }
    Ok(end)
}

fn observe<'a>(
    endpoint: Endpoint,
    content_type: &str,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> (Observed, Place) {
    let mut observer = Observer::new(endpoint, content_type);
    chunks.into_iter().for_each(|chunk| observer.feed(chunk));
    let place = observer.place();
    (observer.finish(), place)
}

/// Chunks of any length, empty ones too.
pub fn cut<'a>(mut bytes: &'a [u8], chance: &mut Chance) -> Vec<&'a [u8]> {
    let mut chunks = Vec::new();
    while !bytes.is_empty() {
        let longest = if chance.one_in(4) { bytes.len() } else { 9 };
        let (chunk, rest) = bytes.split_at(chance.below(longest + 1).min(bytes.len()));
        chunks.push(chunk);
        bytes = rest;
    }
    chunks
}

/// Where a stream is cut, an error frame is seen as one, and it is JSON whatever its words.
fn ends_with_an_error(sent: &[u8], endpoint: Endpoint, content_type: &str, words: &str) -> Result<(), String> {
    // A frame always has words.
    let words: String = "cut: ".chars().chain(words.chars().take(200)).collect();
    for dialect in [Dialect::Ollama, Dialect::OpenAi, Dialect::Anthropic] {
        let body = error::body(dialect, 502, &words);
        law(serde_json::from_slice::<serde_json::Value>(&body).is_ok(), || format!("no JSON for {words:?}"))?;
        let place = observe(endpoint, content_type, [sent]).1;
        let Some(frame) = error::frame(dialect, content_type, place, &words) else { continue };
        let (seen, place) = observe(endpoint, content_type, [sent, &frame]);
        law(seen.error, || format!("a cut at {} and {dialect:?}'s frame are no error", sent.len()))?;
        law(place == Place::Between, || format!("{dialect:?}'s frame leaves a message open"))?;
    }
    Ok(())
}

fn shape(seen: &Observed, place: Place) -> u64 {
    let flags = [
        seen.complete,
        seen.error,
        seen.prompt_tokens.is_some(),
        seen.cached_tokens.is_some(),
        seen.output_tokens.is_some(),
        seen.load_ms.is_some(),
        seen.context.is_some(),
        seen.response_id.is_some(),
        place == Place::Between,
    ];
    let flags = flags.iter().fold(1, |all, flag| all << 1 | u64::from(*flag));
    mix(flags, seen.content_events.checked_ilog2().map_or(0, |log| u64::from(log) + 1))
}
