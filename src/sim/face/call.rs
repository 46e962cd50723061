//! What a request asks for, read from its body.
//!
//! Reads the fields that the simulation acts upon and passes over the rest, as real engines do. The
//! prompt is rendered in the order of the conversation, tools first; an assistant's message renders
//! to the tokens that were generated. Any bytes give a `Call` or a refusal, never a panic.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::form::Form;
use super::keep_alive;
use super::kind::{Kind, Names, Responses};
use super::refusal::Refusal;
use super::text::{Token, cut};
use super::voice::rerank::Ranking;
use crate::routing::ask::{Dialect, Endpoint};
use crate::sim::engine::KeepAlive;

/// A request for the model, understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub endpoint: Endpoint,
    /// Empty where the engine does not need it.
    pub model: String,
    pub stream: bool,
    pub prompt: Vec<Token>,
    /// Where in the prompt the talk begins, behind tools and instructions.
    pub talk_from: usize,
    /// The texts to embed, or the query and the documents to rank by it.
    pub inputs: Vec<Vec<Token>>,
    pub ranking: Ranking,
    pub output_tokens_max: Option<u32>,
    pub context_tokens: Option<u32>,
    /// `stream_options.include_usage`.
    pub include_usage: bool,
    /// `encoding_format: base64`.
    pub base64: bool,
    pub keep_alive: Option<KeepAlive>,
    /// What the answer has to be.
    pub form: Form,
    pub previous_response: Option<String>,
    /// The answer is to be kept for a request that names it.
    pub store: bool,
}

impl Call {
    /// An empty prompt: the client wants the model loaded or unloaded, and no answer.
    pub fn wants_model_only(&self) -> bool {
        self.endpoint.is_conversation() && self.prompt.is_empty()
    }

    /// The client wants the model out of memory, and nothing else.
    pub fn wants_unloading_only(&self) -> bool {
        self.wants_model_only() && self.keep_alive == Some(KeepAlive::For(Duration::ZERO))
    }

    /// The talk with the answer to it, as the prompt of a request that goes on from there has it.
    pub fn continued(&self, pieces: &[String]) -> Vec<Token> {
        let mut talk = self.prompt.get(self.talk_from..).unwrap_or_default().to_vec();
        pieces.iter().for_each(|piece| cut(piece, &mut talk));
        close(&mut talk);
        talk
    }
}

/// The talk up to a stored response.
pub type Earlier<'a> = &'a dyn Fn(&str) -> Option<Arc<[Token]>>;

/// Understands a body, or says what is wrong with it.
pub fn read(kind: &Kind, endpoint: Endpoint, body: &[u8], earlier: Earlier) -> Result<Call, Refusal> {
    if body.is_empty() {
        return Err(malformed("missing request body"));
    }
    let body: Value = serde_json::from_slice(body).map_err(|error| malformed(format!("invalid JSON: {error}")))?;
    let model = body["model"].as_str().unwrap_or_default();
    if model.is_empty() && (kind.names == Names::Ollama || !body.is_object()) {
        return Err(malformed("model is required"));
    }
    if endpoint == Endpoint::AnthropicMessages && positive(&body["max_tokens"]).is_none() {
        return Err(malformed("max_tokens is required and must be positive"));
    }
    // Nobody else knows these.
    let is_ollama = endpoint.dialect() == Dialect::Ollama;
    let own = |name: &str| if is_ollama { &body[name] } else { &Value::Null };
    let previous_response = previous_response(kind, endpoint, &body)?;
    let Rendered { prompt, talk_from } = prompt(endpoint, &body, previous_response.as_deref(), earlier)?;
    Ok(Call {
        endpoint,
        model: model.to_owned(),
        stream: body["stream"].as_bool().unwrap_or(endpoint.streams_by_default()) && endpoint.is_conversation(),
        prompt,
        talk_from,
        inputs: inputs(endpoint, &body)?,
        ranking: ranking(endpoint, &body)?,
        output_tokens_max: (positive(&own("options")["num_predict"]))
            .or(positive(&body["max_completion_tokens"]))
            .or(positive(&body["max_output_tokens"]))
            .or(positive(&body["max_tokens"])),
        context_tokens: positive(&own("options")["num_ctx"]),
        include_usage: body["stream_options"]["include_usage"] == true,
        base64: body["encoding_format"] == "base64",
        keep_alive: keep_alive::read(own("keep_alive")).map_err(Refusal::Malformed)?,
        form: Form::wanted(endpoint, &body),
        store: endpoint == Endpoint::OpenAiResponses && body["store"] != false,
        previous_response,
    })
}

fn previous_response(kind: &Kind, endpoint: Endpoint, body: &Value) -> Result<Option<String>, Refusal> {
    let asked = body["previous_response_id"].as_str().filter(|_| endpoint == Endpoint::OpenAiResponses);
    match (asked, kind.responses) {
        (None, _) | (_, Responses::Ignored) => Ok(None),
        (Some(id), Responses::Stored) => Ok(Some(id.to_owned())),
        (Some(_), Responses::Refused) => Err(malformed("'previous_response_id' is not supported")),
    }
}

#[derive(Default)]
struct Rendered {
    prompt: Vec<Token>,
    talk_from: usize,
}

fn prompt(
    endpoint: Endpoint,
    body: &Value,
    previous_response: Option<&str>,
    earlier: Earlier,
) -> Result<Rendered, Refusal> {
    use Endpoint::{AnthropicCountTokens, AnthropicMessages, OllamaChat, OpenAiChat};
    let mut rendered = Rendered::default();
    let tokens = &mut rendered.prompt;
    match endpoint {
        OllamaChat | OpenAiChat | AnthropicMessages | AnthropicCountTokens => {
            let messages = match &body["messages"] {
                Value::Array(messages) => messages.as_slice(),
                Value::Null if endpoint == OllamaChat => &[],
                _ => return Err(malformed("messages must be a list")),
            };
            render_chat(body, messages, tokens);
            if messages.is_empty() {
                tokens.clear();
            }
        }
        Endpoint::OllamaGenerate => render_generate(body, tokens),
        Endpoint::OpenAiCompletions => {
            for text in texts(&body["prompt"])? {
                cut(text, tokens);
            }
            if tokens.is_empty() {
                return Err(malformed("prompt is required"));
            }
        }
        Endpoint::OpenAiResponses => {
            render_head(body, &body["instructions"], tokens);
            rendered.talk_from = tokens.len();
            if let Some(id) = previous_response {
                let talk = earlier(id).ok_or_else(|| Refusal::UnknownResponse(id.to_owned()))?;
                tokens.extend_from_slice(&talk);
            }
            render_input(&body["input"], tokens)?;
        }
        _ => {}
    }
    Ok(rendered)
}

fn render_chat(body: &Value, messages: &[Value], tokens: &mut Vec<Token>) {
    render_head(body, &body["system"], tokens);
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

/// Tools, and instructions where they are no message.
fn render_head(body: &Value, system: &Value, tokens: &mut Vec<Token>) {
    let tools = &body["tools"];
    if tools.as_array().is_some_and(|tools| !tools.is_empty()) {
        render("tools", &tools.to_string(), tokens);
    }
    if let Value::String(_) | Value::Array(_) = system {
        open("system", tokens);
        render_content(system, tokens);
        close(tokens);
    }
}

/// The `input` of Responses: a text, or messages, calls and what came of them.
fn render_input(input: &Value, tokens: &mut Vec<Token>) -> Result<(), Refusal> {
    match input {
        Value::String(text) => render("user", text, tokens),
        Value::Array(items) if !items.is_empty() => items.iter().for_each(|item| render_item(item, tokens)),
        _ => return Err(malformed("input is required")),
    }
    open("assistant", tokens);
    Ok(())
}

fn render_item(item: &Value, tokens: &mut Vec<Token>) {
    match item["type"].as_str() {
        // As it was generated.
        Some("function_call") => {
            let arguments = item["arguments"].as_str().unwrap_or_default();
            let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
            render("assistant", &json!([{"name": item["name"], "arguments": arguments}]).to_string(), tokens);
        }
        Some("function_call_output") => {
            open("tool", tokens);
            render_content(&item["output"], tokens);
            close(tokens);
        }
        Some("reasoning") => {}
        _ => {
            open(item["role"].as_str().unwrap_or("user"), tokens);
            render_content(&item["content"], tokens);
            close(tokens);
        }
    }
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

fn inputs(endpoint: Endpoint, body: &Value) -> Result<Vec<Vec<Token>>, Refusal> {
    let texts = match endpoint {
        Endpoint::OllamaEmbed | Endpoint::OpenAiEmbeddings => texts(&body["input"])?,
        Endpoint::OllamaEmbeddings => texts(&body["prompt"])?,
        Endpoint::OpenAiRerank => [texts(&body["query"])?, documents(&body["documents"])?].concat(),
        _ => return Ok(Vec::new()),
    };
    let tokens_of = |text| {
        let mut tokens = Vec::new();
        cut(text, &mut tokens);
        tokens
    };
    Ok(texts.into_iter().map(tokens_of).collect())
}

fn ranking(endpoint: Endpoint, body: &Value) -> Result<Ranking, Refusal> {
    if endpoint != Endpoint::OpenAiRerank {
        return Ok(Ranking::default());
    }
    let query = body["query"].as_str().filter(|query| !query.is_empty());
    let query = query.ok_or_else(|| malformed("query is required"))?.to_owned();
    let documents: Vec<String> = documents(&body["documents"])?.into_iter().map(str::to_owned).collect();
    if documents.is_empty() {
        return Err(malformed("documents are required"));
    }
    Ok(Ranking { query, documents, top_n: positive(&body["top_n"]).map(|most| most as usize) })
}

/// Texts, or objects that have one.
fn documents(value: &Value) -> Result<Vec<&str>, Refusal> {
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    let texts = items.iter().map(|item| item.as_str().or(item["text"].as_str()));
    texts.map(|text| text.ok_or_else(|| malformed("invalid document"))).collect()
}

/// One text or a list of texts.
fn texts(value: &Value) -> Result<Vec<&str>, Refusal> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => Ok(vec![text]),
        Value::Array(items) => {
            items.iter().map(|item| item.as_str().ok_or_else(|| malformed("invalid input type"))).collect()
        }
        _ => Err(malformed("invalid input type")),
    }
}

fn malformed(words: impl Into<String>) -> Refusal {
    Refusal::Malformed(words.into())
}

/// Zero and below mean "no limit" with every engine that accepts them.
fn positive(value: &Value) -> Option<u32> {
    let number = value.as_u64().filter(|number| *number > 0)?;
    Some(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn call(endpoint: Endpoint, body: Value) -> Call {
        read(Kind::ollama(), endpoint, body.to_string().as_bytes(), &|_| None).unwrap()
    }

    #[track_caller]
    fn check_error(endpoint: Endpoint, body: &str, expected: &str) {
        let error = read(Kind::ollama(), endpoint, body.as_bytes(), &|_| None).unwrap_err().to_string();
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
    fn a_response_goes_on_from_the_one_it_names() {
        let vllm = Kind::find("vllm").unwrap();
        let read =
            |body: Value, earlier: Earlier| read(vllm, Endpoint::OpenAiResponses, body.to_string().as_bytes(), earlier);
        let first = read(json!({"input": "hello", "instructions": "Be brief."}), &|_| None).unwrap();
        let talk: Arc<[Token]> = first.continued(&["answer!".to_owned()]).into();
        let stored = |id: &str| (id == "resp_1").then(|| talk.clone());
        let next = read(json!({"input": "more", "previous_response_id": "resp_1"}), &stored).unwrap();
        let spelt = read(
            json!({"input": [
                {"role": "user", "content": "hello"},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "answer!"}]},
                {"role": "user", "content": [{"type": "input_text", "text": "more"}]},
            ]}),
            &|_| None,
        );
        assert_eq!(next.prompt, spelt.unwrap().prompt, "without the instructions of then");
        let gone = read(json!({"input": "more", "previous_response_id": "resp_2"}), &stored);
        assert_eq!(gone, Err(Refusal::UnknownResponse("resp_2".into())));
    }

    #[test]
    fn generate_goes_on_from_its_context() {
        let body = json!({"model": "m", "prompt": "more", "context": [5, 6, -1, "x"]});
        assert!(call(Endpoint::OllamaGenerate, body).prompt.starts_with(&[5, 6]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for endpoint in Endpoint::ALL {
                let _ = read(Kind::ollama(), endpoint, &bytes, &|_| None);
            }
        }
    }
}
