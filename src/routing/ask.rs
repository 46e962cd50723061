//! What a request wants, distilled from its path and its bytes.
//!
//! An `Ask` is everything a decision may depend on, and nothing else: no header, no socket, no text
//! of the prompt. It can be written into a selection key and read back (`edge::selection`).

use serde::{Deserialize, Serialize};

use super::chain::Chain;
use super::runner::RunnerOptions;

/// The API a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    Ollama,
    OpenAi,
    Anthropic,
}

impl Dialect {
    pub const ALL: [Dialect; 3] = [Dialect::Ollama, Dialect::OpenAi, Dialect::Anthropic];

    /// The dialect whose error form a path's callers understand: `/v1/messages` is Anthropic's,
    /// other `/v1/` paths OpenAI's, everything else Ollama's.
    pub fn of_path(path: &str) -> Dialect {
        if path.starts_with("/v1/messages") {
            Dialect::Anthropic
        } else if path == "/v1" || path.starts_with("/v1/") {
            Dialect::OpenAi
        } else {
            Dialect::Ollama
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Dialect::Ollama => "ollama",
            Dialect::OpenAi => "openai",
            Dialect::Anthropic => "anthropic",
        }
    }
}

/// A path that carries a model and is sent to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Endpoint {
    OllamaChat,
    OllamaGenerate,
    OllamaEmbed,
    OllamaEmbeddings,
    OllamaShow,
    OpenAiChat,
    OpenAiCompletions,
    OpenAiEmbeddings,
    OpenAiResponses,
    OpenAiRerank,
    OpenAiTranscriptions,
    OpenAiTranslations,
    OpenAiSpeech,
    AnthropicMessages,
    AnthropicCountTokens,
}

impl Endpoint {
    pub const ALL: [Endpoint; 15] = [
        Endpoint::OllamaChat,
        Endpoint::OllamaGenerate,
        Endpoint::OllamaEmbed,
        Endpoint::OllamaEmbeddings,
        Endpoint::OllamaShow,
        Endpoint::OpenAiChat,
        Endpoint::OpenAiCompletions,
        Endpoint::OpenAiEmbeddings,
        Endpoint::OpenAiResponses,
        Endpoint::OpenAiRerank,
        Endpoint::OpenAiTranscriptions,
        Endpoint::OpenAiTranslations,
        Endpoint::OpenAiSpeech,
        Endpoint::AnthropicMessages,
        Endpoint::AnthropicCountTokens,
    ];

    pub fn of_path(path: &str) -> Option<Endpoint> {
        Endpoint::ALL.into_iter().find(|e| e.path() == path)
    }

    pub fn path(self) -> &'static str {
        match self {
            Endpoint::OllamaChat => "/api/chat",
            Endpoint::OllamaGenerate => "/api/generate",
            Endpoint::OllamaEmbed => "/api/embed",
            Endpoint::OllamaEmbeddings => "/api/embeddings",
            Endpoint::OllamaShow => "/api/show",
            Endpoint::OpenAiChat => "/v1/chat/completions",
            Endpoint::OpenAiCompletions => "/v1/completions",
            Endpoint::OpenAiEmbeddings => "/v1/embeddings",
            Endpoint::OpenAiResponses => "/v1/responses",
            Endpoint::OpenAiRerank => "/v1/rerank",
            Endpoint::OpenAiTranscriptions => "/v1/audio/transcriptions",
            Endpoint::OpenAiTranslations => "/v1/audio/translations",
            Endpoint::OpenAiSpeech => "/v1/audio/speech",
            Endpoint::AnthropicMessages => "/v1/messages",
            Endpoint::AnthropicCountTokens => "/v1/messages/count_tokens",
        }
    }

    pub fn dialect(self) -> Dialect {
        Dialect::of_path(self.path())
    }

    /// What an absent `stream` means: Ollama's own generating calls stream, nobody else's do.
    pub fn streams_by_default(self) -> bool {
        matches!(self, Endpoint::OllamaChat | Endpoint::OllamaGenerate)
    }

    /// Whether answering runs the model over a conversation, so that warmth exists at all.
    pub fn is_conversation(self) -> bool {
        matches!(
            self,
            Endpoint::OllamaChat
                | Endpoint::OllamaGenerate
                | Endpoint::OpenAiChat
                | Endpoint::OpenAiCompletions
                | Endpoint::OpenAiResponses
                | Endpoint::AnthropicMessages
        )
    }

    /// Whether answering occupies a slot of the model.
    pub fn runs_model(self) -> bool {
        !matches!(self, Endpoint::OllamaShow | Endpoint::AnthropicCountTokens)
    }

    /// Whether doing it twice is as good as doing it once, so that a request which may have been begun can
    /// be sent again. Running a model leaves nothing behind.
    pub fn is_repeatable(self) -> bool {
        self.runs_model() || matches!(self, Endpoint::OllamaShow | Endpoint::AnthropicCountTokens)
    }

    /// Whether a request here can be put to an engine that speaks OpenAI and not this dialect.
    pub fn is_translatable(self) -> bool {
        use Endpoint::{OllamaChat, OllamaEmbed, OllamaEmbeddings, OllamaGenerate};
        matches!(self, OllamaChat | OllamaGenerate | OllamaEmbed | OllamaEmbeddings)
    }

    /// Whether the body is a multipart form and no JSON.
    pub fn takes_form(self) -> bool {
        matches!(self, Endpoint::OpenAiTranscriptions | Endpoint::OpenAiTranslations)
    }
}

/// How urgent a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// Somebody waits for it.
    #[default]
    Interactive,
    /// Nobody does.
    Batch,
}

impl Priority {
    pub const ALL: [Priority; 2] = [Priority::Interactive, Priority::Batch];

    pub fn name(self) -> &'static str {
        match self {
            Priority::Interactive => "interactive",
            Priority::Batch => "batch",
        }
    }

    /// Its place in `ALL`.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// Abilities of a model that a request cannot do without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needs {
    pub vision: bool,
    pub tools: bool,
    pub embedding: bool,
    /// Ollama's `think`.
    pub thinking: bool,
}

/// A request, as far as routing is concerned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    pub endpoint: Endpoint,
    /// The model as the client wrote it, JSON escapes undone.
    pub model: String,
    /// Whether the answer is to be streamed, the endpoint's default applied.
    pub stream: bool,
    /// The conversation so far, as hashes. Empty for endpoints that are no conversation.
    pub chain: Chain,
    /// Estimated size of the prompt in tokens: text, tools and images; at least 1.
    pub prompt_tokens: u32,
    /// The most tokens the client lets the model answer with, where it said.
    pub max_output_tokens: Option<u32>,
    /// Ollama's `options` that a model is loaded with.
    pub runner: RunnerOptions,
    pub needs: Needs,
    /// Hash of the session's name, from an affinity header or `prompt_cache_key`.
    pub session_name: Option<u64>,
    /// Hash of the stored response that this request goes on from (`previous_response_id`).
    pub previous_response: Option<u64>,
    /// Hash of the tenant; zero while everything is open.
    pub tenant: u64,
    /// Its prompt is to be kept apart from other tenants' in the engine's cache.
    #[serde(default)]
    pub salted: bool,
    pub priority: Priority,
}

impl Ask {
    /// An ask of which nothing is known but where it came in and for whom.
    pub fn new(endpoint: Endpoint, model: String) -> Ask {
        Ask {
            endpoint,
            model,
            stream: endpoint.streams_by_default(),
            chain: Chain::default(),
            prompt_tokens: 1,
            max_output_tokens: None,
            runner: RunnerOptions::default(),
            needs: Needs::default(),
            session_name: None,
            previous_response: None,
            tenant: 0,
            salted: false,
            priority: Priority::default(),
        }
    }

    /// Tokens the context window must hold.
    pub fn tokens_needed(&self) -> u64 {
        u64::from(self.prompt_tokens) + u64::from(self.max_output_tokens.unwrap_or(0))
    }

    /// Whether a window of so many tokens holds it; one that is not known does.
    pub fn fits(&self, window_tokens: Option<u32>) -> bool {
        window_tokens.is_none_or(|window| u64::from(window) >= self.tokens_needed())
    }
}

#[cfg(test)]
impl Ask {
    /// A chat of which nothing matters.
    pub fn plain() -> Ask {
        Ask::new(Endpoint::OllamaChat, "qwen3:32b".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_is_one_endpoint_of_one_dialect() {
        for endpoint in Endpoint::ALL {
            assert_eq!(Endpoint::of_path(endpoint.path()), Some(endpoint));
            let named = format!("{endpoint:?}").to_lowercase();
            assert!(named.starts_with(endpoint.dialect().name()), "{endpoint:?}");
        }
    }
}
