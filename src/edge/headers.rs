//! What happens to headers on the way: towards the upstream, and back.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderName, HeaderValue, Version};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora_core::{ErrorType, OrErr, Result};
use pingora_proxy::Session;

use super::node::Node;
use super::target::Target;
use crate::config::TrustedPeers;

/// Never sent on: what browsers add about themselves, what belongs to the connection that ends here,
/// and what steers engines from outside.
const NOT_SENT_ON: [&str; 18] = [
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
    "x-vllm-priority",
    "x-smg-routing-key",
    "x-forwarded-authorization",
    "accept-encoding",
    "forwarded",
    "x-forwarded-port",
    "x-real-ip",
];

/// Whatever begins so steers engines too: SGLang's overrides, and LiteLLM's retries, tags and time limits.
const STEERING: [&str; 2] = ["x-override-", "x-litellm-"];

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

/// A request that has come by so many goes no further. Nobody stacks more on purpose.
pub const HOPS_MAX: u32 = 4;

/// Never sent back: they are about places and names that only make sense behind Warmgate.
const NOT_SENT_BACK: [&str; 5] = ["location", "via", "set-cookie", "www-authenticate", "keep-alive"];

/// Which pages may read an answer is Warmgate's to say (`cors`).
const LEAVES: &str = "access-control-";

/// The one query parameter that clients send and engines know (Anthropic's SDK).
const KEPT_QUERY: &str = "beta=true";

/// Makes the request one to `target`: its path, its host, its key, and of the client's own only the keys that
/// it is to get. To be given the client's request anew for each attempt.
/// Answers are wanted uncompressed, since streams are read on the way.
pub fn address(request: &mut RequestHeader, target: &Target) -> Result<()> {
    let path = request.uri.path();
    let path = match request.uri.query() {
        Some(KEPT_QUERY) => format!("{path}?{KEPT_QUERY}"),
        _ => path.to_string(),
    };
    request.set_uri(target.join(&path).parse().or_err(ErrorType::InvalidHTTPHeader, "the joined path is no URI")?);
    let is_credential = |name: &str| {
        let forwarded = target.forwards_keys && CLIENT_KEYS.contains(&name);
        !forwarded && CREDENTIALS.iter().any(|part| name.contains(part))
    };
    let not_sent_on: Vec<HeaderName> = request
        .headers
        .keys()
        .filter(|name| NOT_SENT_ON.contains(&name.as_str()) || is_credential(name.as_str()) || steers(name.as_str()))
        .cloned()
        .collect();
    for name in not_sent_on {
        request.remove_header(&name);
    }
    request.insert_header(HOPS, hops(request).saturating_add(1))?;
    request.insert_header(HOST, target.authority())?;
    match target.authorization().filter(|_| !target.forwards_keys) {
        Some(value) => request.insert_header(AUTHORIZATION, value),
        None => Ok(()),
    }
}

/// Tells the node by which name the client asked, from where and for whom. What the client itself says of that
/// is passed on only if it is one that is believed.
pub fn introduce(request: &mut RequestHeader, session: &Session, trusted: &TrustedPeers) -> Result<()> {
    let peer = session.client_addr().and_then(|address| address.as_inet()).map(|address| address.ip());
    let is_secured = session.digest().is_some_and(|digest| digest.ssl_digest.is_some());
    introduce_for(request, peer, if is_secured { "https" } else { "http" }, trusted)
}

fn introduce_for(
    request: &mut RequestHeader,
    peer: Option<IpAddr>,
    spoken: &'static str,
    trusted: &TrustedPeers,
) -> Result<()> {
    let host = request.headers.get(HOST).cloned();
    let host = host.or_else(|| HeaderValue::from_str(request.uri.authority()?.as_str()).ok());
    let is_believed = peer.is_some_and(|peer| trusted.trusts(peer));
    let said = |name: &str| request.headers.get(name).filter(|_| is_believed).cloned();
    let is_scheme = |said: &HeaderValue| ["http", "https"].iter().any(|scheme| said == scheme);
    let client = is_believed.then(|| client_said(request, trusted)).flatten().or(peer);
    let scheme = said("x-forwarded-proto").filter(is_scheme).unwrap_or(HeaderValue::from_static(spoken));
    let given = [
        ("x-forwarded-host", said("x-forwarded-host").or(host)),
        ("x-forwarded-proto", Some(scheme)),
        ("x-forwarded-for", client.and_then(|address| HeaderValue::from_str(&address.to_string()).ok())),
    ];
    if !is_believed {
        let of_users = request.headers.keys().filter(|name| tells_of_user(name.as_str()));
        let of_users: Vec<HeaderName> = of_users.cloned().collect();
        of_users.iter().for_each(|name| drop(request.remove_header(name)));
    }
    for (name, value) in given {
        request.remove_header(name);
        if let Some(value) = value {
            request.insert_header(name, value)?;
        }
    }
    Ok(())
}

/// The client's address in the words of proxies that are believed, each of which added the one that it saw. What
/// stands before an address that is not believed may be made up.
fn client_said(request: &RequestHeader, trusted: &TrustedPeers) -> Option<IpAddr> {
    let lines = request.headers.get_all("x-forwarded-for").iter().map(|line| line.to_str());
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

/// The client wants to go over to a web socket.
pub fn wants_socket(request: &RequestHeader) -> bool {
    let mut offers = request.headers.get_all(UPGRADE).iter().flat_map(|value| value.as_bytes().split(|b| *b == b','));
    offers.any(|offer| offer.trim_ascii().eq_ignore_ascii_case(b"websocket"))
}

/// How many Warmgates the request has come by, in its own words; what is no number counts as none.
pub fn hops(request: &RequestHeader) -> u32 {
    let values = request.headers.get_all(HOPS).iter();
    values.filter_map(|value| value.to_str().ok()?.trim().parse().ok()).max().unwrap_or(0)
}

/// Makes the engine use the very rank that was chosen, where ranks are told apart.
pub fn steer(request: &mut RequestHeader, node: &Node) -> Result<()> {
    let Some((name, rank)) = node.steering() else { return Ok(()) };
    request.remove_header(SESSION);
    request.insert_header(name, rank.to_string())
}

fn steers(name: &str) -> bool {
    STEERING.iter().any(|start| name.starts_with(start))
}

/// Makes an upstream's answer one of ours, in one framing that the client's version of HTTP has.
pub fn for_client(response: &mut ResponseHeader, version: Version) -> Result<()> {
    for name in NOT_SENT_BACK {
        response.remove_header(name);
    }
    let leaves: Vec<HeaderName> =
        response.headers.keys().filter(|name| name.as_str().starts_with(LEAVES)).cloned().collect();
    leaves.iter().for_each(|name| drop(response.remove_header(name)));
    match response.headers.get(TRANSFER_ENCODING).cloned() {
        _ if version < Version::HTTP_11 => drop(response.remove_header(&TRANSFER_ENCODING)),
        // Some servers say it twice.
        Some(coding) => response.insert_header(TRANSFER_ENCODING, coding)?,
        None => {}
    }
    if response.headers.contains_key(RETRY_AFTER) && retry_after(response, SystemTime::now()).is_none() {
        response.remove_header(&RETRY_AFTER);
    }
    match response.headers.get(CONTENT_LENGTH).cloned() {
        Some(length) => response.insert_header(CONTENT_LENGTH, length),
        None => Ok(()),
    }
}

/// Adds a header that tells how an answer came about; a value that no header can carry is left out.
pub fn tell(response: &mut ResponseHeader, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
        let _ = response.insert_header(name, value);
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
pub fn retry_after(response: &ResponseHeader, now: SystemTime) -> Option<Duration> {
    let told = response.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
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
pub fn keep_streams_flowing(response: &mut ResponseHeader) -> Result<()> {
    let content_type = content_type(response);
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
        introduce_for(&mut request, Some(peer.parse().unwrap()), "http", &trusted).unwrap();
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
        assert_eq!(retry_after(&response, now), expected.map(Duration::from_secs), "{told}");
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
            for_client(&mut response, Version::HTTP_11).unwrap();
            assert_eq!(response.headers.contains_key(RETRY_AFTER), passes, "{told}");
        }
    }
}
