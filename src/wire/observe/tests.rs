//! Streams in every form and cut, and what is learnt of them.

mod native;

use proptest::prelude::*;

use super::*;
use crate::wire::error::frame;
use crate::wire::lines::EVENT_LIMIT;
use crate::wire::peek::peek;
use crate::wire::whole::BODY_LIMIT;

const NDJSON: &str = "application/x-ndjson";
const SSE: &str = "text/event-stream; charset=utf-8";
const JSON: &str = "application/json";

fn observe(endpoint: Endpoint, content_type: &str, chunks: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Observed {
    let mut observer = Observer::new(endpoint, content_type);
    chunks.into_iter().for_each(|chunk| observer.feed(chunk.as_ref()));
    observer.finish()
}

#[track_caller]
fn check_chat(content_type: &str, answer: &str, expected: Observed) {
    let endpoint = if content_type == NDJSON { Endpoint::OllamaChat } else { Endpoint::OpenAiChat };
    assert_eq!(observe(endpoint, content_type, [answer]), expected);
    assert_eq!(observe(endpoint, content_type, answer.as_bytes().chunks(7)), expected, "in pieces");
}

const OLLAMA: &str = concat!(
    r#"{"model":"m","message":{"role":"assistant","content":"Guten"},"done":false}"#,
    "\n",
    r#"{"model":"m","message":{"role":"assistant","content":" 🦀"},"done":false}"#,
    "\n",
    r#"{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","load_duration":31000000,"prompt_eval_count":26,"eval_count":2}"#,
);

const OPENAI: &str = concat!(
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":null}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1,\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\n",
    "data: [DONE]\n\n",
);

fn openai_seen() -> Observed {
    Observed {
        prompt_tokens: Some(9),
        cached_tokens: Some(8),
        output_tokens: Some(1),
        complete: true,
        content_events: 1,
        ..Observed::default()
    }
}

#[test]
fn acc_02_ollama_counters_come_from_the_last_line() {
    let expected = Observed {
        prompt_tokens: Some(26),
        output_tokens: Some(2),
        load_ms: Some(31),
        complete: true,
        content_events: 2,
        ..Observed::default()
    };
    check_chat(NDJSON, OLLAMA, expected);
    check_chat(NDJSON, &OLLAMA.replace(r#""prompt_eval_count":26,"#, ""), Observed { prompt_tokens: None, ..expected });
    let embedded = r#"{"model":"m","embeddings":[[0.1,2]],"prompt_eval_count":7}"#;
    let expected = Observed { prompt_tokens: Some(7), complete: true, ..Observed::default() };
    assert_eq!(observe(Endpoint::OllamaEmbed, JSON, [embedded]), expected);
    let embedded = r#"{"object":"list","data":[],"usage":{"prompt_tokens":7,"completion_tokens":0}}"#;
    assert_eq!(observe(Endpoint::OpenAiEmbeddings, JSON, [embedded]), expected);
}

#[test]
fn str_04_a_last_line_of_300_kb_without_newline() {
    let context = vec!["12345"; 50_000].join(",");
    let answer = format!("{{\"response\":\"a\"}}\n{{\"done\":true,\"context\":[{context}],\"eval_count\":3}}");
    assert!(answer.len() > 300_000);
    let seen = observe(Endpoint::OllamaGenerate, NDJSON, answer.as_bytes().chunks(7));
    assert_eq!((seen.output_tokens, seen.complete, seen.content_events), (Some(3), true, 1));
}

#[test]
fn a_context_that_is_sent_back_is_known_again() {
    let seen = observe(Endpoint::OllamaGenerate, NDJSON, [r#"{"done":true,"context":[1,2,3]}"#]);
    let next = peek(br#"{"model":"m","prompt":"a","context":[1,2,3]}"#, Endpoint::OllamaGenerate).unwrap();
    assert_eq!(seen.context, Some(next.ask.chain.links[0].hash));
}

#[test]
fn str_05_every_line_ending_tells_the_same() {
    check_chat(SSE, OPENAI, openai_seen());
    check_chat(SSE, &OPENAI.replace('\n', "\r\n"), openai_seen());
    check_chat(SSE, &OPENAI.replace('\n', "\r"), openai_seen());
    check_chat(SSE, &OPENAI.replace("data: ", "data:"), openai_seen());
    let crlf = OPENAI.replace('\n', "\r\n");
    assert_eq!(observe(Endpoint::OpenAiChat, SSE, crlf.split_inclusive('\r')), openai_seen());
}

#[test]
fn str_06_a_huge_event_hides_no_other() {
    let huge = "x".repeat(4 << 20);
    check_chat(SSE, &format!("data: {{\"a\":\"{huge}\"}}\n\n{OPENAI}"), openai_seen());
    let one = huge.as_bytes().chunks(64 * 1024);
    let mut observer = Observer::new(Endpoint::OpenAiChat, SSE);
    observer.feed(b"data: ");
    for chunk in one {
        observer.feed(chunk);
        let Body::Events(events) = &observer.body else { unreachable!() };
        assert!(events.room() <= 2 * EVENT_LIMIT);
    }
}

#[test]
fn str_11_an_error_in_the_stream_is_seen() {
    let answer = "{\"response\":\"a\"}\n{\"error\":\"runner stopped\"}\n";
    check_chat(NDJSON, answer, Observed { error: true, content_events: 1, ..Observed::default() });
    check_chat(SSE, "data: {\"error\":{\"message\":\"x\"}}\n\n", Observed { error: true, ..Observed::default() });
}

#[test]
fn str_13_any_terminal_marker_completes() {
    let complete = Observed { complete: true, ..Observed::default() };
    check_chat(SSE, "data: [DONE]\n\n", complete);
    check_chat(SSE, "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n", complete);
    check_chat(NDJSON, "{\"done\":true}", complete);
    check_chat(NDJSON, "{\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n", complete);
}

#[test]
fn str_10_a_cut_answer_is_not_complete() {
    check_chat(NDJSON, "{\"done\":tr", Observed::default());
    check_chat(NDJSON, "{\"done\":true,\"eval_count\":3", Observed::default());
    check_chat(SSE, "data: [DON", Observed::default());
    check_chat(JSON, r#"{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}"#, Observed::default());
}

#[test]
fn str_16_a_plain_body_is_complete_when_it_parses() {
    let answer = r#"   {"choices":[{"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":8}}}"#;
    check_chat(JSON, answer, openai_seen());
    let large = format!("{{\"data\":\"{}\"}}\n", "x".repeat(BODY_LIMIT));
    check_chat(JSON, &large, Observed { complete: true, ..Observed::default() });
    check_chat(JSON, &large[..BODY_LIMIT + 5], Observed::default());
}

#[test]
fn str_10_an_error_frame_after_any_cut_is_an_error() {
    for (endpoint, content_type, answer) in [
        (Endpoint::OllamaChat, NDJSON, OLLAMA),
        (Endpoint::OpenAiChat, SSE, OPENAI),
        (Endpoint::OpenAiResponses, SSE, native::RESPONSE),
        (Endpoint::AnthropicMessages, SSE, native::ANTHROPIC),
    ] {
        for cut in 0..answer.len() {
            let sent = &answer.as_bytes()[..cut];
            let mut observer = Observer::new(endpoint, content_type);
            observer.feed(sent);
            let last = frame(endpoint.dialect(), content_type, observer.place(), "cut").unwrap();
            assert!(observe(endpoint, content_type, [sent, &last]).error, "{endpoint:?} {cut}");
        }
    }
}

fn pieces(bytes: &[u8], cuts: &[prop::sample::Index]) -> Vec<Vec<u8>> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    at.extend([0, bytes.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| bytes[pair[0]..pair[1]].to_vec()).collect()
}

fn answers() -> impl Strategy<Value = Vec<u8>> {
    let scraps = prop::sample::select(vec![
        "data:",
        "data: ",
        "event: error",
        ":",
        "\n",
        "\n\n",
        "\r",
        "\r\n",
        "[DONE]",
        "{\"done\":true}",
        "{\"error\":1}",
        "{\"response\":\"é\"}",
        "{\"eval_count\":3}",
        "{",
        "\u{feff}",
        "{\"choices\":[{\"text\":\"a\"}]}",
        " ",
    ]);
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..300),
        prop::collection::vec(scraps, 0..40).prop_map(|scraps| scraps.concat().into_bytes()),
        Just(OLLAMA.as_bytes().to_vec()),
        Just(OPENAI.as_bytes().to_vec()),
        Just(native::ANTHROPIC.as_bytes().to_vec()),
        Just(native::RESPONSE.as_bytes().to_vec()),
    ]
}

proptest! {
    #[test]
    fn any_chunking_tells_the_same(
        answer in answers(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        content_type in prop::sample::select(vec![NDJSON, SSE, JSON]),
    ) {
        let whole = observe(Endpoint::OpenAiChat, content_type, [&answer]);
        prop_assert_eq!(observe(Endpoint::OpenAiChat, content_type, pieces(&answer, &cuts)), whole);
        prop_assert_eq!(observe(Endpoint::OpenAiChat, content_type, answer.chunks(1)), whole);
    }
}
