//! Going on with a chat stream that was cut, at another node.
//!
//! A node that takes the text so far as the beginning of its answer says the rest. What the client was given
//! is followed frame by frame (`Follower`), the text so far is put into the request (`Prefix`), and the second
//! answer is joined to the first (`Stitch`): no word twice, one head, one end, counts as of one answer.
//!
//! Plain text of one choice goes on and nothing else does. Where the output is bound to a form, a tool call has
//! begun, the model still thinks, or anything stands in a frame that is not known here, the stream is `Unfit`.

mod follower;
mod frame;
mod members;
mod request;
mod stitch;

pub use follower::{Follower, Said};
pub use request::Prefix;
pub use stitch::{Base, Stitch};

use super::frame_end::Ends;
use super::framing::Framing;
use crate::routing::ask::Endpoint;

/// The two streams that can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ollama,
    OpenAi,
}

impl Kind {
    /// `None`: what this endpoint answers does not go on.
    pub fn of(endpoint: Endpoint) -> Option<Kind> {
        match endpoint {
            Endpoint::OllamaChat => Some(Kind::Ollama),
            Endpoint::OpenAiChat => Some(Kind::OpenAi),
            _ => None,
        }
    }

    fn ends(self) -> Ends {
        match self {
            Kind::Ollama => Ends::Line,
            Kind::OpenAi => Ends::BlankLine,
        }
    }

    pub fn framing(self) -> Framing {
        match self {
            Kind::Ollama => Framing::Lines,
            Kind::OpenAi => Framing::Events,
        }
    }
}

/// Why a stream does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It has said that it is over, or that it failed.
    Over,
    /// The text so far is longer than is kept.
    TooLong,
    /// A tool call has begun.
    Tools,
    /// The model thinks, or thought in a way that cannot be handed over.
    Thinking,
    /// Something in a frame that is not known here.
    Odd,
    /// The request binds the output to a form, wants more than one, or wants to see more than text.
    Bound,
    /// The request ends with the beginning of an answer already, or says itself how that is to be taken.
    Prefilled,
    /// It has said as much as the request allows.
    AtItsLimit,
}

impl Unfit {
    pub fn reason(self) -> &'static str {
        match self {
            Unfit::Over => "it had come to its end",
            Unfit::TooLong => "its text is too long",
            Unfit::Tools => "a tool call had begun",
            Unfit::Thinking => "the model was thinking",
            Unfit::Odd => "something in it is not known",
            Unfit::Bound => "its output is bound to a form, or more than text",
            Unfit::Prefilled => "the request begins the answer itself",
            Unfit::AtItsLimit => "it had said all that it may",
        }
    }
}

#[cfg(test)]
mod tests;
