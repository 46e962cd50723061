//! What is read the fast way is what serde_json reads.

use proptest::prelude::*;
use serde_json::json;

use super::chain::message;
use super::spelling::whim;
use super::*;

/// By serde_json alone.
fn by_serde_json(body: &str, endpoint: Endpoint) -> Result<Peeked, PeekError> {
    let json = body.strip_prefix('\u{feff}').unwrap_or(body);
    let read = read_from(Deserializer::from_str(json), endpoint);
    read.and_then(|read| understood(read, body.as_bytes(), endpoint))
}

fn is_same(body: &str) -> Result<(), TestCaseError> {
    for endpoint in Endpoint::ALL {
        if !body.trim_ascii().is_empty() {
            prop_assert_eq!(peek_as_it_is(body.as_bytes(), endpoint), by_serde_json(body, endpoint), "{}", body);
        }
    }
    Ok(())
}

#[test]
fn odd_bodies_are_read_alike() {
    let deep = format!("{{\"model\":\"m\",\"x\":{}{}}}", "[".repeat(200), "]".repeat(200));
    let deep_model = format!("{{\"model\":{}{}}}", "[".repeat(200), "]".repeat(200));
    let many = format!("{{\"model\":\"m\",\"messages\":[{}{{}}]}}", "{},".repeat(ENTRY_LIMIT));
    for body in [
        r#"{"model":1e999}"#,
        r#"{"model":"\ud83e","stream":true}"#,
        r#"{"model":"m","options":{"num_ctx":1e999,"num_gpu":-0,"num_predict":"\udd80"}}"#,
        r#"{"model":"m","stream_options":{"include_usage":[[]]},"stream":true} "#,
        r#"{"model":"m","model":"n"}"#,
        r#"{"model":"m"}}"#,
        r#"{"model":"m",}"#,
        r#"["model"]"#,
        "\u{feff}{\"model\":\"m\"}",
        &deep,
        &deep_model,
        &many,
    ] {
        is_same(body).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn talks_are_read_alike(messages in prop::collection::vec(message(), 0..5), mut whim in whim()) {
        let options = json!({"num_ctx": 4096, "use_mmap": true, "num_predict": 7});
        let ids = json!([1, 2, 3.5, "a", [4, 5]]);
        let body = json!({
            "model": "m", "messages": messages, "tools": [{"name": "f"}], "stream": true, "options": options,
            "stream_options": {"include_usage": false}, "context": ids, "prompt": ids, "input": messages, "system": "é",
        });
        is_same(&whim.spell(&body))?;
    }

    #[test]
    fn broken_talks_are_read_alike(
        messages in prop::collection::vec(message(), 0..3),
        mut whim in whim(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), "[\\[\\]{}:,\"\\\\ud0-9.en \u{1}é]{0,3}"), 1..3),
    ) {
        let body = json!({"model": "m", "messages": messages, "options": {"num_ctx": 1}, "input": ["a", 1]});
        let mut body: Vec<char> = whim.spell(&body).chars().collect();
        for (at, put) in changes {
            let at = at.index(body.len() + 1);
            body.splice(at..(at + 1).min(body.len()), put.chars());
        }
        is_same(&body.into_iter().collect::<String>())?;
    }
}
