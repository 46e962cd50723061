//! What happens to headers on the way: towards the upstream, and back.

use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING,
};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora_core::{ErrorType, OrErr, Result};
use pingora_proxy::Session;

use super::target::Target;

/// Never sent on: the client's credentials in all their spellings, what browsers add about
/// themselves, and what belongs to the connection that ends here.
const NOT_SENT_ON: [&str; 16] = [
    "authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "proxy-authorization",
    "cookie",
    "origin",
    "referer",
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "upgrade",
    "x-data-parallel-rank",
    "x-vllm-priority",
    "x-smg-routing-key",
];

/// Makes the request one to `target`: its path, its host, its key, and nothing of the client's own.
/// Answers are wanted uncompressed, since streams are read on the way.
pub fn address(request: &mut RequestHeader, target: &Target) -> Result<()> {
    let path_and_query = request.uri.path_and_query().map_or("/", |path| path.as_str());
    let joined = target.join(path_and_query);
    request.set_uri(joined.parse().or_err(ErrorType::InvalidHTTPHeader, "the joined path is no URI")?);
    for name in NOT_SENT_ON {
        request.remove_header(name);
    }
    request.remove_header(&ACCEPT_ENCODING);
    request.insert_header(HOST, target.authority())?;
    match target.authorization() {
        Some(value) => request.insert_header(AUTHORIZATION, value),
        None => Ok(()),
    }
}

/// The body was decoded on the way in.
pub fn now_plain(request: &mut RequestHeader) {
    request.remove_header(&CONTENT_ENCODING);
}

pub fn content_type(response: &ResponseHeader) -> String {
    let value = response.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_string()
}

/// Whether only the end of the connection tells the end of the answer, so that its content has to say
/// whether that was all.
pub fn end_is_unsure(response: &ResponseHeader, session: &Session) -> bool {
    let framed = response.headers.contains_key(CONTENT_LENGTH) || response.headers.contains_key(TRANSFER_ENCODING);
    let bodiless = session.req_header().method == http::Method::HEAD || matches!(response.status.as_u16(), 204 | 304);
    let readable = !response.headers.contains_key(CONTENT_ENCODING) && has_end(&content_type(response));
    !framed && !bodiless && response.version < http::Version::HTTP_2 && readable
}

/// Forms of which the observer can say whether they are complete.
fn has_end(content_type: &str) -> bool {
    ["text/event-stream", "application/x-ndjson", "application/json"].iter().any(|form| content_type.starts_with(form))
}

/// Tells hops in front of us not to hold streams back, where the upstream did not say.
pub fn keep_streams_flowing(response: &mut ResponseHeader, content_type: &str) -> Result<()> {
    if !content_type.starts_with("text/event-stream") && !content_type.starts_with("application/x-ndjson") {
        return Ok(());
    }
    for (name, value) in [("x-accel-buffering", "no"), ("cache-control", "no-cache")] {
        if !response.headers.contains_key(name) {
            response.insert_header(name, value)?;
        }
    }
    Ok(())
}
