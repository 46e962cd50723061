//! What an answer has to be, where prose will not do: a tool call, or JSON.
//!
//! The simulated model calls a tool when it is told to in so many words: the last message is the
//! user's, contains `call NAME`, and NAME is one of the tools given. The arguments are made up from
//! the tool's schema, the required ones only. JSON is made up in the same way when the client asks
//! for a format. Every text in it says that it is simulated, where the schema leaves the choice.

use serde_json::{Map, Value, json};

use crate::routing::ask::Endpoint;

/// Schemas nested deeper than this get `null`: some refer to themselves.
const DEPTH_MAX: usize = 16;

#[derive(Clone, Debug, Default, PartialEq)]
pub enum Form {
    #[default]
    Prose,
    Json(Value),
    Call(ToolCall),
}

#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    pub name: String,
    pub arguments: Value,
}

impl Form {
    /// What a request's body asks for.
    pub fn wanted(endpoint: Endpoint, body: &Value) -> Form {
        if let Some(call) = wanted_call(endpoint, body) {
            return Form::Call(call);
        }
        match wanted_schema(endpoint, body) {
            Some(schema) => Form::Json(sample(schema, DEPTH_MAX)),
            None => Form::Prose,
        }
    }

    /// The answer's text as the model would generate it, unless that is free.
    pub fn text(&self) -> Option<String> {
        match self {
            Form::Prose => None,
            Form::Json(value) => Some(value.to_string()),
            Form::Call(call) => Some(json!([{"name": call.name, "arguments": call.arguments}]).to_string()),
        }
    }

    pub fn call(&self) -> Option<&ToolCall> {
        match self {
            Form::Call(call) => Some(call),
            Form::Prose | Form::Json(_) => None,
        }
    }
}

fn wanted_call(endpoint: Endpoint, body: &Value) -> Option<ToolCall> {
    let said = last_said(endpoint, body)?;
    let wanted = said.split("call ").skip(1).map(|rest| rest.split(|c| !is_of_a_name(c)).next().unwrap_or(rest));
    let tools = body["tools"].as_array()?;
    wanted.filter_map(|name| tools.iter().find_map(|tool| call_of(tool, name))).next()
}

/// A call of this tool, if that is its name: the tools of Anthropic and of Responses are flat, the others wrapped.
fn call_of(tool: &Value, name: &str) -> Option<ToolCall> {
    let function = tool.get("function").unwrap_or(tool);
    if function["name"] != name {
        return None;
    }
    let schema = function.get("parameters").or(function.get("input_schema")).unwrap_or(&Value::Null);
    let arguments = match sample(schema, DEPTH_MAX) {
        object @ Value::Object(_) => object,
        _ => json!({}),
    };
    Some(ToolCall { name: name.into(), arguments })
}

/// The user's words, if they are the last.
fn last_said(endpoint: Endpoint, body: &Value) -> Option<String> {
    let talk = match endpoint {
        Endpoint::OllamaChat | Endpoint::OpenAiChat | Endpoint::AnthropicMessages => &body["messages"],
        Endpoint::OpenAiResponses => &body["input"],
        _ => return None,
    };
    if let Value::String(input) = talk {
        return Some(input.clone());
    }
    let last = talk.as_array()?.last()?;
    (last["role"] == "user").then(|| said(&last["content"]))
}

fn said(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

fn is_of_a_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-')
}

/// The schema that the answer's JSON must fit; null for any.
fn wanted_schema(endpoint: Endpoint, body: &Value) -> Option<&Value> {
    match endpoint {
        Endpoint::OllamaChat | Endpoint::OllamaGenerate => match &body["format"] {
            Value::String(format) if format == "json" => Some(&Value::Null),
            schema @ Value::Object(_) => Some(schema),
            _ => None,
        },
        Endpoint::OpenAiChat => {
            let format = &body["response_format"];
            json_schema(format, &format["json_schema"])
        }
        Endpoint::OpenAiResponses => {
            let format = &body["text"]["format"];
            json_schema(format, format)
        }
        _ => None,
    }
}

fn json_schema<'a>(format: &Value, described: &'a Value) -> Option<&'a Value> {
    match format["type"].as_str()? {
        "json_object" => Some(&Value::Null),
        "json_schema" => Some(&described["schema"]),
        _ => None,
    }
}

/// A value that fits a schema, as far as its `type`, `enum` and `required` go.
fn sample(schema: &Value, depth: usize) -> Value {
    if depth == 0 {
        return Value::Null;
    }
    if let Some(first) = schema["enum"].as_array().and_then(|values| values.first()) {
        return first.clone();
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.first().and_then(Value::as_str),
        kind => kind.as_str(),
    };
    match kind {
        Some("string") => json!("[simulated]"),
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("null") => Value::Null,
        _ if schema.get("properties").is_some() => sample_object(schema, depth),
        Some("object") => json!({}),
        _ => json!({"simulated": true}),
    }
}

fn sample_object(schema: &Value, depth: usize) -> Value {
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let sampled = required.map(|name| (name.to_owned(), sample(&schema["properties"][name], depth - 1)));
    Value::Object(sampled.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Value {
        json!({
            "type": "object",
            "required": ["city", "unit", "days", "near"],
            "properties": {
                "city": {"type": "string"},
                "unit": {"enum": ["celsius", "kelvin"]},
                "days": {"type": ["integer", "null"]},
                "near": {"type": "object", "properties": {"sea": {"type": "boolean"}}, "required": ["sea"]},
                "note": {"type": "string"},
            },
        })
    }

    fn sampled() -> Value {
        json!({"city": "[simulated]", "unit": "celsius", "days": 1, "near": {"sea": true}})
    }

    #[track_caller]
    fn check(endpoint: Endpoint, body: Value, expected: Form) {
        assert_eq!(Form::wanted(endpoint, &body), expected);
    }

    fn chat(messages: Value) -> Value {
        let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": schema()}});
        json!({"messages": messages, "tools": [tool("get_weather"), tool("get_wea")]})
    }

    #[test]
    fn a_tool_is_called_when_the_user_says_so() {
        let call = Form::Call(ToolCall { name: "get_weather".into(), arguments: sampled() });
        let asked = chat(json!([{"role": "user", "content": "Do not call me. Please call get_weather."}]));
        check(Endpoint::OllamaChat, asked.clone(), call.clone());
        check(Endpoint::OpenAiChat, asked.clone(), call.clone());
        check(Endpoint::OllamaGenerate, asked, Form::Prose);
        let anthropic = json!({
            "messages": [{"role": "user", "content": [{"type": "text", "text": "call get_weather"}]}],
            "tools": [{"name": "get_weather", "input_schema": schema()}],
        });
        check(Endpoint::AnthropicMessages, anthropic, call.clone());
        let tool = json!({"type": "function", "name": "get_weather", "parameters": schema()});
        let responses = json!({"input": "call get_weather", "tools": [tool]});
        check(Endpoint::OpenAiResponses, responses, call);
    }

    #[test]
    fn no_tool_is_called_otherwise() {
        let check_prose = |messages| check(Endpoint::OpenAiChat, chat(messages), Form::Prose);
        check_prose(json!([{"role": "user", "content": "call get_rain"}]));
        check_prose(json!([{"role": "user", "content": "What does get_weather do?"}]));
        let done = json!([{"role": "user", "content": "call get_weather"}, {"role": "tool", "content": "12 degrees"}]);
        check_prose(done);
        check_prose(json!([]));
    }

    #[test]
    fn json_is_given_when_the_client_asks_for_it() {
        let any = Form::Json(json!({"simulated": true}));
        check(Endpoint::OllamaGenerate, json!({"format": "json"}), any.clone());
        check(Endpoint::OllamaChat, json!({"format": schema()}), Form::Json(sampled()));
        check(Endpoint::OllamaChat, json!({"format": ""}), Form::Prose);
        check(Endpoint::OpenAiChat, json!({"response_format": {"type": "json_object"}}), any);
        let strict = json!({"response_format": {"type": "json_schema", "json_schema": {"schema": schema()}}});
        check(Endpoint::OpenAiChat, strict, Form::Json(sampled()));
        let flat = json!({"text": {"format": {"type": "json_schema", "schema": schema()}}});
        check(Endpoint::OpenAiResponses, flat, Form::Json(sampled()));
        check(Endpoint::OpenAiChat, json!({"response_format": {"type": "text"}}), Form::Prose);
    }

    #[test]
    fn a_schema_without_end_ends() {
        let mut schema = json!({"type": "string"});
        for _ in 0..100 {
            schema = json!({"type": "object", "properties": {"x": schema}, "required": ["x"]});
        }
        assert!(sample(&schema, DEPTH_MAX).to_string().contains("null"));
    }
}
