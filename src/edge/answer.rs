//! Answers that Warmgate writes itself: lists, statuses and refusals.

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
};
use pingora::http::ResponseHeader;
use pingora_core::Result;
use pingora_proxy::Session;

use super::headers;
use super::refusal::Refusal;
use super::tenants::tell_limits;
use crate::routing::ask::Dialect;
use crate::routing::placement::OURSELVES;
use crate::wire;

/// Writes a whole answer. To a HEAD request only its head.
pub async fn write(session: &mut Session, status: u16, content_type: &str, body: impl Into<Bytes>) -> Result<()> {
    let mut header = ResponseHeader::build(status, Some(4))?;
    header.insert_header("content-type", content_type)?;
    send(session, header, body.into()).await
}

/// What Warmgate answers in place of an engine, marked as such.
pub async fn our_own(session: &mut Session, body: Vec<u8>, request_id: &str) -> Result<()> {
    let mut header = ResponseHeader::build(200, Some(4))?;
    header.insert_header("content-type", "application/json")?;
    header.insert_header("x-fleet-node", OURSELVES)?;
    header.insert_header("x-request-id", request_id)?;
    send(session, header, body.into()).await
}

/// What Warmgate answers for the nodes that did what was asked of all of them; nothing is an empty body.
pub async fn managed(
    session: &mut Session,
    body: impl Into<Bytes>,
    request_id: &str,
    nodes: Option<String>,
) -> Result<()> {
    let body = body.into();
    let mut header = ResponseHeader::build(200, Some(4))?;
    if !body.is_empty() {
        header.insert_header("content-type", "application/json")?;
    }
    header.insert_header("x-request-id", request_id)?;
    if let Some(nodes) = nodes {
        header.insert_header("x-fleet-node", nodes)?;
    }
    send(session, header, body).await
}

/// To a browser that asks whether a page may send a request of any kind; who may is said by `cors`.
pub async fn preflight(session: &mut Session) -> Result<()> {
    let asked = session.req_header().headers.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let mut header = ResponseHeader::build(204, Some(6))?;
    header.insert_header(ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST, DELETE")?;
    if let Some(asked) = asked {
        header.insert_header(ACCESS_CONTROL_ALLOW_HEADERS, asked)?;
    }
    header.insert_header(ACCESS_CONTROL_MAX_AGE, "600")?;
    session.write_response_header(Box::new(header), true).await
}

pub async fn json(session: &mut Session, status: u16, value: &serde_json::Value) -> Result<()> {
    write(session, status, "application/json", value.to_string().into_bytes()).await
}

/// Writes a refusal in the client's dialect.
pub async fn refuse(session: &mut Session, dialect: Dialect, refusal: &Refusal, request_id: &str) -> Result<()> {
    let status = refusal.status();
    let mut header = ResponseHeader::build(status, Some(8))?;
    header.insert_header("content-type", "application/json")?;
    header.insert_header("x-request-id", request_id)?;
    if let Refusal::WrongMethod { allow } = refusal {
        header.insert_header("allow", *allow)?;
    }
    if let Refusal::NoKey | Refusal::UnknownKey | Refusal::BadToken(_) = refusal {
        header.insert_header("www-authenticate", "Bearer")?;
    }
    if let Refusal::OverLimit { told, .. } = refusal {
        headers::edit_answer(&mut header, |parts| {
            tell_limits(&mut parts.headers, told, dialect);
            Ok(())
        })?;
    }
    if let Some(seconds) = refusal.retry_after_s() {
        header.insert_header("retry-after", seconds)?;
    }
    if let Some(should_retry) = refusal.should_retry() {
        header.insert_header("x-should-retry", if should_retry { "true" } else { "false" })?;
    }
    send(session, header, wire::error::body(dialect, status, &refusal.message()).into()).await
}

async fn send(session: &mut Session, mut header: ResponseHeader, body: Bytes) -> Result<()> {
    header.insert_header("content-length", body.len())?;
    let bodiless = session.req_header().method == http::Method::HEAD;
    session.write_response_header(Box::new(header), bodiless).await?;
    if !bodiless {
        session.write_response_body(Some(body), true).await?;
    }
    Ok(())
}
