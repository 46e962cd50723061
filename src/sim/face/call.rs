//! What a request asks for, read from its body.
//!
//! Reads the fields that the simulation acts upon and passes over the rest, as real engines do. The
//! prompt is rendered in the order of the conversation, tools first; an assistant's message renders
//! to the tokens that were generated. Any bytes give a `Call` or a sentence, never a panic.

use std::time::Duration;

use serde_json::Value;

use super::form::Form;
use super::keep_alive;
use super::service::Service;
use super::text::{Token, cut};
use crate::routing::ask::{Dialect, Endpoint};
use crate::sim::engine::KeepAlive;

/// A request for the model, understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub service: Service,
    pub model: String,
    pub stream: bool,
    pub prompt: Vec<Token>,
    /// The texts to embed.
    pub inputs: Vec<Vec<Token>>,
    pub output_tokens_max: Option<u32>,
    pub context_tokens: Option<u32>,
    /// `stream_options.include_usage`.
    pub include_usage: bool,
    /// `encoding_format: base64`.
    pub base64: bool,
    pub keep_alive: Option<KeepAlive>,
    /// What the answer has to be.
    pub form: Form,
}

impl Call {
    /// An empty prompt: the client wants the model loaded or unloaded, and no answer.
    pub fn wants_model_only(&self) -> bool {
        self.service.endpoint.is_conversation() && self.prompt.is_empty()
    }

    /// The client wants the model out of memory, and nothing else.
    pub fn wants_unloading_only(&self) -> bool {
        self.wants_model_only() && self.keep_alive == Some(KeepAlive::For(Duration::ZERO))
    }
}

/// Understands a body, or says in Ollama's words what is wrong with it.
pub fn read(service: Service, body: &[u8]) -> Result<Call, String> {
    if body.is_empty() {
        return Err("missing request body".into());
    }
    let body: Value = serde_json::from_slice(body).map_err(|error| format!("invalid JSON: {error}"))?;
    let model = body["model"].as_str().unwrap_or_default();
    if model.is_empty() {
        return Err("model is required".into());
    }
    if service.dialect == Dialect::Anthropic && positive(&body["max_tokens"]).is_none() {
        return Err("max_tokens is required and must be positive".into());
    }
    let endpoint = service.endpoint;
    let options = &body["options"];
    let stream = body["stream"].as_bool();
    Ok(Call {
        service,
        model: model.to_owned(),
        stream: stream.unwrap_or(endpoint.streams_by_default()) && endpoint.is_conversation(),
        prompt: prompt(endpoint, &body)?,
        inputs: inputs(endpoint, &body)?,
        output_tokens_max: (positive(&options["num_predict"]))
            .or(positive(&body["max_completion_tokens"]))
            .or(positive(&body["max_tokens"])),
        context_tokens: positive(&options["num_ctx"]),
        include_usage: body["stream_options"]["include_usage"] == true,
        base64: body["encoding_format"] == "base64",
        keep_alive: keep_alive::read(&body["keep_alive"])?,
        form: Form::wanted(service, &body),
    })
}

fn prompt(endpoint: Endpoint, body: &Value) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    match endpoint {
        Endpoint::OllamaChat | Endpoint::OpenAiChat => {
            let messages = match &body["messages"] {
                Value::Array(messages) => messages.as_slice(),
                Value::Null if endpoint == Endpoint::OllamaChat => &[],
                _ => return Err("messages must be a list".into()),
            };
            render_chat(body, messages, &mut tokens);
            if messages.is_empty() {
                tokens.clear();
            }
        }
        Endpoint::OllamaGenerate => render_generate(body, &mut tokens),
        Endpoint::OpenAiCompletions => {
            for text in texts(&body["prompt"])? {
                cut(text, &mut tokens);
            }
            if tokens.is_empty() {
                return Err("prompt is required".into());
            }
        }
        _ => {}
    }
    Ok(tokens)
}

fn render_chat(body: &Value, messages: &[Value], tokens: &mut Vec<Token>) {
    let tools = &body["tools"];
    if tools.as_array().is_some_and(|tools| !tools.is_empty()) {
        render("tools", &tools.to_string(), tokens);
    }
    if let system @ (Value::String(_) | Value::Array(_)) = &body["system"] {
        open("system", tokens);
        render_content(system, tokens);
        close(tokens);
    }
    for message in messages {
        open(message["role"].as_str().unwrap_or("user"), tokens);
        render_content(&message["content"], tokens);
        for image in message["images"].as_array().into_iter().flatten() {
            cut(image.as_str().map_or("", image_name), tokens);
        }
        if let calls @ Value::Array(_) = &message["tool_calls"] {
            cut(&calls.to_string(), tokens);
        }
        close(tokens);
    }
    open("assistant", tokens);
}

fn render_generate(body: &Value, tokens: &mut Vec<Token>) {
    let prompt = body["prompt"].as_str().unwrap_or_default();
    if prompt.is_empty() {
        return;
    }
    // The tokens that an earlier answer's last line told; what follows goes on from there.
    let context = body["context"].as_array().into_iter().flatten();
    tokens.extend(context.filter_map(|token| Token::try_from(token.as_u64()?).ok()));
    if let Some(system) = body["system"].as_str() {
        render("system", system, tokens);
    }
    render("user", prompt, tokens);
    open("assistant", tokens);
}

/// A text, or a list of parts of which some are texts.
fn render_content(content: &Value, tokens: &mut Vec<Token>) {
    match content {
        Value::String(text) => cut(text, tokens),
        Value::Array(parts) => {
            for part in parts {
                match part["text"].as_str() {
                    Some(text) => cut(text, tokens),
                    None => cut(&part.to_string(), tokens),
                }
            }
        }
        _ => {}
    }
}

/// An image counts little here and is told apart by its beginning.
fn image_name(image: &str) -> &str {
    image.get(..256).unwrap_or(image)
}

fn render(role: &str, text: &str, tokens: &mut Vec<Token>) {
    open(role, tokens);
    cut(text, tokens);
    close(tokens);
}

fn open(role: &str, tokens: &mut Vec<Token>) {
    cut("<|", tokens);
    cut(role, tokens);
    cut("|>", tokens);
}

fn close(tokens: &mut Vec<Token>) {
    cut("<|/|", tokens);
}

fn inputs(endpoint: Endpoint, body: &Value) -> Result<Vec<Vec<Token>>, String> {
    let field = match endpoint {
        Endpoint::OllamaEmbed | Endpoint::OpenAiEmbeddings => &body["input"],
        Endpoint::OllamaEmbeddings => &body["prompt"],
        _ => return Ok(Vec::new()),
    };
    let tokens_of = |text| {
        let mut tokens = Vec::new();
        cut(text, &mut tokens);
        tokens
    };
    Ok(texts(field)?.into_iter().map(tokens_of).collect())
}

/// One text or a list of texts.
fn texts(value: &Value) -> Result<Vec<&str>, String> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => Ok(vec![text]),
        Value::Array(items) => {
            (items.iter()).map(|item| item.as_str().ok_or_else(|| "invalid input type".to_owned())).collect()
        }
        _ => Err("invalid input type".into()),
    }
}

/// Zero and below mean "no limit" with every engine that accepts them.
fn positive(value: &Value) -> Option<u32> {
    let number = value.as_u64().filter(|number| *number > 0)?;
    Some(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn call(endpoint: Endpoint, body: Value) -> Call {
        read(endpoint.into(), body.to_string().as_bytes()).unwrap()
    }

    #[track_caller]
    fn check_error(endpoint: Endpoint, body: &str, expected: &str) {
        let error = read(endpoint.into(), body.as_bytes()).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }

    #[test]
    fn bodies_that_are_wrong() {
        check_error(Endpoint::OllamaChat, "", "missing request body");
        check_error(Endpoint::OllamaChat, "{", "invalid JSON");
        check_error(Endpoint::OllamaChat, "[]", "model is required");
        check_error(Endpoint::OpenAiChat, r#"{"model":"m"}"#, "messages must be");
        let input = r#"{"model":"m","input":[1]}"#;
        check_error(Endpoint::OllamaEmbed, input, "invalid input type");
    }

    #[test]
    fn stream_defaults_differ_by_dialect() {
        let body = json!({"model": "m", "prompt": "hi", "messages": []});
        assert!(call(Endpoint::OllamaChat, body.clone()).stream);
        assert!(call(Endpoint::OllamaGenerate, body.clone()).stream);
        assert!(!call(Endpoint::OpenAiChat, body.clone()).stream);
        assert!(!call(Endpoint::OpenAiCompletions, body).stream);
    }

    #[test]
    fn limits_and_options() {
        let options = json!({"num_predict": 5, "num_ctx": 4096});
        let ollama = call(Endpoint::OllamaGenerate, json!({"model": "m", "options": options, "keep_alive": 0}));
        assert_eq!(ollama.output_tokens_max, Some(5));
        assert_eq!(ollama.context_tokens, Some(4096));
        assert!(ollama.wants_unloading_only());
        let unlimited = json!({"model": "m", "options": {"num_predict": -1}});
        assert_eq!(call(Endpoint::OllamaChat, unlimited).output_tokens_max, None);
    }

    #[test]
    fn a_follow_up_begins_with_the_prompt_before_it() {
        let first = json!({"model": "m", "messages": [{"role": "user", "content": "hello"}]});
        let second = json!({"model": "m", "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hello"}]},
            {"role": "assistant", "content": "answer!"},
            {"role": "user", "content": "more"},
        ]});
        let first = call(Endpoint::OllamaChat, first).prompt;
        let second = call(Endpoint::OpenAiChat, second).prompt;
        let mut with_answer = first;
        cut("answer!", &mut with_answer);
        assert!(second.starts_with(&with_answer));
    }

    #[test]
    fn generate_goes_on_from_its_context() {
        let body = json!({"model": "m", "prompt": "more", "context": [5, 6, -1, "x"]});
        assert!(call(Endpoint::OllamaGenerate, body).prompt.starts_with(&[5, 6]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for endpoint in super::super::service::SPOKEN {
                let _ = read(endpoint.into(), &bytes);
            }
        }
    }
}
