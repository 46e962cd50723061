//! What a scripted node says about itself when it is polled.

use http::StatusCode;
use serde_json::{Value, json};

/// Whose polling paths the node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Ollama,
    OpenAi,
    LiteLlm,
    Vllm,
}

impl Engine {
    pub fn name(self) -> &'static str {
        match self {
            Engine::Ollama => "ollama",
            Engine::OpenAi => "openai",
            Engine::LiteLlm => "litellm",
            Engine::Vllm => "vllm",
        }
    }
}

/// One model on the node.
#[derive(Clone, Debug)]
pub struct Model {
    pub name: String,
    pub size_bytes: u64,
    pub resident: bool,
    pub context_tokens: u32,
    /// What `/api/show` says of it; `None`: nothing, with a 404.
    pub shown: Option<Value>,
}

impl Model {
    /// A small model in memory.
    pub fn resident(name: &str) -> Model {
        Model { name: name.to_owned(), size_bytes: 4_000_000_000, resident: true, context_tokens: 32_768, shown: None }
    }

    /// The same on disk only.
    pub fn on_disk(name: &str) -> Model {
        Model { resident: false, ..Model::resident(name) }
    }
}

/// How the node behaves when polled, whatever it does with real requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polls {
    Answered,
    Failing,
    Silent,
}

pub struct Catalogue {
    pub engine: Engine,
    pub models: Vec<Model>,
    pub polls: Polls,
    /// What a vLLM's `/metrics` says.
    pub metrics: String,
}

impl Catalogue {
    /// Status and body of a polling path; `None` means that no answer ever comes.
    pub fn answer(&self, path: &str) -> Option<(StatusCode, String)> {
        match self.polls {
            Polls::Silent => None,
            Polls::Failing => Some((StatusCode::INTERNAL_SERVER_ERROR, "failing".into())),
            Polls::Answered => Some(match self.body(path) {
                Some(body) => (StatusCode::OK, body),
                None => (StatusCode::NOT_FOUND, "404 page not found".into()),
            }),
        }
    }

    fn body(&self, path: &str) -> Option<String> {
        let body = match (self.engine, path) {
            (Engine::Ollama, "/") => return Some("Ollama is running".into()),
            (Engine::Ollama, "/api/version") => json!({"version": "0.33.0"}),
            (Engine::Ollama, "/api/tags") => json!({"models": self.list(|_| true, tags_entry)}),
            (Engine::Ollama, "/api/ps") => json!({"models": self.list(|m| m.resident, ps_entry)}),
            (Engine::LiteLlm, "/health/liveliness") => json!("I'm alive!"),
            (Engine::Vllm, "/metrics") => return Some(self.metrics.clone()),
            (Engine::OpenAi | Engine::Vllm, "/health") => json!({"status": "ok"}),
            (_, "/v1/models") => {
                json!({"object": "list", "data": self.list(|_| true, openai_entry)})
            }
            _ => return None,
        };
        Some(body.to_string())
    }

    /// Status and body of `/api/show`.
    pub fn shown(&self, question: &[u8]) -> (StatusCode, String) {
        let asked: Value = serde_json::from_slice(question).unwrap_or_default();
        let model = self.models.iter().find(|model| asked["model"] == model.name.as_str());
        match model.and_then(|model| model.shown.as_ref()) {
            Some(shown) => (StatusCode::OK, shown.to_string()),
            None => (StatusCode::NOT_FOUND, json!({"error": "model not found"}).to_string()),
        }
    }

    fn list(&self, keep: fn(&Model) -> bool, entry: fn(&Model) -> Value) -> Vec<Value> {
        let kept = self.models.iter().filter(|m| keep(m));
        kept.map(entry).collect()
    }
}

fn tags_entry(model: &Model) -> Value {
    json!({
        "name": model.name,
        "model": model.name,
        "modified_at": "2026-01-01T00:00:00Z",
        "size": model.size_bytes,
        "digest": format!("{:064x}", xxhash_rust::xxh3::xxh3_128(model.name.as_bytes())),
        "details": {"format": "gguf", "family": "moss", "parameter_size": "7B"},
    })
}

fn ps_entry(model: &Model) -> Value {
    let mut entry = tags_entry(model);
    entry["size_vram"] = json!(model.size_bytes);
    entry["context_length"] = json!(model.context_tokens);
    entry["expires_at"] = json!("2096-01-01T00:00:00Z");
    entry
}

fn openai_entry(model: &Model) -> Value {
    json!({
        "id": model.name,
        "object": "model",
        "created": 1_767_225_600,
        "owned_by": "test",
        "max_model_len": model.context_tokens,
    })
}
