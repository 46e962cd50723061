//! What a path on the client port means. What is not named here does not exist, whatever an engine
//! behind might make of it: nothing is passed on by default.

use http::Method;
use percent_encoding::percent_decode_str;

use super::manage::Call;
use crate::routing::ask::Endpoint;

#[derive(Debug, PartialEq, Eq)]
pub enum Route {
    Local(Local),
    Forward(Endpoint),
    /// Ollama's managing surface; whether it is open is not the path's to say.
    Manage(Call),
    WrongMethod {
        allow: &'static str,
    },
    Unknown,
}

impl Route {
    /// Whether it is open to everybody, keys or no keys: it says whether the process lives and can serve.
    pub fn is_open(&self) -> bool {
        matches!(self, Route::Local(Local::Healthz | Local::Readyz))
    }
}

/// Answered here, without any node.
#[derive(Debug, PartialEq, Eq)]
pub enum Local {
    Root,
    Version,
    Tags,
    Ps,
    Models,
    Model(String),
    Healthz,
    Readyz,
}

const READ: &str = "GET, HEAD";

pub fn of(method: &Method, path: &str) -> Route {
    if let Some(endpoint) = Endpoint::of_path(path) {
        return if method == Method::POST { Route::Forward(endpoint) } else { Route::WrongMethod { allow: "POST" } };
    }
    if let Some(call) = Call::of_path(path) {
        return if call.takes(method) { Route::Manage(call) } else { Route::WrongMethod { allow: call.allow() } };
    }
    match local(path) {
        Some(local) if [Method::GET, Method::HEAD].contains(method) => Route::Local(local),
        Some(_) => Route::WrongMethod { allow: READ },
        None => Route::Unknown,
    }
}

fn local(path: &str) -> Option<Local> {
    Some(match path {
        "/" => Local::Root,
        "/api/version" => Local::Version,
        "/api/tags" => Local::Tags,
        "/api/ps" => Local::Ps,
        "/v1/models" => Local::Models,
        "/healthz" => Local::Healthz,
        "/readyz" => Local::Readyz,
        _ => Local::Model(model_id(path)?),
    })
}

/// The rest of the path is the id, raw or encoded, slashes and colons included.
pub fn model_id(path: &str) -> Option<String> {
    let id = path.strip_prefix("/v1/models/").filter(|id| !id.is_empty())?;
    percent_decode_str(id).decode_utf8().ok().map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: Method, path: &str, expected: Route) {
        assert_eq!(of(&method, path), expected, "{path}");
    }

    #[test]
    fn paths() {
        check(Method::GET, "/", Route::Local(Local::Root));
        check(Method::HEAD, "/api/version", Route::Local(Local::Version));
        check(Method::POST, "/api/tags", Route::WrongMethod { allow: READ });
        check(Method::POST, "/api/chat", Route::Forward(Endpoint::OllamaChat));
        check(Method::GET, "/api/chat", Route::WrongMethod { allow: "POST" });
        check(Method::POST, "/v1/messages", Route::Forward(Endpoint::AnthropicMessages));
        check(Method::POST, "/v1/messages/count_tokens", Route::Forward(Endpoint::AnthropicCountTokens));
        check(Method::POST, "/v1/responses", Route::Forward(Endpoint::OpenAiResponses));
        check(Method::GET, "/v1/responses", Route::WrongMethod { allow: "POST" });
        check(Method::POST, "/v1/rerank", Route::Forward(Endpoint::OpenAiRerank));
        check(Method::POST, "/v1/audio/transcriptions", Route::Forward(Endpoint::OpenAiTranscriptions));
        check(Method::POST, "/v1/audio/translations", Route::Forward(Endpoint::OpenAiTranslations));
        check(Method::POST, "/v1/audio/speech", Route::Forward(Endpoint::OpenAiSpeech));
        check(Method::GET, "/v1/models/org/moss%2Fx%3A7b", Route::Local(Local::Model("org/moss/x:7b".into())));
        check(Method::GET, "/v1/models/", Route::Unknown);
    }

    #[test]
    fn sec_03_tricks_are_unknown() {
        let tricks = ["//api/chat", "/v1/../api/delete", "/api/%63hat", "/API/chat", "/api/chat/", "//api/delete"];
        let more = ["/api/%64elete", "/api/x/..%2fdelete", "/API/delete", "/api/delete/", "/api/delete;x"];
        let others = ["/api/blobs", "/api/blobs/a/b", "/api/me", "/api/signout", "/api/user/keys/x", "/metrics"];
        for path in [&tricks[..], &more, &others, &["/api/experimental/web_search", "/slots/0"]].concat() {
            for method in [Method::POST, Method::DELETE] {
                check(method, path, Route::Unknown);
            }
        }
    }

    #[test]
    fn managing_calls_are_known_by_path_and_method() {
        check(Method::POST, "/api/pull", Route::Manage(Call::Pull));
        check(Method::DELETE, "/api/delete", Route::Manage(Call::Delete));
        check(Method::POST, "/api/delete", Route::WrongMethod { allow: "DELETE" });
        check(Method::GET, "/api/pull", Route::WrongMethod { allow: "POST" });
        check(Method::HEAD, "/api/blobs/x", Route::Manage(Call::Blob(None)));
        check(Method::GET, "/api/blobs/x", Route::WrongMethod { allow: "HEAD, POST" });
        check(Method::POST, "/api/blobs/sha256:..%2f", Route::Manage(Call::Blob(None)));
        let digest = format!("sha256:{}", "0a".repeat(32));
        let path = format!("/api/blobs/{digest}");
        assert!(
            matches!(of(&Method::POST, &path), Route::Manage(Call::Blob(Some(found))) if found.to_string() == digest)
        );
    }
}
