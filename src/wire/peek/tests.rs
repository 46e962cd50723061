//! Bodies, good and bad, and what is made of them.

mod chain;
mod form;
mod native;
mod spelling;
mod two_ways;

use proptest::prelude::*;

use super::*;
use crate::wire::steps::{ENTRY_LIMIT, STEP_LIMIT};

#[track_caller]
fn ask(endpoint: Endpoint, body: &str) -> Ask {
    peek(body.as_bytes(), endpoint).unwrap().ask
}

/// Where and as what the model is found; the span has to hold exactly the quoted string.
#[track_caller]
fn check_model(endpoint: Endpoint, body: &str, model: &str, quoted: &str) {
    let found = peek(body.as_bytes(), endpoint).unwrap();
    assert_eq!((found.ask.model.as_str(), &body[found.model_span]), (model, quoted));
}

#[track_caller]
fn check_refused(endpoint: Endpoint, body: impl AsRef<[u8]>, error: PeekError) {
    assert_eq!(peek(body.as_ref(), endpoint), Err(error));
}

#[test]
fn bod_02_decoy_model_keys() {
    check_model(
        Endpoint::OpenAiChat,
        r#"{"messages":[{"role":"user","content":"use \"model\":\"moss-7b\""}],"metadata":{"model":"tern-vl"},"mod\u0065l":"fern-3b"}"#,
        "fern-3b",
        r#""fern-3b""#,
    );
    check_model(Endpoint::OllamaChat, r#"{"model" : "f\u0065rn" }"#, "fern", r#""f\u0065rn""#);
    check_model(Endpoint::OllamaChat, r#"{"options":{"model":1},"tools":[{"model":2}],"model":"a"}"#, "a", r#""a""#);
}

#[test]
fn bod_08_only_the_models_value_is_in_the_span() {
    let body = r#"{"seed":9007199254740993, "x_grammar":{"a":1},"model":"a" ,"temperature":0.10}"#;
    let span = peek(body.as_bytes(), Endpoint::OpenAiChat).unwrap().model_span;
    let changed = format!("{}\"longer\"{}", &body[..span.start], &body[span.end..]);
    assert_eq!(changed, body.replace(r#""a" ,"#, r#""longer" ,"#));
}

#[test]
fn ollamas_older_name_counts_where_model_says_nothing() {
    check_model(Endpoint::OllamaShow, r#"{"name":"a"}"#, "a", r#""a""#);
    check_model(Endpoint::OllamaShow, r#"{"name":"a","model":""}"#, "a", r#""a""#);
    check_model(Endpoint::OllamaShow, r#"{"name":"a","model":null}"#, "a", r#""a""#);
    check_model(Endpoint::OllamaShow, r#"{"name":"a","model":"b"}"#, "b", r#""b""#);
    check_refused(Endpoint::OpenAiChat, r#"{"name":"a"}"#, PeekError::NoModel { list: "/v1/models" });
    check_refused(Endpoint::OllamaShow, r#"{"name":1,"model":""}"#, PeekError::ModelNotText { list: "/api/tags" });
}

#[test]
fn a_body_without_one_model_is_refused() {
    let (chat, list) = (Endpoint::OllamaChat, "/api/tags");
    check_refused(chat, "{}", PeekError::NoModel { list });
    check_refused(chat, r#"{"model":null}"#, PeekError::NoModel { list });
    check_refused(chat, r#"{"model":" "}"#, PeekError::EmptyModel { list });
    check_refused(chat, r#"{"model":["a"]}"#, PeekError::ModelNotText { list });
    check_refused(chat, r#"{"model":"a","m\u006fdel":"a"}"#, PeekError::ModelTwice);
    check_refused(chat, r#"{"model":"","model":""}"#, PeekError::ModelTwice);
    check_refused(Endpoint::OpenAiChat, "{}", PeekError::NoModel { list: "/v1/models" });
}

#[test]
fn a_name_that_fits_no_header_is_refused() {
    let (chat, list) = (Endpoint::OllamaChat, "/api/tags");
    let named = |name: &str| format!(r#"{{"model":"{name}"}}"#);
    check_model(chat, &named(&"é".repeat(128)), &"é".repeat(128), &format!("\"{}\"", "é".repeat(128)));
    check_refused(chat, named(&"x".repeat(257)), PeekError::ModelTooLong { list });
    for control in [r"\n", r"\u0000", r"\u001b", r"\u007f", "\u{7f}"] {
        check_refused(chat, named(&format!("a{control}b")), PeekError::ModelUnprintable { list });
    }
}

#[test]
fn keys_are_read_in_any_case_as_go_does() {
    for endpoint in Endpoint::ALL {
        check_refused(endpoint, r#"{"model":"a","Model":"b"}"#, PeekError::ModelTwice);
        check_model(endpoint, r#"{"MODEL":"a"}"#, "a", r#""a""#);
    }
    check_refused(Endpoint::OllamaShow, r#"{"name":"a","Name":"b"}"#, PeekError::ModelTwice);
    check_model(Endpoint::OllamaShow, r#"{"Name":"a"}"#, "a", r#""a""#);
}

#[test]
fn numbers_beyond_any_float_are_the_engines_to_judge() {
    for number in ["1e999", "-1e999", "1.5E+400", &"9".repeat(5000)] {
        for field in ["x", "seed", "max_tokens"] {
            let body = format!(r#"{{"{field}":{number},"messages":[],"model":"a"}}"#);
            check_model(Endpoint::OpenAiChat, &body, "a", r#""a""#);
        }
        let tools = format!(r#"{{"tools":[{{"maximum":{number},"half":"\ud83e"}}],"model":"a"}}"#);
        assert!(ask(Endpoint::OllamaChat, &tools).needs.tools);
    }
    check_refused(Endpoint::OpenAiChat, r#"{"x":1e999,}"#, PeekError::NotJson { line: 1, column: 12 });
}

#[test]
fn bod_10_malformed_json() {
    let chat = Endpoint::OpenAiChat;
    check_refused(chat, "", PeekError::Empty);
    check_refused(chat, " \n", PeekError::Empty);
    check_refused(chat, b"\xef\xbb\xbf", PeekError::Empty);
    check_refused(chat, r#"{"model":"moss-7b","#, PeekError::NotJson { line: 1, column: 19 });
    check_refused(chat, "{\"model\":\"a\"}\n{}", PeekError::NotJson { line: 2, column: 1 });
    check_refused(chat, "[1]", PeekError::NotObject);
    check_refused(chat, "\"model\"", PeekError::NotObject);
    check_refused(chat, "[".repeat(100_000), PeekError::TooDeep);
    for key in ["x", "tools", "messages", "options"] {
        let deep = format!(r#"{{"{key}":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        check_refused(chat, deep, PeekError::TooDeep);
    }
}

#[test]
fn bod_10_a_byte_order_mark_and_blanks_in_front_are_accepted() {
    check_model(Endpoint::OpenAiChat, "\u{feff} \n{\"model\":\"a\"}\n ", "a", r#""a""#);
}

#[test]
fn refusals_say_what_to_do() {
    let said = PeekError::NoModel { list: "/api/tags" }.to_string();
    assert_eq!(said, "the request has no `model`; name one of the models listed by GET /api/tags");
}

#[test]
fn str_14_absent_stream_means_the_endpoints_default() {
    for endpoint in Endpoint::ALL {
        let default = endpoint.streams_by_default();
        for (body, expected) in [
            (r#"{"model":"a"}"#, default),
            (r#"{"model":"a","stream":null}"#, default),
            (r#"{"model":"a","stream":"yes"}"#, default),
            (r#"{"model":"a","stream":true}"#, true),
            (r#"{"model":"a","stream":false}"#, false),
        ] {
            assert_eq!(ask(endpoint, body).stream, expected, "{endpoint:?} {body}");
        }
    }
}

#[test]
fn limits_are_read_where_they_limit() {
    let read = |fields: &str| {
        let ask = ask(Endpoint::OllamaChat, &format!(r#"{{"model":"a",{fields}}}"#));
        (ask.max_output_tokens, ask.runner.num_ctx())
    };
    assert_eq!(read(r#""options":{"num_predict":7,"num_ctx":8192}"#), (Some(7), Some(8192)));
    assert_eq!(read(r#""OPTIONſ":{"num_ctx":8192}"#), (None, Some(8192)));
    assert_eq!(read(r#""options":{"num_predict":-1,"num_ctx":0}"#), (None, None));
    assert_eq!(read(r#""options":null,"max_tokens":9"#), (Some(9), None));
    assert_eq!(read(r#""max_tokens":9,"max_completion_tokens":5.0"#), (Some(5), None));
    assert_eq!(read(r#""max_tokens":18446744073709551615"#), (Some(u32::MAX), None));
    assert_eq!(read(r#""max_tokens":"many","options":[1]"#), (None, None));
}

#[track_caller]
fn check_options(endpoint: Endpoint, body: &str, expected: &[(&str, &str)], last: &[(&str, i32)]) {
    let peeked = peek(body.as_bytes(), endpoint).unwrap();
    let spans = peeked.option_spans.iter().map(|(option, span)| (option.name(), &body[span.clone()]));
    assert_eq!(spans.collect::<Vec<_>>(), expected, "{body}");
    let said = RunnerOption::ALL.into_iter().filter_map(|option| Some((option.name(), peeked.ask.runner.get(option)?)));
    assert_eq!(said.collect::<Vec<_>>(), last, "{body}");
}

#[test]
fn options_that_load_a_model_are_found_where_they_stand() {
    use Endpoint::{OllamaChat, OllamaEmbed, OpenAiChat};
    let body =
        r#"{"options": { "num_ctx" :  8192, "temperature":0.10,"use_mmap":false,"num\u005fgpu":-1},"model":"a"}"#;
    let spans = [("num_ctx", "8192"), ("use_mmap", "false"), ("num_gpu", "-1")];
    check_options(OllamaChat, body, &spans, &[("num_ctx", 8192), ("num_gpu", -1), ("use_mmap", 0)]);
    check_options(OllamaEmbed, body, &spans, &[("num_ctx", 8192), ("num_gpu", -1), ("use_mmap", 0)]);
    check_options(OpenAiChat, body, &[], &[]);
    let odd =
        r#"{"model":"a","options":{"num_ctx":"8192","num_batch":null,"use_mmap":1,"num_thread":[2],"main_gpu":0.0}}"#;
    check_options(OllamaChat, odd, &[("main_gpu", "0.0")], &[("main_gpu", 0)]);
    // The last one counts, and all are known.
    let twice = r#"{"options":{"num_ctx":1,"num_ctx":2e3},"options":{"num_thread":4,"num_ctx":3},"model":"a"}"#;
    let spans = [("num_ctx", "1"), ("num_ctx", "2e3"), ("num_thread", "4"), ("num_ctx", "3")];
    check_options(OllamaChat, twice, &spans, &[("num_ctx", 3), ("num_thread", 4)]);
    let many = format!(r#"{{"model":"a","options":{{{}"num_ctx":2}}}}"#, r#""num_ctx":1,"#.repeat(32));
    check_options(OllamaChat, &many, &[], &[]);
    check_options(
        OllamaChat,
        "\u{feff}{\"model\":\"a\",\"options\":{\"num_ctx\":99999999999}}",
        &[("num_ctx", "99999999999")],
        &[("num_ctx", i32::MAX)],
    );
}

#[test]
fn pinned_values_are_spelled_as_ollama_reads_them() {
    assert_eq!(spell_option(RunnerOption::NumCtx, Some(4096)), b"4096");
    assert_eq!(spell_option(RunnerOption::UseMmap, Some(1)), b"true");
    assert_eq!(spell_option(RunnerOption::UseMmap, Some(0)), b"false");
    assert_eq!(spell_option(RunnerOption::NumThread, None), b"null");
}

#[test]
fn needs_come_from_what_is_sent() {
    let tools = |tools: &str| ask(Endpoint::OpenAiChat, &format!(r#"{{"model":"a","tools":{tools}}}"#)).needs.tools;
    assert_eq!(["[{}]", "[]", "null", "{}"].map(tools), [true, false, false, false]);
    let image = r#"{"model":"a","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x/y"}}]}]}"#;
    assert!(ask(Endpoint::OpenAiChat, image).needs.vision);
    assert!(ask(Endpoint::OllamaGenerate, r#"{"model":"a","prompt":"b","images":["AAAA"]}"#).needs.vision);
    let thinks = |think: &str| ask(Endpoint::OllamaChat, &format!(r#"{{"model":"a","think":{think}}}"#)).needs.thinking;
    assert_eq!(["true", r#""high""#, "false", "null", r#""""#].map(thinks), [true, true, false, false, false]);
    assert!(!ask(Endpoint::OpenAiChat, r#"{"model":"a","think":true}"#).needs.thinking);
    for endpoint in Endpoint::ALL {
        let embeds =
            matches!(endpoint, Endpoint::OllamaEmbed | Endpoint::OllamaEmbeddings | Endpoint::OpenAiEmbeddings);
        assert_eq!(ask(endpoint, r#"{"model":"a"}"#).needs.embedding, embeds);
    }
}

#[test]
fn a_cache_key_names_the_session() {
    let name =
        |key: &str| ask(Endpoint::OpenAiChat, &format!(r#"{{"model":"a","prompt_cache_key":{key}}}"#)).session_name;
    assert_eq!(name(r#""abc""#), Some(crate::routing::chain::hash_text("abc")));
    assert_eq!([r#""""#, "null", "7"].map(name), [None; 3]);
}

#[track_caller]
fn check_tokens(endpoint: Endpoint, fields: &str, tokens: u32) {
    assert_eq!(ask(endpoint, &format!(r#"{{"model":"a",{fields}}}"#)).prompt_tokens, tokens);
}

#[test]
fn prompt_tokens_are_estimated() {
    use Endpoint::*;
    check_tokens(OllamaChat, r#""messages":[]"#, 1);
    check_tokens(OllamaChat, r#""messages":[{"role":"user","content":"Hello world"}]"#, 6);
    let long = "x".repeat(4000);
    check_tokens(OllamaChat, &format!(r#""messages":[{{"role":"user","content":"{long}"}}]"#), 1004);
    let png = format!("data:image/png;base64,{long}");
    let parts = format!(r#"[{{"type":"text","text":"abcd"}},{{"type":"image_url","image_url":{{"url":"{png}"}}}}]"#);
    check_tokens(OpenAiChat, &format!(r#""messages":[{{"role":"user","content":{parts}}}]"#), 155);
    check_tokens(
        OllamaChat,
        &format!(r#""messages":[{{"role":"user","content":"","images":["{long}","{long}"]}}]"#),
        304,
    );
    check_tokens(OllamaChat, r#""tools":[{"name":"abc"}],"messages":[]"#, 16 / 4);
    check_tokens(OpenAiEmbeddings, r#""input":["abcdefgh","abcd"]"#, 3);
    check_tokens(OpenAiEmbeddings, r#""input":[[1,2,3],[4]]"#, 4);
    check_tokens(OllamaEmbed, r#""input":"abcdefgh""#, 2);
    check_tokens(OllamaEmbeddings, r#""prompt":"abcdefgh""#, 2);
    check_tokens(OllamaShow, r#""prompt":"abcdefgh""#, 1);
    check_tokens(OllamaGenerate, r#""prompt":"abcd","context":[1,2,3],"images":["AAAA"]"#, 154);
}

#[test]
fn odd_shapes_are_the_engines_to_judge() {
    for value in ["null", "true", "-1", "1.5", "\"x\"", "[]", "{}", "[[{}]]", "[null,1,\"x\",[],{}]", r#"{"a":[{}]}"#] {
        for field in [
            "messages",
            "tools",
            "system",
            "prompt",
            "input",
            "context",
            "images",
            "options",
            "stream",
            "instructions",
            "previous_response_id",
            "query",
            "documents",
        ] {
            for endpoint in Endpoint::ALL {
                ask(endpoint, &format!(r#"{{"model":"a","{field}":{value}}}"#));
            }
        }
        for field in ["role", "content", "images", "tool_calls", "tool_call_id", "name"] {
            ask(Endpoint::OllamaChat, &format!(r#"{{"model":"a","messages":[{{"{field}":{value}}}]}}"#));
        }
        for field in ["type", "role", "content", "output", "call_id", "name", "other"] {
            ask(Endpoint::OpenAiResponses, &format!(r#"{{"model":"a","input":[{{"{field}":{value}}}]}}"#));
        }
        for field in ["type", "text", "content", "image_url", "source", "cache_control", "other"] {
            let part = format!(r#"[{{"{field}":{value}}}]"#);
            ask(Endpoint::OpenAiChat, &format!(r#"{{"model":"a","messages":[{{"content":{part}}}]}}"#));
        }
    }
}

#[test]
fn bal_07_half_characters_are_routed() {
    let body = r#"{"model":"a","messages":[{"role":"user","content":"cut \ud83e"}]}"#;
    check_model(Endpoint::OllamaChat, body, "a", r#""a""#);
    assert_eq!(ask(Endpoint::OllamaChat, body), ask(Endpoint::OllamaChat, &body.replace(r"\ud83e", "\u{fffd}")));
    check_model(Endpoint::OllamaChat, r#"{"x":"\udd80","model":"a"}"#, "a", r#""a""#);
}

#[test]
fn bal_07_bytes_that_are_no_characters_are_refused() {
    for body in [&b"{\"model\":\"\xff\"}"[..], b"{\"model\":\"a\",\"prompt\":\"\xf0\x9f\"}"] {
        assert!(matches!(peek(body, Endpoint::OllamaGenerate), Err(PeekError::NotJson { .. })));
    }
}

#[test]
fn a_body_of_empty_messages_stays_small() {
    let ask = ask(Endpoint::OllamaChat, &messages_of("{}", ENTRY_LIMIT));
    assert_eq!(ask.chain.links.len(), STEP_LIMIT);
    assert_eq!(ask.prompt_tokens, 4 * ENTRY_LIMIT as u32);
}

fn messages_of(message: &str, count: usize) -> String {
    format!(r#"{{"model":"a","messages":[{}{message}]}}"#, format!("{message},").repeat(count - 1))
}

#[test]
fn a_list_with_too_many_entries_is_not_read_on() {
    check_refused(Endpoint::OllamaChat, messages_of("{}", ENTRY_LIMIT + 1), PeekError::TooMany);
    // Not read to its end: what follows is no JSON.
    let broken = messages_of("{}", ENTRY_LIMIT + 1) + "}";
    check_refused(Endpoint::OllamaChat, broken, PeekError::TooMany);
    let parts = format!(r#"{{"content":[{}""]}}"#, r#""","#.repeat(9));
    check_refused(Endpoint::OpenAiChat, messages_of(&parts, ENTRY_LIMIT / 10), PeekError::TooMany);
    let texts = |count: usize| format!(r#"{{"model":"a","input":[{}""]}}"#, r#""","#.repeat(count - 1));
    check_refused(Endpoint::OllamaEmbed, texts(ENTRY_LIMIT + 1), PeekError::TooMany);
    ask(Endpoint::OllamaEmbed, &texts(ENTRY_LIMIT));
    let ids = format!(r#"{{"model":"a","prompt":[{}1]}}"#, "1,".repeat(2 * ENTRY_LIMIT));
    ask(Endpoint::OpenAiCompletions, &ids);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for endpoint in Endpoint::ALL {
            let _ = peek(&bytes, endpoint);
            let _ = peek_form(&bytes, "multipart/form-data; boundary=a", endpoint);
        }
    }

    #[test]
    fn no_cut_or_garbled_body_makes_it_panic(cut in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let body = r#"{"model":"é","messages":[{"role":"user","content":[{"type":"text","text":"a\n語"}],"tool_calls":[{"a":-1.5e3}]}],"tools":[{}]}"#;
        let at = cut.index(body.len());
        let _ = peek(&body.as_bytes()[..at], Endpoint::OllamaChat);
        let mut garbled = body.as_bytes().to_vec();
        garbled[at] = byte;
        if let Ok(found) = peek(&garbled, Endpoint::OllamaChat) {
            let quoted = &garbled[found.model_span];
            prop_assert!(quoted.starts_with(b"\"") && quoted.ends_with(b"\""));
        }
    }
}
