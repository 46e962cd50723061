//! Conversations as clients hold them, in both of the dialects that first light speaks.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::client::Request;
use crate::upstream::Script;

/// The model that every test's nodes hold unless it says otherwise.
pub const MODEL: &str = "moss:7b";

/// A client's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Ollama,
    OpenAi,
}

impl Dialect {
    pub const BOTH: [Dialect; 2] = [Dialect::Ollama, Dialect::OpenAi];

    pub fn chat_path(self) -> &'static str {
        match self {
            Dialect::Ollama => "/api/chat",
            Dialect::OpenAi => "/v1/chat/completions",
        }
    }

    /// The head of a streamed answer.
    pub fn stream(self) -> Script {
        match self {
            Dialect::Ollama => Script::ndjson(),
            Dialect::OpenAi => Script::sse(),
        }
    }

    /// The frame that says a streamed answer is whole.
    pub fn last_frame(self) -> Bytes {
        Bytes::from_static(match self {
            Dialect::Ollama => b"{\"model\":\"moss:7b\",\"done\":true,\"done_reason\":\"stop\"}\n",
            Dialect::OpenAi => b"data: [DONE]\n\n",
        })
    }

    /// One frame of a streamed answer that adds this text.
    pub fn frame(self, text: &str) -> Bytes {
        let frame = match self {
            Dialect::Ollama => json!({
                "model": MODEL,
                "message": {"role": "assistant", "content": text},
                "done": false,
            }),
            Dialect::OpenAi => json!({
                "object": "chat.completion.chunk",
                "model": MODEL,
                "choices": [{"index": 0, "delta": {"content": text}}],
            }),
        };
        match self {
            Dialect::Ollama => format!("{frame}\n").into(),
            Dialect::OpenAi => format!("data: {frame}\n\n").into(),
        }
    }

    /// The sentence of an error, if the value has this dialect's form of one.
    pub fn error_text(self, body: &Value) -> Option<&str> {
        match self {
            Dialect::Ollama => body["error"].as_str(),
            Dialect::OpenAi => {
                body["error"]["type"].as_str()?;
                body["error"]["message"].as_str()
            }
        }
    }
}

/// One conversation: what was said so far.
#[derive(Clone, Debug)]
pub struct Talk {
    dialect: Dialect,
    messages: Vec<Value>,
}

impl Talk {
    /// A conversation opened by the user; texts differ from the first word where topics do.
    pub fn about(dialect: Dialect, topic: &str) -> Talk {
        let talk = Talk { dialect, messages: Vec::new() };
        talk.user(&format!("{topic}: tell me something about {topic}, please."))
    }

    /// The same conversation after the node's usual answer and a new question.
    pub fn then(self, question: &str) -> Talk {
        self.message("assistant", "all is well").user(question)
    }

    /// The same with a picture of that many bytes in its last message.
    pub fn with_picture(mut self, size: usize) -> Talk {
        let base64 = "iVBORw0KGgo".repeat(size / 11);
        let last = self.messages.last_mut().expect("a message");
        match self.dialect {
            Dialect::Ollama => last["images"] = json!([base64]),
            Dialect::OpenAi => {
                let url = format!("data:image/png;base64,{base64}");
                let text = json!({"type": "text", "text": last["content"]});
                let image = json!({"type": "image_url", "image_url": {"url": url}});
                last["content"] = json!([text, image]);
            }
        }
        self
    }

    /// The request for the next answer, streamed.
    pub fn ask(&self) -> Request {
        self.ask_with(json!({"stream": true}))
    }

    /// The request with these fields besides model and messages.
    pub fn ask_with(&self, fields: Value) -> Request {
        let mut body = json!({"model": MODEL, "messages": self.messages});
        for (name, value) in fields.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        Request::post(self.dialect.chat_path(), body.to_string())
    }

    fn user(self, text: &str) -> Talk {
        self.message("user", text)
    }

    fn message(mut self, role: &str, text: &str) -> Talk {
        self.messages.push(json!({"role": role, "content": text}));
        self
    }
}
