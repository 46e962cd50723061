//! What happens to headers on the way: towards the upstream, and back.

mod alias;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use http::header::{
    ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER,
    TRANSFER_ENCODING, UPGRADE, USER_AGENT,
};
use http::request::Parts;
use http::response::Parts as AnswerParts;
use http::{HeaderMap, HeaderName, HeaderValue, Uri, Version};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora_core::{ErrorType, OkOrErr, OrErr, Result};
use pingora_proxy::Session;

use super::node::Node;
use super::spelling;
use super::target::Target;
use crate::config::TrustedPeers;

/// Never sent on: what browsers add about themselves, what belongs to the connection that ends here,
/// and what steers engines from outside.
const NOT_SENT_ON: [&str; 22] = [
    "cookie",
    "origin",
    "referer",
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "upgrade",
    "x-fleet-priority",
    "x-fleet-resume",
    "x-data-parallel-rank",
    "x-smg-routing-key",
    "x-forwarded-authorization",
    "accept-encoding",
    "forwarded",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-original-url",
    "x-rewrite-url",
    "x-http-method-override",
    "proxy",
    "x-real-ip",
];

/// Whatever begins so steers engines and gateways too: SGLang's overrides, LiteLLM's retries, tags and time limits,
/// vLLM's, and the endpoint pickers'.
const STEERING: [&str; 4] = ["x-override-", "x-litellm-", "x-vllm-", "x-gateway-"];

/// Chooses a rank at vLLM's own balancer. Elsewhere it goes on, since it only names a conversation, and one
/// that Warmgate has read as such; where the rank is chosen already, nobody may choose another.
const SESSION: &str = "x-session-id";

/// Headers whose names hold one of these carry a credential, in whatever spelling; the client's are
/// for Warmgate, and for no upstream that is not configured so.
const CREDENTIALS: [&str; 6] = ["authorization", "api-key", "apikey", "token", "secret", "subscription-key"];

/// What a client names itself by to an upstream that checks its clients itself.
const CLIENT_KEYS: [&str; 2] = ["authorization", "x-api-key"];

/// How many Warmgates a request has come by. Ours alone: each sends on one more than it was sent, so that a
/// Warmgate that has itself as an upstream, or one before it, is found out.
pub const HOPS: &str = "x-warmgate-hops";
const HOPS_NAME: HeaderName = HeaderName::from_static(HOPS);

pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// A request that has come by so many goes no further. Nobody stacks more on purpose.
pub const HOPS_MAX: u32 = 4;

/// Never sent back: they are about places and names that only make sense behind Warmgate.
const NOT_SENT_BACK: [&str; 8] = [
    "location",
    "via",
    "set-cookie",
    "www-authenticate",
    "keep-alive",
    "alt-svc",
    // LiteLLM's own upstream.
    "x-litellm-model-api-base",
    HOPS,
];

/// Which pages may read an answer is Warmgate's to say (`cors`).
const LEAVES: &str = "access-control-";

/// The one query parameter that clients send and engines know (Anthropic's SDK).
const KEPT_QUERY: &str = "beta=true";

/// Edits a request's parts. Pingora keeps beside the headers how each name was spelled, which costs as much as
/// they do and says nothing: it is let go of, and names go out in their usual spelling.
pub fn edit(request: &mut RequestHeader, work: impl FnOnce(&mut Parts) -> Result<()>) -> Result<()> {
    let ends_stream = request.send_end_stream();
    let mut parts = Parts::from(std::mem::replace(request, RequestHeader::from(blank_request())));
    let done = work(&mut parts);
    *request = RequestHeader::from(parts);
    if let Some(ends_stream) = ends_stream {
        request.set_send_end_stream(ends_stream);
    }
    done
}

/// The same of an answer's head.
pub fn edit_answer(response: &mut ResponseHeader, work: impl FnOnce(&mut AnswerParts) -> Result<()>) -> Result<()> {
    let own_phrase = response.get_reason_phrase().filter(|phrase| response.status.canonical_reason() != Some(*phrase));
    let own_phrase = own_phrase.map(str::to_string);
    let mut parts = AnswerParts::from(std::mem::replace(response, ResponseHeader::from(blank_answer())));
    parts.headers.reserve(TOLD);
    let done = work(&mut parts);
    *response = ResponseHeader::from(parts);
    if own_phrase.is_some() {
        response.set_reason_phrase(own_phrase.as_deref())?;
    }
    done
}

/// Headers that an answer is given at most, besides a tenant's limits, so that there is room for all at once.
const TOLD: usize = 9;

fn blank_request() -> Parts {
    http::Request::new(()).into_parts().0
}

fn blank_answer() -> AnswerParts {
    http::Response::new(()).into_parts().0
}

/// Makes the request one to `target`: its path, its host, its key, and of the client's own only the keys that
/// it is to get. To be given the client's request anew for each attempt, introduced.
/// Answers are wanted uncompressed, since streams are read on the way.
pub fn address(request: &mut Parts, target: &Target) -> Result<()> {
    request.uri = path_at(&request.uri, target)?;
    let headers = &mut request.headers;
    let not_sent_on: Vec<HeaderName> =
        headers.keys().filter(|name| !is_sent_on(name, target.forwards_keys)).cloned().collect();
    for name in not_sent_on {
        headers.remove(name);
    }
    agree_on_length(headers);
    let hops = hops_of(headers).saturating_add(1);
    headers.insert(HOPS_NAME, if hops == 1 { HeaderValue::from_static("1") } else { hops.into() });
    let host = target.host().or_err(ErrorType::InvalidHTTPHeader, "no header can carry the upstream's name")?;
    headers.insert(HOST, host);
    if let Some(key) = target.authorization().filter(|_| !target.forwards_keys) {
        headers.insert(AUTHORIZATION, value(&key)?);
    }
    Ok(())
}

/// Lengths that agree, however often and however they are spelled, go on as one: not every server adds them up.
fn agree_on_length(headers: &mut HeaderMap) {
    let mut said = headers.get_all(CONTENT_LENGTH).iter();
    let (Some(first), second) = (said.next(), said.next()) else { return };
    let digits = first.as_bytes();
    if second.is_none() && digits.iter().all(u8::is_ascii_digit) && !digits.starts_with(b"0") {
        return;
    }
    if let Some(length) = said_length(headers) {
        headers.insert(CONTENT_LENGTH, length.into());
    }
}

/// The length that a head says its body has. Where it says several they agree, else Pingora has refused it.
pub fn said_length(headers: &HeaderMap) -> Option<u64> {
    let first = headers.get(CONTENT_LENGTH)?.to_str().ok()?;
    first.split(',').next()?.trim().parse().ok()
}

/// Where on that upstream a request for this goes.
fn path_at(asked: &Uri, target: &Target) -> Result<Uri> {
    let path = asked.path();
    if target.is_root() && asked.query().is_none() && asked.authority().is_none() {
        return Ok(asked.clone());
    }
    let path = match asked.query() {
        Some(KEPT_QUERY) => target.join(&format!("{path}?{KEPT_QUERY}")),
        _ => target.join(path),
    };
    Uri::try_from(path).or_err(ErrorType::InvalidHTTPHeader, "the joined path is no URI")
}

fn is_sent_on(name: &HeaderName, keys_too: bool) -> bool {
    // What nearly every request has, and what `introduce` says in place of the client.
    const USUAL: [HeaderName; 8] =
        [HOST, CONTENT_TYPE, CONTENT_LENGTH, ACCEPT, USER_AGENT, FORWARDED_HOST, FORWARDED_PROTO, FORWARDED_FOR];
    if USUAL.contains(name) {
        return true;
    }
    let name = name.as_str();
    if CREDENTIALS.iter().any(|part| name.contains(part)) {
        return keys_too && CLIENT_KEYS.contains(&name);
    }
    !NOT_SENT_ON.contains(&name) && !steers(name) && !alias::passes_for_another(name)
}

fn value(text: &str) -> Result<HeaderValue> {
    HeaderValue::from_str(text).or_err(ErrorType::InvalidHTTPHeader, "no header can carry the value")
}

/// Tells the node by which name the client asked, from where and for whom. What the client itself says of that
/// is passed on only if it is one that is believed.
pub fn introduce(request: &mut Parts, session: &Session, trusted: &TrustedPeers) {
    let peer = session.client_addr().and_then(|address| address.as_inet()).map(|address| address.ip());
    let is_secured = session.digest().is_some_and(|digest| digest.ssl_digest.is_some());
    introduce_for(request, peer, if is_secured { "https" } else { "http" }, trusted);
}

fn introduce_for(request: &mut Parts, peer: Option<IpAddr>, spoken: &'static str, trusted: &TrustedPeers) {
    let (uri, headers) = (&request.uri, &mut request.headers);
    let host = headers.get(HOST).cloned();
    let host = host.or_else(|| HeaderValue::from_str(uri.authority()?.as_str()).ok());
    let is_believed = peer.is_some_and(|peer| trusted.trusts(peer));
    let said = |name: HeaderName| headers.get(name).filter(|_| is_believed).cloned();
    let is_scheme = |said: &HeaderValue| ["http", "https"].iter().any(|scheme| said == scheme);
    let client = is_believed.then(|| client_said(headers, trusted)).flatten().or(peer);
    let scheme = said(FORWARDED_PROTO).filter(is_scheme).unwrap_or(HeaderValue::from_static(spoken));
    let given = [
        (FORWARDED_HOST, said(FORWARDED_HOST).or(host)),
        (FORWARDED_PROTO, Some(scheme)),
        (FORWARDED_FOR, client.and_then(|address| HeaderValue::try_from(spelling::address(address)).ok())),
    ];
    if !is_believed {
        let of_users = headers.keys().filter(|name| tells_of_user(name.as_str()));
        let of_users: Vec<HeaderName> = of_users.cloned().collect();
        of_users.iter().for_each(|name| drop(headers.remove(name)));
    }
    for (name, value) in given {
        match value {
            Some(value) => drop(headers.insert(name, value)),
            None => drop(headers.remove(name)),
        }
    }
}

/// The client's address in the words of proxies that are believed, each of which added the one that it saw. What
/// stands before an address that is not believed may be made up.
fn client_said(headers: &HeaderMap, trusted: &TrustedPeers) -> Option<IpAddr> {
    let lines = headers.get_all(FORWARDED_FOR).iter().map(|line| line.to_str());
    let lines: Vec<&str> = lines.collect::<Result<_, _>>().ok()?;
    let mut client = None;
    for entry in lines.iter().rev().flat_map(|line| line.rsplit(',')).take(FORWARDED_MAX) {
        let entry = entry.trim();
        let with_port = || entry.parse::<SocketAddr>().ok().map(|address| address.ip());
        let Some(address) = entry.parse().ok().or_else(with_port) else { break };
        client = Some(address);
        if !trusted.trusts(address) {
            break;
        }
    }
    client
}

/// Proxies between the client and here that are looked through.
const FORWARDED_MAX: usize = 32;

/// Headers by which applications and proxies say whose request it is that they send.
const USERS: [&str; 9] = [
    "x-openwebui-auth-type",
    "x-forwarded-user",
    "x-forwarded-email",
    "x-forwarded-groups",
    "x-forwarded-preferred-username",
    "remote-user",
    "x-remote-user",
    "x-remote-group",
    "x-webauth-user",
];

/// Whatever begins so does, too.
const USERS_BEGIN: [&str; 2] = ["x-openwebui-user-", "x-auth-request-"];

fn tells_of_user(name: &str) -> bool {
    USERS.contains(&name) || USERS_BEGIN.iter().any(|start| name.starts_with(start))
}

/// Path and headers of a request together. Engines have limits of their own, from 8 KiB a line, and some close
/// the connection on what is beyond: sent on, one request would make every node look broken.
pub const HEAD_BYTES_MAX: usize = 32 << 10;

/// Whether an engine may be bothered with a head of this size.
pub fn fits(request: &RequestHeader) -> bool {
    let target = request.uri.path_and_query().map_or(0, |target| target.as_str().len());
    let lines = request.headers.iter().map(|(name, value)| name.as_str().len() + value.len());
    lines.sum::<usize>() + target <= HEAD_BYTES_MAX
}

/// The client wants to go over to a web socket.
pub fn wants_socket(request: &RequestHeader) -> bool {
    let mut offers = request.headers.get_all(UPGRADE).iter().flat_map(|value| value.as_bytes().split(|b| *b == b','));
    offers.any(|offer| offer.trim_ascii().eq_ignore_ascii_case(b"websocket"))
}

/// How many Warmgates the request has come by, in its own words; what is no number counts as none.
pub fn hops(request: &RequestHeader) -> u32 {
    hops_of(&request.headers)
}

fn hops_of(headers: &HeaderMap) -> u32 {
    let values = headers.get_all(HOPS_NAME).iter();
    values.filter_map(|value| value.to_str().ok()?.trim().parse().ok()).max().unwrap_or(0)
}

/// Makes the engine use the very rank that was chosen, where ranks are told apart.
pub fn steer(headers: &mut HeaderMap, node: &Node) {
    if let Some((name, rank)) = node.steering() {
        headers.remove(SESSION);
        headers.insert(HeaderName::from_static(name), rank.into());
    }
}

fn steers(name: &str) -> bool {
    STEERING.iter().any(|start| name.starts_with(start))
}

/// Makes an upstream's answer one of ours, in one framing that the client's version of HTTP has.
pub fn for_client(headers: &mut HeaderMap, version: Version) {
    let is_sent_back = |name: &str| !NOT_SENT_BACK.contains(&name) && !name.starts_with(LEAVES);
    let kept_here: Vec<HeaderName> = headers.keys().filter(|name| !is_sent_back(name.as_str())).cloned().collect();
    kept_here.iter().for_each(|name| drop(headers.remove(name)));
    match headers.get(TRANSFER_ENCODING).cloned() {
        _ if version < Version::HTTP_11 => drop(headers.remove(TRANSFER_ENCODING)),
        // Some servers say it twice.
        Some(coding) => drop(headers.insert(TRANSFER_ENCODING, coding)),
        None => {}
    }
    if headers.contains_key(RETRY_AFTER) && retry_after(headers, SystemTime::now()).is_none() {
        headers.remove(RETRY_AFTER);
    }
    if let Some(length) = headers.get(CONTENT_LENGTH).cloned() {
        headers.insert(CONTENT_LENGTH, length);
    }
}

/// Adds a header that tells how an answer came about; a value that no header can carry is left out.
pub fn tell(headers: &mut HeaderMap, name: HeaderName, value: impl TryInto<HeaderValue>) {
    if let Ok(value) = value.try_into() {
        headers.insert(name, value);
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

/// How long the upstream asks not to be asked again, in seconds or by a date; `None` for what nobody can
/// mean.
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let told = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match told.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok()?,
        Err(_) => httpdate::parse_http_date(told).ok()?.duration_since(now).unwrap_or_default(),
    };
    (wait <= RETRY_AFTER_MAX).then_some(wait)
}

/// Longer than any quota's period.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(31 * 24 * 3600);

/// Whether the answer has no body at all.
pub fn is_bodiless(response: &ResponseHeader, session: &Session) -> bool {
    let by_status = matches!(response.status.as_u16(), 204 | 304);
    by_status || declares_nothing(response) || session.req_header().method == http::Method::HEAD
}

/// Whether the answer says that its body is empty.
pub fn declares_nothing(response: &ResponseHeader) -> bool {
    response.headers.get(CONTENT_LENGTH).is_some_and(|length| length.as_bytes() == b"0")
}

/// Whether a part of the body may be taken out: it is not compressed, and nothing says its length.
pub fn may_shrink(response: &ResponseHeader) -> bool {
    ![CONTENT_LENGTH, CONTENT_ENCODING].iter().any(|name| response.headers.contains_key(name))
}

/// Whether only the end of the connection tells the end of the answer, so that its content has to say
/// whether that was all.
pub fn end_is_unsure(response: &ResponseHeader, session: &Session) -> bool {
    let framed = response.headers.contains_key(CONTENT_LENGTH) || response.headers.contains_key(TRANSFER_ENCODING);
    let readable = !response.headers.contains_key(CONTENT_ENCODING) && has_end(&content_type(response));
    !framed && !is_bodiless(response, session) && response.version < Version::HTTP_2 && readable
}

/// Forms of which the observer can say whether they are complete.
fn has_end(content_type: &str) -> bool {
    ["text/event-stream", "application/x-ndjson", "application/json"].iter().any(|form| content_type.starts_with(form))
}

/// Tells hops in front of us not to hold streams back, where the upstream did not say.
pub fn keep_streams_flowing(headers: &mut HeaderMap) {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !content_type.starts_with("text/event-stream") && !content_type.starts_with("application/x-ndjson") {
        return;
    }
    for (name, value) in [(ACCEL_BUFFERING, "no"), (CACHE_CONTROL, "no-cache")] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_hops(values: &[&[u8]], expected: u32) {
        let mut request = RequestHeader::build("GET", b"/", None).unwrap();
        for value in values {
            request.append_header(HOPS, HeaderValue::from_bytes(value).unwrap()).unwrap();
        }
        assert_eq!(hops(&request), expected, "{values:?}");
    }

    #[test]
    fn odd_counts_of_hops_are_none() {
        check_hops(&[], 0);
        check_hops(&[b"3"], 3);
        check_hops(&[b" 2 "], 2);
        check_hops(&[b"4294967295"], u32::MAX);
        for odd in [&b""[..], b"-1", b"1,2", b"x", b"\xff", b"99999999999999999999"] {
            check_hops(&[odd], 0);
        }
        check_hops(&[b"1", b"5", b"x"], 5);
    }

    #[track_caller]
    fn check_client(peer: &str, said: &[&str], expected: &str) {
        let mut request = RequestHeader::build("GET", b"/", None).unwrap();
        said.iter().for_each(|said| assert!(request.append_header("x-forwarded-for", *said).is_ok()));
        let trusted = TrustedPeers(["127.0.0.1/32", "10.0.0.0/8"].map(|network| network.parse().unwrap()).into());
        let mut request = Parts::from(request);
        introduce_for(&mut request, Some(peer.parse().unwrap()), "http", &trusted);
        let values: Vec<_> = request.headers.get_all("x-forwarded-for").iter().collect();
        assert_eq!(values, [expected], "{peer} {said:?}");
    }

    #[test]
    fn que_11_an_address_is_believed_as_far_as_those_who_told_it() {
        check_client("127.0.0.1", &["203.0.113.6, 198.51.100.7"], "198.51.100.7");
        check_client("127.0.0.1", &["203.0.113.6, 198.51.100.7, 10.0.0.2"], "198.51.100.7");
        check_client("127.0.0.1", &["203.0.113.6", "10.0.0.2"], "203.0.113.6");
        check_client("127.0.0.1", &["10.0.0.1, 10.0.0.2"], "10.0.0.1");
        check_client("127.0.0.1", &["198.51.100.7:4711"], "198.51.100.7");
        check_client("127.0.0.1", &["198.51.100.7, unknown"], "127.0.0.1");
        check_client("127.0.0.1", &["unknown, 10.0.0.2"], "10.0.0.2");
        check_client("127.0.0.1", &[], "127.0.0.1");
        check_client("192.0.2.1", &["203.0.113.6"], "192.0.2.1");
    }

    #[track_caller]
    fn check(told: &str, expected: Option<u64>) {
        let mut response = ResponseHeader::build(429, None).unwrap();
        response.insert_header(RETRY_AFTER, told).unwrap();
        let now = httpdate::parse_http_date("Wed, 21 Oct 2026 07:28:00 GMT").unwrap();
        assert_eq!(retry_after(&response.headers, now), expected.map(Duration::from_secs), "{told}");
    }

    #[test]
    fn a_silly_retry_after_is_none_and_a_date_is_one() {
        check("30", Some(30));
        check("0", Some(0));
        check("Wed, 21 Oct 2026 07:28:20 GMT", Some(20));
        check("Wed, 21 Oct 2015 07:28:00 GMT", Some(0));
        for silly in ["-5", "1e20", "99999999999999999999", "soon", "", "nan", "Fri, 31 Dec 2399 23:59:59 GMT"] {
            check(silly, None);
        }
    }

    #[test]
    fn que_08_only_a_sensible_retry_after_reaches_the_client() {
        for (told, passes) in [("30", true), ("Wed, 21 Oct 2015 07:28:00 GMT", true), ("-5", false), ("soon", false)] {
            let mut response = ResponseHeader::build(429, None).unwrap();
            response.insert_header(RETRY_AFTER, told).unwrap();
            edit_answer(&mut response, |parts| {
                for_client(&mut parts.headers, Version::HTTP_11);
                Ok(())
            })
            .unwrap();
            assert_eq!(response.headers.contains_key(RETRY_AFTER), passes, "{told}");
        }
    }
}
