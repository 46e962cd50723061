//! Every way in which Warmgate itself says no, by owner, and what that is in HTTP.
//!
//! The one place where our errors become statuses. A message is a plain sentence that names what to
//! do; it never names an upstream's address, a key or a library. What upstreams answer is passed on
//! as it is and does not come by here.

use super::body::BodyError;
use super::headers::{HEAD_BYTES_MAX, HOPS_MAX};
use super::jwt::TokenFault;
use super::manage::Unmanaged;
use super::tenants::LimitsTold;
use crate::routing::ask::Dialect;
use crate::routing::limits::Over;
use crate::routing::placement::Misplaced;
use crate::routing::retry::Cause;
use crate::wire::peek::PeekError;
use crate::wire::translate::Untranslatable;

#[derive(Debug)]
pub enum Refusal {
    // The client's to mend.
    UnknownPath,
    WrongMethod {
        allow: &'static str,
    },
    /// Its head is larger than any that an engine takes.
    HeadTooLarge,
    /// A web page without leave had a browser send it.
    ForeignPage,
    /// It wants a web socket.
    WebSocket,
    /// It came by so many Warmgates that one of them must be before itself.
    GoesRound,
    BadRequest(PeekError),
    /// The model is only on engines of another dialect, which have nothing like a part of the request.
    Untranslatable(Untranslatable),
    Body(BodyError),
    UnknownModel {
        model: String,
        nearest: Vec<String>,
    },
    /// The node that made the response gone on from cannot serve now.
    ResponseGone,
    WrongDialect {
        model: String,
        dialects: Vec<Dialect>,
    },
    /// It shows no key where one is wanted.
    NoKey,
    /// It shows several that differ.
    KeysDiffer,
    /// What it asks for is no path.
    NoPath,
    /// Its `Connection` names what is not for one connection alone, or too much.
    OddConnection,
    /// Nobody has its key.
    UnknownKey,
    /// Its token names no tenant that it proves to be.
    BadToken(TokenFault),
    /// The keys that tokens are signed with are not here yet.
    NoTokenKeys,
    ModelNotAllowed {
        model: String,
    },
    /// Besides a model that it may use it names others, unseen.
    OthersNotAllowed,
    /// Its tenant has used as much as it may.
    OverLimit {
        over: Over,
        limit: u32,
        retry_after_s: u64,
        /// What is left of each limit, as headers.
        told: LimitsTold,
    },
    // The fleet's.
    AllDown {
        model: String,
        retry_after_s: u64,
    },
    /// Everybody who has the model is busy, and as many wait as may.
    QueueFull {
        model: String,
        retry_after_s: u64,
    },
    /// Everybody who has the model was busy for as long as a request may wait.
    QueueTimeout {
        model: String,
        retry_after_s: u64,
    },
    /// Every node that could serve is busy and wants to be left alone for so long.
    AllCooling {
        model: String,
        retry_after_s: u64,
    },
    /// Nobody who answered has the model, and somebody has not answered yet.
    NotYetKnown {
        model: String,
        retry_after_s: u64,
    },
    /// The engines that have the model do not have this path.
    LacksPath {
        model: String,
    },
    /// The engines that have the model take no salt on this path.
    SharesCache {
        model: String,
    },
    CannotServe {
        model: String,
        missing: &'static str,
    },
    AttemptsFailed {
        last: Cause,
        attempts: usize,
    },
    /// What the model wrote cannot be told in the client's dialect.
    Misspoken,
    Managing(Unmanaged),
    // Ours.
    /// The process ends and cannot wait for it any longer.
    Stopping,
    Internal,
}

impl Refusal {
    pub fn status(&self) -> u16 {
        match self {
            Refusal::UnknownPath | Refusal::UnknownModel { .. } | Refusal::ResponseGone => 404,
            Refusal::NoKey | Refusal::UnknownKey | Refusal::BadToken(_) => 401,
            Refusal::ForeignPage | Refusal::ModelNotAllowed { .. } | Refusal::OthersNotAllowed => 403,
            Refusal::OverLimit { .. } => 429,
            Refusal::WrongMethod { .. } => 405,
            Refusal::HeadTooLarge => 431,
            Refusal::GoesRound => 508,
            Refusal::WebSocket
            | Refusal::KeysDiffer
            | Refusal::NoPath
            | Refusal::OddConnection
            | Refusal::BadRequest(_)
            | Refusal::Untranslatable(_)
            | Refusal::WrongDialect { .. }
            | Refusal::CannotServe { .. }
            | Refusal::LacksPath { .. }
            | Refusal::SharesCache { .. } => 400,
            Refusal::Body(error) => body_status(error),
            Refusal::QueueFull { .. } | Refusal::QueueTimeout { .. } | Refusal::Stopping => 503,
            Refusal::NoTokenKeys => 503,
            Refusal::AllDown { .. } | Refusal::AllCooling { .. } | Refusal::NotYetKnown { .. } => 503,
            Refusal::AttemptsFailed { last: Cause::FirstByteLate, .. } => 504,
            Refusal::AttemptsFailed { last: Cause::Busy(_), .. } => 503,
            Refusal::AttemptsFailed { last: Cause::Unavailable(status), .. } => *status,
            Refusal::AttemptsFailed { last: Cause::ModelGone, .. } => 404,
            Refusal::AttemptsFailed { last: Cause::EngineFailed, .. } => 500,
            Refusal::AttemptsFailed { .. } => 502,
            Refusal::Managing(why) => managing_status(why),
            Refusal::Misspoken | Refusal::Internal => 500,
        }
    }

    pub fn message(&self) -> String {
        match self {
            Refusal::UnknownPath => "this path is not served here".into(),
            Refusal::WrongMethod { allow } => format!("this path takes {allow}"),
            Refusal::HeadTooLarge => {
                format!("the path and headers of this request are larger than {HEAD_BYTES_MAX} bytes together")
            }
            Refusal::ForeignPage => {
                "pages of this origin may not use this Warmgate; whoever runs it can add the origin to \
                                     `cors.origins`"
                    .into()
            }
            Refusal::WebSocket => "web sockets are not spoken here; send a plain request with `stream: true` and read \
                                   its answer as it comes"
                .into(),
            Refusal::GoesRound => format!(
                "this request has come by {HOPS_MAX} Warmgates already: one of them has itself, or one before it, among \
                 its `upstreams`; take it out there"
            ),
            Refusal::NoKey => "this needs a key; send it as `Authorization: Bearer KEY` or as `x-api-key: KEY`".into(),
            Refusal::KeysDiffer => "this request shows several keys that differ; send one".into(),
            Refusal::OddConnection => {
                "the Connection header names headers that every hop needs, or more than ten; leave it out".into()
            }
            Refusal::NoPath => "the target of a request begins with a slash, as in `GET /v1/models HTTP/1.1`".into(),
            Refusal::UnknownKey => "this key is not known here; ask whoever runs this Warmgate for one".into(),
            Refusal::BadToken(fault) => fault.message().into(),
            Refusal::NoTokenKeys => {
                "the keys that tokens are checked with are being fetched; try again in a moment".into()
            }
            Refusal::OthersNotAllowed => {
                "this key may use certain models only, and an engine could take another of those that \
                                          the request names besides `model`; leave out `fallbacks` and the like"
                    .into()
            }
            Refusal::ModelNotAllowed { model } => {
                let shown = shown(model);
                format!("this key may not use model '{shown}'; the list of models has those that it may")
            }
            Refusal::OverLimit { over, limit, .. } => over_limit(*over, *limit),
            Refusal::BadRequest(error) => error.to_string(),
            Refusal::Untranslatable(why) => why.to_string(),
            Refusal::Body(error) => body_message(error),
            Refusal::UnknownModel { model, nearest } => unknown_model(model, nearest),
            Refusal::ResponseGone => "the node that made the response of `previous_response_id` cannot be reached; \
                                      send the conversation as `input` instead"
                .into(),
            Refusal::WrongDialect { model, dialects } => {
                let names: Vec<&str> = dialects.iter().map(|dialect| dialect.name()).collect();
                format!("model '{model}' cannot be reached by this API; use one of: {}", names.join(", "))
            }
            Refusal::AllDown { model, .. } => {
                format!("every node that has model '{model}' is down or drains; try again later")
            }
            Refusal::QueueFull { model, .. } => {
                format!("every node that has model '{}' is busy and the queue is full; try again later", shown(model))
            }
            Refusal::QueueTimeout { model, .. } => {
                format!("every node that has model '{}' stayed busy for too long; try again later", shown(model))
            }
            Refusal::AllCooling { model, .. } => {
                format!("every node that has model '{}' is busy; try again later", shown(model))
            }
            Refusal::NotYetKnown { model, .. } => {
                let shown = shown(model);
                format!("no node that has answered so far has model '{shown}', and some have not answered yet")
            }
            Refusal::LacksPath { model } => format!("no engine that has model '{}' serves this path", shown(model)),
            Refusal::SharesCache { model } => format!(
                "no engine that has model '{}' keeps this key's cached prompts apart on this path, which `cache_salt` \
                 asks for; use /v1/chat/completions",
                shown(model)
            ),
            Refusal::CannotServe { model, missing } => {
                format!("no node that has model '{model}' can serve this request: it lacks {missing}")
            }
            Refusal::AttemptsFailed { last: Cause::FirstByteLate, .. } => {
                "the node did not begin to answer in time".into()
            }
            Refusal::AttemptsFailed { attempts: 1, .. } => "the node failed before it answered".into(),
            Refusal::AttemptsFailed { attempts, .. } => {
                format!("all {attempts} nodes tried failed before they answered")
            }
            Refusal::Misspoken => "the model called a tool with arguments that are not a JSON object; asked again it \
                                   may write others"
                .into(),
            Refusal::Managing(why) => managing_message(why),
            Refusal::Stopping => "this Warmgate is stopping; try again in a moment".into(),
            Refusal::Internal => "something went wrong inside Warmgate; its log has the request id".into(),
        }
    }

    /// Seconds after which trying again may help.
    pub fn retry_after_s(&self) -> Option<u64> {
        match self {
            Refusal::AllDown { retry_after_s, .. }
            | Refusal::NotYetKnown { retry_after_s, .. }
            | Refusal::QueueFull { retry_after_s, .. }
            | Refusal::QueueTimeout { retry_after_s, .. }
            | Refusal::AllCooling { retry_after_s, .. }
            | Refusal::OverLimit { retry_after_s, .. } => Some((*retry_after_s).max(1)),
            Refusal::Body(BodyError::NoMemory) | Refusal::Managing(Unmanaged::TooMany) | Refusal::Stopping => Some(1),
            Refusal::AttemptsFailed { last: Cause::Busy(_), .. } => Some(1),
            Refusal::NoTokenKeys => Some(TOKEN_KEYS_RETRY_S),
            _ => None,
        }
    }

    /// For clients that read `x-should-retry` before the status: `Some(false)` where trying again at
    /// once would only multiply the load.
    pub fn should_retry(&self) -> Option<bool> {
        let is_failure = matches!(
            self,
            Refusal::Misspoken
                | Refusal::AttemptsFailed { .. }
                | Refusal::Managing(Unmanaged::NodeFailed { .. } | Unmanaged::Summed { .. })
        );
        (is_failure && self.retry_after_s().is_none()).then_some(false)
    }
}

/// Fetching them takes a second or two where it succeeds.
const TOKEN_KEYS_RETRY_S: u64 = 2;

fn over_limit(over: Over, limit: u32) -> String {
    let what = match over {
        Over::Requests => "requests a minute",
        Over::Tokens => "tokens a minute",
        Over::Concurrent => "requests at once",
    };
    format!("this key's limit of {limit} {what} is reached; try again later")
}

fn managing_status(why: &Unmanaged) -> u16 {
    match why {
        Unmanaged::Off => 403,
        Unmanaged::TooMany => 503,
        Unmanaged::NotDigest | Unmanaged::Unreadable(_) => 400,
        Unmanaged::Misplaced(Misplaced::NotHeld) => 404,
        Unmanaged::Misplaced(Misplaced::NoNode | Misplaced::HoldersDown) => 503,
        Unmanaged::Misplaced(Misplaced::Scattered) => 409,
        Unmanaged::Misplaced(_) => 400,
        Unmanaged::NodeFailed { .. } => 502,
        Unmanaged::Summed { status, .. } => *status,
    }
}

fn managing_message(why: &Unmanaged) -> String {
    match why {
        Unmanaged::Off => "managing models is switched off here; set `management: true` in Warmgate's \
                           configuration to allow it"
            .into(),
        Unmanaged::TooMany => "too many managing calls are under way; try again when some are done".into(),
        Unmanaged::NotDigest => "a blob's digest is `sha256:` and 64 hexadecimal digits".into(),
        Unmanaged::Unreadable(why) => why.to_string(),
        Unmanaged::Misplaced(why) => misplaced(why),
        Unmanaged::NodeFailed { node } => format!("node '{node}' failed before it answered; nothing was sent again"),
        Unmanaged::Summed { message, .. } => message.clone(),
    }
}

fn misplaced(why: &Misplaced) -> String {
    match why {
        Misplaced::UnknownNode(node) => format!("there is no node '{}'; its name may be misspelt", shown(node)),
        Misplaced::NamesUnreadable => {
            "X-Fleet-Nodes names no node; write `all`, or names with commas between, or leave it out".into()
        }
        Misplaced::NotOllama(node) => format!("node '{}' does not run Ollama and cannot be managed", shown(node)),
        Misplaced::NoNode => "no node that runs Ollama can take this now".into(),
        Misplaced::NotHeld => "not every node named by X-Fleet-Nodes has this model".into(),
        Misplaced::HoldersDown => "every node that has this model is down or draining".into(),
        Misplaced::OneNodeOnly => "this call goes to one node; name one in X-Fleet-Nodes, or none".into(),
        Misplaced::Scattered => "the blobs and models that this create names are not all on one node; \
                                 upload the blobs to one node, named by X-Fleet-Nodes"
            .into(),
    }
}

fn unknown_model(model: &str, nearest: &[String]) -> String {
    let shown = shown(model);
    match nearest {
        [] => format!("model '{shown}' not found"),
        names => format!("model '{shown}' not found; the nearest here: {}", names.join(", ")),
    }
}

/// Of a name that a client made up.
const MAX_SHOWN_CHARS: usize = 120;

fn shown(model: &str) -> String {
    model.chars().take(MAX_SHOWN_CHARS).collect()
}

fn body_status(error: &BodyError) -> u16 {
    match error {
        BodyError::TooLarge { .. } => 413,
        BodyError::TooSlow => 408,
        BodyError::NoMemory => 503,
        BodyError::UnknownCoding(_) => 415,
        BodyError::BadCoding(_) | BodyError::BadFraming(_) | BodyError::FramedOddly => 400,
        BodyError::ClientGone(_) => 499,
    }
}

fn body_message(error: &BodyError) -> String {
    match error {
        BodyError::TooLarge { limit_bytes } => {
            format!("the request body is larger than the limit of {}", crate::units::ByteSize(*limit_bytes as u64))
        }
        other => other.to_string(),
    }
}
