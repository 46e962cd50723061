//! What a scripted node says about itself when it is polled.

use std::collections::BTreeSet;

use http::StatusCode;
use serde_json::{Value, json};

use crate::http1::Head;

/// Whose polling paths the node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Ollama,
    OpenAi,
    LiteLlm,
    Vllm,
    LlamaCpp,
}

impl Engine {
    pub fn name(self) -> &'static str {
        match self {
            Engine::Ollama => "ollama",
            Engine::OpenAi => "openai",
            Engine::LiteLlm => "litellm",
            Engine::Vllm => "vllm",
            Engine::LlamaCpp => "llama_cpp",
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
    pub digest: String,
    pub quantization: String,
}

impl Model {
    /// A small model in memory.
    pub fn resident(name: &str) -> Model {
        Model {
            name: name.to_owned(),
            size_bytes: 4_000_000_000,
            resident: true,
            context_tokens: 32_768,
            digest: format!("{:064x}", xxhash_rust::xxh3::xxh3_128(name.as_bytes())),
            quantization: "Q4_K_M".to_owned(),
            shown: None,
        }
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
    /// Somebody's page with status 200 at every path.
    Page,
    /// As llama.cpp does while it loads; the list of models is there, as in some builds.
    Loading,
}

pub struct Catalogue {
    pub engine: Engine,
    pub models: Vec<Model>,
    pub polls: Polls,
    /// Paths that hang, whatever `polls` says.
    pub silent_paths: BTreeSet<&'static str>,
    /// The `Authorization` without which every path answers 401.
    pub authorization: Option<String>,
    /// The text of `/metrics`, where the engine has them.
    pub metrics: String,
    /// What `/keys` answers: the keys of an issuer of tokens.
    pub keys: Value,
    /// Of a vLLM.
    pub version: &'static str,
    /// What it was asked for, oldest first.
    pub polled: Vec<Polled>,
}

/// One poll: its method, path and `Authorization`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Polled {
    pub method: String,
    pub path: String,
    pub authorization: Option<String>,
}

impl Catalogue {
    pub fn new(engine: Engine, models: Vec<Model>) -> Catalogue {
        Catalogue {
            engine,
            models,
            polls: Polls::Answered,
            silent_paths: BTreeSet::new(),
            authorization: None,
            metrics: String::new(),
            keys: Value::Null,
            version: "0.33.0",
            polled: Vec::new(),
        }
    }

    /// Status and body of a poll; `None` means that no answer ever comes.
    pub fn answer(&mut self, head: &Head) -> Option<(StatusCode, String)> {
        let (method, path) = (head.word(0).to_owned(), head.word(1));
        let authorization = head.get("authorization").map(str::to_owned);
        let is_allowed = self.authorization.is_none() || self.authorization == authorization;
        self.polled.push(Polled { method, path: path.to_owned(), authorization });
        let loading = || json!({"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}});
        match self.polls {
            _ if self.silent_paths.contains(path) => None,
            _ if !is_allowed => Some((StatusCode::UNAUTHORIZED, "who are you?".into())),
            Polls::Silent => None,
            Polls::Page => Some((StatusCode::OK, "<!doctype html><title>Welcome</title>".into())),
            Polls::Loading if path != "/v1/models" => Some((StatusCode::SERVICE_UNAVAILABLE, loading().to_string())),
            Polls::Failing => Some((StatusCode::INTERNAL_SERVER_ERROR, "failing".into())),
            Polls::Answered | Polls::Loading => Some(match self.body(path) {
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
            (Engine::Vllm, "/version") => json!({"version": self.version}),
            (Engine::Vllm, "/health") => return Some(String::new()),
            (Engine::Vllm, "/metrics") => return Some(self.metrics.clone()),
            (Engine::OpenAi | Engine::LlamaCpp, "/health") => json!({"status": "ok"}),
            (_, "/v1/models") => {
                json!({"object": "list", "data": self.list(|_| true, openai_entry)})
            }
            (_, path) if path.starts_with("/keys") && !self.keys.is_null() => self.keys.clone(),
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
        "digest": model.digest,
        "details": {
            "parent_model": "",
            "format": "gguf",
            "family": "moss",
            "families": ["moss"],
            "parameter_size": "7B",
            "quantization_level": model.quantization,
        },
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
