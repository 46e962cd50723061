//! Large inputs made to be slow (a megabyte in a release build, a quarter of one else), and streams without end: time grows with the input and no
//! faster, and what is held stays within its limit.
//!
//! Time is the thread's own on the processor, of a second and third run if need be, and is compared with that of a
//! plain input of the same size; so neither a busy machine nor a slow one matters.

use std::path::Path;
use std::time::Duration;

use crate::time::on_processor;
use warmgate::config;
use warmgate::engines::ROSTER;
use warmgate::routing::ask::Endpoint;
use warmgate::wire::observe::Observer;
use warmgate::wire::peek::{peek, peek_form};
use warmgate::wire::prometheus::samples;
use warmgate::wire::translate::{self, Answer, Took};

const SIZE: usize = if cfg!(debug_assertions) { 1 << 18 } else { 1 << 20 };

/// A nasty input may take this many times as long as a plain one. What is quadratic takes thousands.
const TIMES_MAX: u32 = 60;

/// Below this, a time says more about the machine than about the input.
const TIME_MIN: Duration = Duration::from_millis(4);

/// Runs of which one has to be fast enough.
const RUNS: usize = 3;

fn check(reader: &str, plain: &[u8], nasty: &[(&str, Vec<u8>)], read: impl Fn(&[u8])) {
    let most = time(&read, plain).max(TIME_MIN) * TIMES_MAX;
    for (name, input) in nasty {
        let fast = (0..RUNS).map(|_| time(&read, input)).find(|took| *took <= most);
        assert!(fast.is_some(), "{reader}, {name}: more than {most:?}, {TIMES_MAX} times a plain input");
    }
}

fn time(read: &impl Fn(&[u8]), input: &[u8]) -> Duration {
    let began = on_processor();
    read(input);
    on_processor().saturating_sub(began)
}

/// `begin`, then `part` as often as a megabyte holds it, then `end`.
fn filled(begin: &str, part: &str, end: &str) -> Vec<u8> {
    let times = (SIZE - begin.len() - end.len()) / part.len();
    [begin, &part.repeat(times), end].concat().into_bytes()
}

/// As deep as a megabyte can be.
fn nested(begin: &str, open: &str, close: &str, end: &str) -> Vec<u8> {
    let times = SIZE / (open.len() + close.len()) - begin.len() - end.len();
    [begin, &open.repeat(times), &close.repeat(times), end].concat().into_bytes()
}

#[test]
fn a_body_is_peeked_in_linear_time() {
    let plain = filled("{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"", "word ", "\"}]}");
    let nasty = [
        ("model nested", nested("{\"model\":", "[", "]", "}")),
        ("messages nested", nested("{\"model\":\"m\",\"messages\":", "[{\"content\":", "}]", "}")),
        (
            "tools nested at the limit",
            filled("{\"model\":\"m\",\"tools\":[", &format!("{}{},", "[".repeat(120), "]".repeat(120)), "0]}"),
        ),
        ("unknown open", filled("{\"model\":\"m\",\"zig\":", "[", "")),
        ("empty messages", filled("{\"model\":\"m\",\"messages\":[", "{},", "{}]}")),
        ("empty parts", filled("{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[", "{},", "{}]}]}")),
        ("late roles", filled("{\"model\":\"m\",\"messages\":[", "{\"content\":\"a\",\"role\":\"user\"},", "{}]}")),
        (
            "one role over many parts",
            filled("{\"model\":\"m\",\"messages\":[{\"content\":[", "\"a\",", "\"a\"],\"role\":\"user\"}]}"),
        ),
        ("half characters", filled("{\"model\":\"m\",\"prompt\":\"", "\\ud83e", "\"}")),
        ("backslashes", filled("{\"model\":\"m\",\"prompt\":\"\\ud83e", "\\\\", "\"}")),
        ("huge numbers", filled("{\"model\":\"m\",\"context\":[", "1e999,", "0]}")),
        ("one huge number", filled("{\"model\":\"m\",\"context\":[", "9", "]}")),
        ("a digit too many", filled("{\"model\":\"m\",\"context\":[1e", "9", "]}")),
        ("many keys", filled("{\"model\":\"m\"", ",\"zig\":0", "}")),
        ("many models", filled("{\"model\":\"m\"", ",\"model\":\"m\"", "}")),
        ("long model", filled("{\"model\":\"", "m", "\"}")),
        ("images", filled("{\"model\":\"m\",\"prompt\":\"\",\"images\":[", "\"\",", "\"\"]}")),
        ("ids", filled("{\"model\":\"m\",\"context\":[", "1,", "1]}")),
        ("tools", filled("{\"model\":\"m\",\"tools\":[", "{\"b\":1,\"a\":2},", "{}]}")),
        ("one tool of many keys", filled("{\"model\":\"m\",\"tools\":[{\"a\":0", ",\"b\":0", "}]}")),
        ("blanks", filled("{\"model\":\"m\"", "\n", "}")),
        ("cut", filled("{\"model\":\"m\",\"prompt\":\"", "word ", "")),
    ];
    for endpoint in [Endpoint::OllamaChat, Endpoint::OllamaGenerate, Endpoint::OpenAiResponses] {
        check(&format!("peek at {endpoint:?}"), &plain, &nasty, |body| drop(peek(body, endpoint)));
    }
}

#[test]
fn a_form_is_peeked_in_linear_time() {
    const TYPE: &str = "multipart/form-data; boundary=x";
    let plain = filled("--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n", "sound", "\r\n--x--");
    let nasty = [
        ("parts", filled("", "--x\r\n\r\n\r\n", "--x--")),
        ("parts of one head", filled("", "--x\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n", "--x--")),
        ("almost delimiters", filled("--x\r\n\r\n", "\r\n--", "")),
        ("delimiters that are none", filled("--x\r\n\r\n", "\r\n--xx", "")),
        ("delimiters with blanks", filled("--x\r\n\r\n", "\r\n--x          ", "")),
        ("breaks", filled("--x\r\n", "\r", "")),
        ("a head without end", filled("--x\r\n", "a:b\r\n", "")),
        ("parameters", filled("--x\r\nContent-Disposition: form-data", "; a=b", "\r\n\r\n")),
        (
            "long heads",
            filled(
                "",
                &format!("--x\r\nContent-Disposition: form-data{}\r\n\r\n\r\n", "; a=\"b".repeat(1000)),
                "--x--",
            ),
        ),
    ];
    check("peek_form", &plain, &nasty, |body| drop(peek_form(body, TYPE, Endpoint::OpenAiTranscriptions)));
    let types = [
        ("a long type", filled("multipart/form-data", "; a=b", "")),
        ("quotes", filled("multipart/form-data", "; \"", "")),
    ];
    check("a content type", &plain, &types, |kind| {
        drop(peek_form(b"", std::str::from_utf8(kind).expect("text"), Endpoint::OpenAiTranscriptions));
    });
}

/// What a stream may be made of so that its reader is slow.
fn streams() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("line ends", filled("", "\n", "")),
        ("carriage returns", filled("", "\r", "")),
        ("empty data", filled("", "data\n", "")),
        ("one event of many lines", filled("", "data: a\n", "")),
        ("one event of one line", filled("data: ", "a", "")),
        ("comments", filled("", ":\n", "")),
        ("errors", filled("", "error:\n\n", "")),
        ("nested", filled("data: ", "[", "\n\n")),
        ("nested at the limit", filled("", &format!("data: {}{}\n\n", "[".repeat(120), "]".repeat(120)), "")),
        ("small objects", filled("", "data: {}\n\n", "")),
        ("lines of objects", filled("", "{}\n", "")),
        (
            "tool calls",
            filled(
                "",
                "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"a\"}}]}}]}\n\n",
                "",
            ),
        ),
        (
            "tool calls of their own",
            filled(
                "",
                "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":\"f\"}}]}}]}\n\n",
                "",
            ),
        ),
        ("many keys", filled("data: {\"a\":0", ",\"a\":0", "}\n\n")),
        ("many choices", filled("{\"choices\":[0", ",0", "]}")),
        ("many vectors", filled("{\"data\":[{}", ",{\"embedding\":[]}", "]}")),
    ]
}

#[test]
fn an_answer_is_observed_in_linear_time() {
    let plain = filled("", "data: {\"choices\":[{\"delta\":{\"content\":\"word\"}}]}\n\n", "");
    for content_type in ["text/event-stream", "application/x-ndjson", "application/json"] {
        for chunk in [7, SIZE] {
            check(&format!("{content_type} in chunks of {chunk}"), &plain, &streams(), |answer| {
                let mut observer = Observer::new(Endpoint::OpenAiChat, content_type);
                answer.chunks(chunk).for_each(|chunk| observer.feed(chunk));
                observer.finish();
            });
        }
    }
}

#[test]
fn an_answer_is_translated_in_linear_time() {
    let plain = filled("", "data: {\"choices\":[{\"delta\":{\"content\":\"word\"}}]}\n\n", "");
    for (endpoint, status, content_type) in [
        (Endpoint::OllamaChat, 200, "text/event-stream"),
        (Endpoint::OllamaChat, 200, "application/json"),
        (Endpoint::OllamaEmbed, 200, "application/json"),
        (Endpoint::OllamaChat, 500, "application/json"),
    ] {
        for chunk in [7, SIZE] {
            check(&format!("{endpoint:?} {status} {content_type} in {chunk}"), &plain, &streams(), |bytes| {
                let mut answer = Answer::new(endpoint, "m", status, content_type);
                bytes.chunks(chunk).for_each(|chunk| drop(answer.feed(chunk, "now")));
                answer.finish("now", Took::default());
            });
        }
    }
}

#[test]
fn a_request_is_translated_in_linear_time() {
    let plain =
        filled("{\"model\":\"m\",\"messages\":[", "{\"role\":\"user\",\"content\":\"word\"},", "{\"role\":\"user\"}]}");
    let call = "{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":\"f\"}}]},";
    let open = format!("{{\"model\":\"m\",\"messages\":[{}", call.repeat(1000));
    let members: String = (0..250).map(|n| format!("\"{n}\":0,")).collect();
    let nasty = [
        ("nested", nested("{\"model\":\"m\",\"zig\":", "[", "]", "}")),
        ("nested content", nested("{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":", "[", "]", "}]}")),
        ("many messages", filled("{\"model\":\"m\",\"messages\":[", "{\"role\":\"\"},", "{\"role\":\"\"}]}")),
        (
            "results of no call",
            filled(
                &open,
                "{\"role\":\"tool\",\"tool_call_id\":\"b\"},",
                "{\"role\":\"tool\",\"tool_call_id\":\"b\"}]}",
            ),
        ),
        ("open calls", filled("{\"model\":\"m\",\"messages\":[", call, "{\"role\":\"user\"}]}")),
        ("many members", filled("{\"model\":\"m\"", ",\"a\":0", "}")),
        (
            "messages of many members",
            filled("{\"model\":\"m\",\"messages\":[", &format!("{{{members}\"role\":\"\"}},"), "{\"role\":\"\"}]}"),
        ),
        (
            "images",
            filled("{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"images\":[", "\"/9j/\",", "\"/9j/\"]}]}"),
        ),
    ];
    check("request", &plain, &nasty, |body| drop(translate::request(Endpoint::OllamaChat, body, "m")));
}

#[test]
fn what_engines_tell_is_read_in_linear_time() {
    let plain = filled("", "vllm:num_requests_running{engine=\"0\"} 1\n", "");
    let nasty = [
        ("one line", filled("", "a", "")),
        ("open labels", filled("", "a{b=\"\n", "")),
        ("labels on long lines", filled("", &format!("a{{{}}} 1\n", "b=\"c\",".repeat(2000)), "")),
        ("quotes on long lines", filled("", &format!("a{{{}\n", "\"".repeat(16_000)), "")),
        ("backslashes", filled("", &format!("a{{b=\"{}\n", "\\".repeat(16_000)), "")),
        ("empty lines", filled("", "\n", "")),
    ];
    check("samples", &plain, &nasty, |text| samples(text).for_each(|sample| drop(sample.label("model_name"))));

    let ranks: String = (0..20_000).map(|n| format!("vllm:num_requests_running{{engine=\"{n}\"}} 1\n")).collect();
    let nasty = [
        ("nested", nested("{\"data\":", "[", "]", "}")),
        ("empty entries", filled("{\"models\":[{}", ",{}", "]}")),
        ("models", filled("{\"data\":[{\"id\":\"a\"}", ",{\"id\":\"a\"}", "]}")),
        ("many keys", filled("{\"data\":[],\"models\":[]", ",\"a\":0", "}")),
        ("many ranks", ranks.into_bytes()),
    ];
    for engine in ROSTER {
        check(engine.name, &plain, &nasty, |body| {
            let models: &[u8] = b"{\"data\":[{\"id\":\"a\"}],\"models\":[{\"name\":\"a\"}]}";
            let second = |at: usize| if at == 0 { models } else { body };
            let first: Vec<_> = engine.polls.iter().map(|_| Some(body)).collect();
            let others: Vec<_> = (0..engine.polls.len()).map(|at| Some(second(at))).collect();
            drop((engine.read)(&first));
            drop((engine.read)(&others));
        });
    }
}

#[test]
fn a_configuration_is_read_in_linear_time() {
    let plain = filled("upstreams:\n", "- {name: word}\n", "");
    let bomb: String =
        (1..10).map(|n| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(","))).collect();
    let nasty = [
        ("alias bomb", format!("a0: &a0 [x]\n{bomb}").into_bytes()),
        ("open lists", filled("a: ", "[", "")),
        ("open maps", filled("a: ", "{a: ", "")),
        ("dashes", filled("a:\n", "- ", "")),
        ("questions", filled("", "? ", "")),
        ("colons", filled("", ": ", "")),
        ("commas", filled("a: [", "x,", "]")),
        ("one long text", filled("a: \"", "word ", "\"")),
        ("one long line", filled("a: ", "word ", "")),
        ("keys in a long key", filled(&format!("? {}\n:\n", "k".repeat(SIZE / 2)), "  a: 0\n", "")),
        ("same keys", filled("", "upstreams:\n", "")),
        ("unknown keys", filled("", "zig: 0\n", "")),
        ("anchors", filled("a:\n", "- &a\n", "")),
        ("tags", filled("a:\n", "- !a\n", "")),
        ("documents", filled("", "---\n", "")),
        ("blanks", filled("a:", " ", "")),
        ("upstreams", filled("upstreams:\n", "- {url: \"http://h:1\"}\n", "")),
        ("upstreams without anything", filled("upstreams:\n", "- {}\n", "")),
        ("groups without anything", filled("models:\n", "- {}\n", "")),
        ("groups", filled("models:\n", "- {name: a, targets: [{upstream: b, model: c}]}\n", "")),
        ("listens", filled("listen:\n", "- address: 127.0.0.1:0\n", "")),
        ("fallbacks", filled("models:\n- name: a\n  fallbacks: [", "b,", "]\n")),
    ];
    check("config", &plain, &nasty, |text| {
        drop(config::parse(std::str::from_utf8(text).expect("text"), Path::new("/nowhere/x.yaml")));
    });
}

#[test]
fn aliases_that_mean_an_endless_tree_are_refused_before_it_is_built() {
    let wide = format!("a: &a [{}]\nb: [{}]\n", vec!["x"; SIZE / 8].join(","), vec!["*a"; SIZE / 8].join(","));
    let most = held(|| assert!(config::parse(&wide, Path::new("/nowhere/x.yaml")).is_err()));
    assert!(most <= 256 << 20, "{most} bytes");
}

/// Of 64 KiB each.
const CHUNKS: usize = 160;

/// Most bytes that were held at once.
fn held(run: impl FnOnce()) -> u64 {
    allocation_counter::measure(run).bytes_max
}

#[test]
fn an_observer_holds_a_bounded_part_of_an_endless_stream() {
    // Twice the limit of a line, an event or a small body: a buffer that grows is copied.
    const HELD_MAX: u64 = 4 << 20;
    for content_type in ["text/event-stream", "application/x-ndjson", "application/json"] {
        for part in ["a", "data: a\n", "{\"a\":[", "\"", "data: \n", "event: error\n", "{}\n\n"] {
            let chunk = part.repeat((64 << 10) / part.len());
            let mut observer = Observer::new(Endpoint::OpenAiChat, content_type);
            let most = held(|| (0..CHUNKS).for_each(|_| observer.feed(chunk.as_bytes())));
            assert!(most <= HELD_MAX, "{content_type}, {part:?}: {most} bytes of {}", CHUNKS * chunk.len());
        }
    }
}

#[test]
fn a_translated_stream_holds_a_bounded_part_of_itself() {
    const HELD_MAX: u64 = 8 << 20;
    for part in [
        "a",
        "data: a\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
        ": a\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"aaaaaaaa\"}}]}}]}\n\n",
    ] {
        let chunk = part.repeat((64 << 10) / part.len());
        let mut answer = Answer::new(Endpoint::OllamaChat, "m", 200, "text/event-stream");
        let most = held(|| (0..CHUNKS).for_each(|_| drop(answer.feed(chunk.as_bytes(), "now"))));
        assert!(most <= HELD_MAX, "{part:?}: {most} bytes of {}", CHUNKS * chunk.len());
    }
}

#[test]
fn a_body_is_understood_in_a_bounded_multiple_of_itself() {
    for (name, part) in [
        ("messages", "{\"role\":\"user\",\"content\":\"a\"},"),
        ("parts", "\"a\","),
        ("nothing", "{},"),
        ("tools", "{\"a\":[1]},"),
    ] {
        let body = filled("{\"model\":\"m\",\"tools\":[0],\"messages\":[", part, "{}]}");
        let most = held(|| drop(peek(&body, Endpoint::OpenAiChat)));
        // The lists have limits of their own, and grow by doubling.
        assert!(most <= 2 * body.len() as u64 + (4 << 20), "{name}: {most} bytes for a body of {}", body.len());
    }
}
