//! What a path asks a model for, and in which dialect.
//!
//! Mostly the endpoints that an ingress knows. Anthropic's messages are a chat like any other, told
//! in another way.

use crate::routing::ask::{Dialect, Endpoint};

/// A path that makes a model work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    pub path: &'static str,
    pub dialect: Dialect,
    /// The kind of work.
    pub endpoint: Endpoint,
}

const MESSAGES: Service = Service { path: "/v1/messages", dialect: Dialect::Anthropic, endpoint: Endpoint::OpenAiChat };

/// The other endpoints that are simulated.
pub const SPOKEN: [Endpoint; 7] = [
    Endpoint::OllamaChat,
    Endpoint::OllamaGenerate,
    Endpoint::OllamaEmbed,
    Endpoint::OllamaEmbeddings,
    Endpoint::OpenAiChat,
    Endpoint::OpenAiCompletions,
    Endpoint::OpenAiEmbeddings,
];

impl Service {
    pub fn of_path(path: &str) -> Option<Service> {
        if path == MESSAGES.path {
            return Some(MESSAGES);
        }
        Endpoint::of_path(path).filter(|endpoint| SPOKEN.contains(endpoint)).map(Service::from)
    }

    /// Whether messages go in, and tools may be called.
    pub fn is_chat(self) -> bool {
        matches!(self.endpoint, Endpoint::OllamaChat | Endpoint::OpenAiChat)
    }
}

impl From<Endpoint> for Service {
    fn from(endpoint: Endpoint) -> Service {
        Service { path: endpoint.path(), dialect: endpoint.dialect(), endpoint }
    }
}
