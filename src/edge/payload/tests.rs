//! What a node is sent, to the byte.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::config::{Upstream, UpstreamUrl};
use crate::edge::site::Site;
use crate::edge::target::Target;
use crate::routing::fleet::UpstreamId;
use crate::routing::runner::{OptionGuard, Room, Runner};
use crate::wire::peek::{Peeked, peek};

fn node() -> Arc<Node> {
    let url: UpstreamUrl = "http://n1".parse().unwrap();
    let (target, id) = (Target::of(&url), UpstreamId(0));
    let configured = Upstream { engine: Some("ollama"), ..Upstream::new("n1".into(), url) };
    Node::all_of(&Arc::new(Site::new("n1".into(), configured, vec![id], target))).remove(0)
}

/// What a node is sent that has the model in memory under another name and with that window.
fn sent(body: &str, model: &str, window: u32, guard: OptionGuard) -> String {
    let Peeked { ask, model_span, option_spans, usage_edit, .. } = peek(body.as_bytes(), Endpoint::OllamaChat).unwrap();
    let payload = Payload { bytes: Bytes::copy_from_slice(body.as_bytes()), model_span, option_spans, usage_edit };
    let room = Room { prompt_tokens: ask.prompt_tokens, output_tokens: 0 };
    let misfit = Runner::default().misfit(&ask.runner, Some(window), room, guard);
    match payload.under(model, &ask, &node(), misfit.as_ref(), Vec::new(), &Budget::new(1 << 20)) {
        Ok(Prepared::Plain(body)) => String::from_utf8(body.to_vec()).unwrap(),
        _ => panic!("no body for {body}"),
    }
}

#[test]
fn only_the_bytes_of_the_values_change() {
    let body = r#"{"options" : {"seed":9007199254740993, "num_ctx": 8192 },  "model":"fast","x":[1e400]}"#;
    let pinned = r#"{"options" : {"seed":9007199254740993, "num_ctx": 4096 },  "model":"fast","x":[1e400]}"#;
    for guard in [OptionGuard::Pass, OptionGuard::Warn] {
        assert_eq!(sent(body, "fast", 4096, guard), body);
    }
    assert_eq!(sent(body, "fast", 8192, OptionGuard::Pin), body);
    assert_eq!(sent(body, "fast", 4096, OptionGuard::Pin), pinned);
    assert_eq!(sent(body, "fern:3b", 4096, OptionGuard::Pin), pinned.replace("fast", "fern:3b"));
    let twice = r#"{"model":"fast","options":{"num_ctx":1,"num_ctx":8192}}"#;
    assert_eq!(
        sent(twice, "fast", 4096, OptionGuard::Pin),
        r#"{"model":"fast","options":{"num_ctx":4096,"num_ctx":4096}}"#
    );
}

proptest! {
    /// L9: with the old values put back, the body is the one that came.
    #[test]
    fn all_else_is_as_it_came(
        before in prop::collection::btree_map("[a-c]{1,3}", any::<f64>(), 0..4),
        asked in 1u32..100_000, window in 1u32..100_000, spaces in "[ \n]{0,3}", text in "\\PC{0,20}", renamed: bool,
    ) {
        let other: String = before.iter().map(|(name, value)| format!("\"{name}\":{value:e},{spaces}")).collect();
        let text = serde_json::Value::from(text).to_string();
        let options = |num_ctx: u32| format!("{{{other}\"num_ctx\":{spaces}{num_ctx}{spaces}}}");
        let body = |num_ctx, model| format!(
            "{{\"a\":{text},\"options\":{spaces}{},\"model\":\"{model}\",\"b\":{spaces}{text}}}", options(num_ctx)
        );
        let model = if renamed { "fern:3b" } else { "fast" };
        prop_assert_eq!(sent(&body(asked, "fast"), model, window, OptionGuard::Pin), body(window, model));
        prop_assert_eq!(sent(&body(asked, "fast"), model, window, OptionGuard::Warn), body(asked, model));
    }
}
