//! That the parts are one answer: for any place of the cut, and any chunks.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::wire::edit::edited;

const KINDS: [Kind; 2] = [Kind::Ollama, Kind::OpenAi];

/// A node that says `words` as an answer that begins with `given`, and counts a token for each.
fn answer(kind: Kind, id: &str, given: &str, words: &[&str]) -> String {
    let text = words.concat();
    let rest = text.strip_prefix(given).expect("it was given what it says");
    let mut skip = text.len() - rest.len();
    let mut frames = Vec::new();
    let mut said = 0;
    if kind == Kind::OpenAi {
        frames.push(openai(id, json!({"role": "assistant", "content": ""}), Value::Null));
    }
    for word in words {
        let word = match word.get(skip.min(word.len())..) {
            Some(left) => {
                skip -= word.len() - left.len();
                left
            }
            None => word,
        };
        if word.is_empty() {
            continue;
        }
        said += 1;
        frames.push(match kind {
            Kind::Ollama => json!({"model": id, "message": {"role": "assistant", "content": word}, "done": false}),
            Kind::OpenAi => openai(id, json!({"content": word}), Value::Null),
        });
    }
    let prompt = 10 + words.len() - said;
    match kind {
        Kind::Ollama => frames.push(json!({"model": id, "message": {"role": "assistant", "content": ""}, "done": true,
            "done_reason": "stop", "prompt_eval_count": prompt, "eval_count": said})),
        Kind::OpenAi => {
            frames.push(openai(id, json!({}), json!("stop")));
            let usage = json!({"prompt_tokens": prompt, "completion_tokens": said, "total_tokens": prompt + said});
            frames.push(json!({"id": id, "choices": [], "usage": usage}));
        }
    }
    let frame = |frame: &Value| match kind {
        Kind::Ollama => format!("{frame}\n"),
        Kind::OpenAi => format!("data: {frame}\n\n"),
    };
    let end = if kind == Kind::OpenAi { "data: [DONE]\n\n" } else { "" };
    frames.iter().map(frame).collect::<String>() + end
}

fn openai(id: &str, delta: Value, finish: Value) -> Value {
    json!({"id": id, "model": id, "created": id.len(),
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

/// What a client reads out of a whole stream: its text, and everything else that must be one.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    text: String,
    ids: Vec<String>,
    roles: usize,
    ends: usize,
    counts: Option<(u64, u64)>,
}

fn heard(kind: Kind, stream: &str) -> Heard {
    let mut heard = Heard::default();
    let frames = stream.split(if kind == Kind::OpenAi { "\n\n" } else { "\n" }).filter(|frame| !frame.is_empty());
    for frame in frames.map(|frame| frame.strip_prefix("data: ").unwrap_or(frame)) {
        if frame == "[DONE]" {
            heard.ends += 1;
            continue;
        }
        let frame: Value = serde_json::from_str(frame).unwrap_or_else(|e| panic!("{e} in {frame:?}"));
        let (id, message, prompt, output) = match kind {
            Kind::Ollama => (&frame["model"], &frame["message"], &frame["prompt_eval_count"], &frame["eval_count"]),
            Kind::OpenAi => {
                let usage = &frame["usage"];
                (&frame["id"], &frame["choices"][0]["delta"], &usage["prompt_tokens"], &usage["completion_tokens"])
            }
        };
        heard.ends += usize::from(frame["done"] == true);
        heard.roles += usize::from(kind == Kind::OpenAi && message.get("role").is_some());
        heard.text += message["content"].as_str().unwrap_or_default();
        let id = id.as_str().expect("an id").to_string();
        if !heard.ids.contains(&id) {
            heard.ids.push(id);
        }
        heard.counts = prompt.as_u64().zip(output.as_u64()).or(heard.counts);
    }
    heard
}

fn request(kind: Kind) -> Vec<u8> {
    let messages = json!([{"role": "user", "content": "say it"}]);
    match kind {
        Kind::Ollama => json!({"model": "m", "messages": messages, "options": {"num_predict": 100}}),
        Kind::OpenAi => json!({"model": "m", "messages": messages, "stream": true, "max_tokens": 100}),
    }
    .to_string()
    .into_bytes()
}

/// What the client gets when the first node is cut at these places of the stream it would have said.
fn through(kind: Kind, words: &[&str], cuts: &[usize], chunk: usize) -> String {
    let mut given = String::new();
    let mut follower = Follower::new(kind);
    let first = answer(kind, "first", "", words);
    let cut = cuts.first().map_or(first.len(), |cut| cut % first.len());
    for chunk in first.as_bytes()[..cut].chunks(chunk) {
        let passed = follower.feed(chunk).unwrap_or_else(|| chunk.to_vec());
        given += std::str::from_utf8(&passed).expect("whole frames");
    }
    for (n, next_cut) in cuts.iter().skip(1).map(Some).chain([None]).enumerate() {
        follower.take_half();
        let Ok(said) = follower.said() else {
            // It ends so, perhaps within a frame, and an error frame follows.
            let border = if kind == Kind::OpenAi { "\n\n" } else { "\n" };
            given.truncate(given.rfind(border).map_or(0, |at| at + border.len()));
            return given;
        };
        let prefix = Prefix::of(kind, &request(kind), said).expect("nothing binds it");
        let body = edited(&request(kind), prefix.edits("")).expect("edits that fit");
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        let last = body["messages"].as_array().expect("messages").last().expect("one");
        let prefix = if last["role"] == "assistant" { last["content"].as_str().expect("text") } else { "" };
        let rest = answer(kind, &format!("other{n}"), prefix, words);
        let rest = next_cut.map_or(rest.as_bytes(), |cut| &rest.as_bytes()[..cut % rest.len()]);
        let mut stitch = Stitch::new(kind, said, false);
        for chunk in rest.chunks(chunk) {
            let passed = stitch.feed(chunk).expect("it goes on");
            follower.feed(&passed);
            given += std::str::from_utf8(&passed).expect("whole frames");
        }
        if stitch.is_over {
            break;
        }
    }
    given
}

const WORDS: [&str; 9] = ["Ünder", " the", " moss", ".\n", "\n", "  A", " \"fern\"", " 🌿", "\t"];

#[test]
fn wherever_it_is_cut_the_answer_is_the_same() {
    for kind in KINDS {
        let uncut = answer(kind, "first", "", &WORDS);
        let expected = heard(kind, &uncut);
        assert_eq!(expected.text, WORDS.concat());
        for cut in 0..uncut.len() {
            let got = heard(kind, &through(kind, &WORDS, &[cut], 7));
            if got.ends == 0 {
                // Only behind the model's last word, when nothing may be asked again.
                assert_eq!(got.text, expected.text, "{kind:?} cut at {cut}");
                continue;
            }
            if cut > uncut.find('\n').unwrap_or(0) + 1 {
                assert_eq!(got.ids, ["first"], "{kind:?} cut at {cut}");
            }
            assert_eq!(
                (got.text, got.roles, got.ends),
                (expected.text.clone(), expected.roles, 1),
                "{kind:?} at {cut}"
            );
            let (prompt, output) = got.counts.expect("counts");
            assert_eq!(prompt + output, 10 + WORDS.len() as u64, "{kind:?} cut at {cut}");
        }
    }
}

proptest! {
    #[test]
    fn it_may_be_cut_often_and_come_in_any_chunks(
        cuts in proptest::collection::vec(any::<usize>(), 1..4),
        chunk in 1_usize..90,
        words in proptest::collection::vec("[ \n]{0,2}[a-z\u{e4}\"]{0,3}[ \n]{0,2}", 1..12),
    ) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        for kind in KINDS {
            let got = heard(kind, &through(kind, &words, &cuts, chunk));
            prop_assert_eq!(&got.text, &words.concat());
            prop_assert!(got.ends <= 1 && got.roles <= 1);
        }
    }

    #[test]
    fn any_bytes_pass_the_follower(bytes in proptest::collection::vec(
        prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'{'), any::<u8>()], 0..200
    ), size in 1_usize..20) {
        for kind in KINDS {
            let mut follower = Follower::new(kind);
            let chunks = bytes.chunks(size);
            let mut passed: Vec<u8> =
                chunks.flat_map(|chunk| follower.feed(chunk).unwrap_or_else(|| chunk.to_vec())).collect();
            passed.extend(follower.take_half());
            prop_assert_eq!(&passed, &bytes);
        }
    }
}

#[track_caller]
fn check_said(kind: Kind, frames: &[&str], expected: Result<(&str, &str), Unfit>) {
    let mut follower = Follower::new(kind);
    for frame in frames {
        let frame = match kind {
            Kind::Ollama => format!("{frame}\n"),
            Kind::OpenAi => format!("data: {frame}\n\n"),
        };
        assert_eq!(follower.feed(frame.as_bytes()), None, "whole frames pass as they came");
    }
    let said = follower.said().map(|said| (said.text.as_str(), said.thinking.as_str()));
    assert_eq!(said, expected, "{frames:?}");
}

#[test]
fn ret_05_what_is_no_plain_text_of_one_choice_does_not_go_on() {
    use Kind::{Ollama, OpenAi};
    let a = r#"{"message":{"role":"assistant","content":"a"},"done":false}"#;
    check_said(Ollama, &[a, a], Ok(("aa", "")));
    check_said(Ollama, &[r#"{"message":{"content":"","thinking":"hm"}}"#, a], Ok(("a", "hm")));
    check_said(Ollama, &[a, r#"{"message":{"thinking":"hm"}}"#], Err(Unfit::Thinking));
    check_said(Ollama, &[a, r#"{"message":{"content":"","tool_calls":[{}]}}"#], Err(Unfit::Tools));
    check_said(Ollama, &[a, r#"{"message":{"content":"","images":["x"]}}"#], Err(Unfit::Odd));
    check_said(Ollama, &[a, r#"{"error":"out of memory"}"#], Err(Unfit::Over));
    check_said(Ollama, &[a, r#"{"done":true}"#], Err(Unfit::Over));
    check_said(Ollama, &[a, "{"], Err(Unfit::Odd));
    let a = r#"{"choices":[{"index":0,"delta":{"content":"a"}}]}"#;
    check_said(OpenAi, &[a, a], Ok(("aa", "")));
    check_said(OpenAi, &[r#"{"choices":[{"index":1,"delta":{"content":"a"}}]}"#], Err(Unfit::Odd));
    check_said(OpenAi, &[r#"{"choices":[{},{}]}"#], Err(Unfit::Odd));
    check_said(OpenAi, &[r#"{"choices":[{"delta":{"content":"a"},"logprobs":{"content":[1]}}]}"#], Err(Unfit::Odd));
    check_said(OpenAi, &[a, r#"{"choices":[{"delta":{"tool_calls":[{}]}}]}"#], Err(Unfit::Tools));
    check_said(OpenAi, &[r#"{"choices":[{"delta":{"reasoning_content":"hm"}}]}"#], Ok(("", "hm")));
    check_said(OpenAi, &[a, r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#], Err(Unfit::Over));
    check_said(OpenAi, &[a, r#"{"error":{"message":"x"}}"#], Err(Unfit::Over));
    check_said(OpenAi, &["[DONE]"], Err(Unfit::Over));
    let long = format!(r#"{{"choices":[{{"delta":{{"content":"{}"}}}}]}}"#, "x".repeat(50_000));
    check_said(OpenAi, &[&long[..]; 6], Err(Unfit::TooLong));
}

fn said(text: &str, thinking: &str) -> Said {
    Said { text: text.into(), thinking: thinking.into(), frames: 7, ..Said::default() }
}

#[track_caller]
fn check_prefix(kind: Kind, body: &str, said: &Said, members: &'static str, expected: Result<&str, Unfit>) {
    let prefix = Prefix::of(kind, body.as_bytes(), said);
    let changed = prefix.map(|prefix| edited(body.as_bytes(), prefix.edits(members)).expect("edits that fit"));
    let changed = changed.map(|body| String::from_utf8(body).expect("text"));
    assert_eq!(changed.as_deref(), expected.as_ref().copied(), "{body}");
}

#[test]
fn ret_04_a_request_gets_what_was_said_and_nothing_else() {
    let vllm = r#""continue_final_message":true,"#;
    check_prefix(
        Kind::OpenAi,
        r#" {"model":"m", "messages":[{"role":"user","content":"q"} ],"max_tokens": 10,"min_tokens":3}"#,
        &said("so \"far\" \n", ""),
        vllm,
        Ok(concat!(
            r#" {"continue_final_message":true,"model":"m", "messages":[{"role":"user","content":"q"} ,"#,
            r#"{"role":"assistant","content":"so \"far\""}],"max_tokens": 3,"min_tokens":0}"#
        )),
    );
    check_prefix(
        Kind::Ollama,
        r#"{"messages":[{"role":"user"}],"options":{"num_predict":-1,"seed":1}}"#,
        &said("a", "hm"),
        "",
        Ok(concat!(
            r#"{"messages":[{"role":"user"},{"role":"assistant","content":"a","thinking":"hm"}],"#,
            r#""options":{"num_predict":-1,"seed":1}}"#
        )),
    );
    let fresh = r#"{"messages":[{"role":"user"}],"max_tokens":10}"#;
    check_prefix(Kind::OpenAi, fresh, &said(" \n", ""), vllm, Ok(fresh));
}

#[test]
fn ret_05_bound_output_does_not_go_on() {
    let with = |member: &str| format!(r#"{{"messages":[{{"role":"user"}}],{member}}}"#);
    for member in [
        r#""response_format":{"type":"json_schema"}"#,
        r#""response_format":{"type":"json_object"}"#,
        r#""format":"json""#,
        r#""FORMAT":{"type":"object"}"#,
        r#""guided_json":"{}""#,
        r#""grammar":"root ::= x""#,
        r#""tool_choice":"required""#,
        r#""tool_choice":{"type":"function"}"#,
        r#""n":2"#,
        r#""logprobs":true"#,
        r#""echo":true"#,
    ] {
        for kind in KINDS {
            check_prefix(kind, &with(member), &said("a", ""), "", Err(Unfit::Bound));
        }
    }
    for member in [r#""response_format":{"type":"text"}"#, r#""tool_choice":"auto""#, r#""n":1"#, r#""format":null"#] {
        assert!(Prefix::of(Kind::OpenAi, with(member).as_bytes(), &said("a", "")).is_ok(), "{member}");
    }
    check_prefix(Kind::OpenAi, &with(r#""add_generation_prompt":true"#), &said("a", ""), "", Err(Unfit::Prefilled));
    check_prefix(Kind::OpenAi, &with(r#""max_tokens":7"#), &said("a", ""), "", Err(Unfit::AtItsLimit));
    check_prefix(Kind::OpenAi, &with(r#""x":1"#), &said("a", "hm"), "", Err(Unfit::Thinking));
    check_prefix(Kind::Ollama, &with(r#""x":1"#), &said("", "hm"), "", Err(Unfit::Thinking));
    check_prefix(Kind::Ollama, r#"{"messages":[{"role":"assistant"}]}"#, &said("a", ""), "", Err(Unfit::Prefilled));
    for odd in ["[]", "{}", r#"{"messages":[]}"#, r#"{"messages":[1]}"#, "\u{1}"] {
        check_prefix(Kind::Ollama, odd, &said("a", ""), "", Err(Unfit::Odd));
    }
}

#[test]
fn an_answer_that_does_not_go_on_with_the_text_is_not_joined() {
    let joined = |text: &str, frame: &str| {
        let frame = format!("data: {frame}\n\n");
        Stitch::new(Kind::OpenAi, &said(text, ""), false).feed(frame.as_bytes())
    };
    let thinks = r#"{"choices":[{"delta":{"reasoning":"hm"}}]}"#;
    assert_eq!(joined("a", thinks), Err(Unfit::Thinking));
    assert!(joined("", thinks).is_ok(), "nothing was said before");
    assert_eq!(joined("a", r#"{"error":{"message":"x"}}"#), Err(Unfit::Over));
    assert_eq!(joined("a", r#"{"choices":[{"index":1,"delta":{}}]}"#), Err(Unfit::Odd));
    assert!(joined("a", r#"{"choices":[{"delta":{"tool_calls":[{"id":"t"}]}}]}"#).is_ok(), "a call may follow a text");
}

#[test]
fn counts_that_only_we_asked_for_are_left_out() {
    let counts =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":17,\"completion_tokens\":2,\"total_tokens\":19}}\n\n";
    let joined = |drops| Stitch::new(Kind::OpenAi, &said("a", ""), drops).feed(counts.as_bytes()).unwrap();
    assert_eq!(joined(true), b"");
    assert_eq!(String::from_utf8(joined(false)).unwrap(), counts.replace("17", "10").replace(":2,", ":9,"));
}
