//! Why a node does not do what it is asked. The words and the shape are each kind's own.

use thiserror::Error;

/// The words here are for the kinds that have none of their own.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("Not Found")]
    NoSuchPath,
    #[error("method not allowed")]
    WrongMethod,
    #[error("request body too large")]
    BodyTooLarge,
    #[error("{0}")]
    Malformed(String),
    #[error("model '{0}' not found")]
    UnknownModel(String),
    #[error("\"{model}\" does not support {ability}")]
    Unable { model: String, ability: &'static str },
    #[error("{tokens} tokens do not fit into a context window of {window}")]
    TooLong { tokens: u64, window: u32 },
    #[error("Response with id '{0}' not found.")]
    UnknownResponse(String),
    #[error("as many requests wait as may")]
    Busy,
    #[error("model requires more system memory than is available")]
    NoMemory,
    #[error("told to answer with this status")]
    Told(u16),
}

impl Refusal {
    pub fn status(&self) -> u16 {
        match self {
            Refusal::Malformed(_) | Refusal::Unable { .. } | Refusal::TooLong { .. } => 400,
            Refusal::NoSuchPath | Refusal::UnknownModel(_) | Refusal::UnknownResponse(_) => 404,
            Refusal::WrongMethod => 405,
            Refusal::BodyTooLarge => 413,
            Refusal::NoMemory => 500,
            Refusal::Busy => 503,
            Refusal::Told(status) => *status,
        }
    }
}
