//! Why an upstream could not be talked to, in words for an operator.
//!
//! Pingora's errors say where in Pingora they arose; what helps is what to look at.

use pingora_core::{Error, ErrorType};
use thiserror::Error as ThisError;

/// Of a reason that has no words here, what is passed on.
const REASON_CHARS_MAX: usize = 160;

/// Names of a certificate that are told.
const NAMES_MAX: usize = 4;

/// Why a connection could not be secured, or was not.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum TlsFault {
    #[error("its certificate has expired")]
    Expired,
    #[error("its certificate is not valid yet; see the clocks")]
    NotYetValid,
    /// With the names that it is for.
    #[error("its certificate is for {}; see `url` or `tls.sni`", for_names(.0))]
    OtherName(Vec<String>),
    #[error("its certificate is signed by nobody who is trusted; see `tls.ca`")]
    UnknownIssuer,
    #[error(
        "its certificate is an authority's own and not one that an authority signed; sign one with it for this server, \
         or write `tls.insecure: true`"
    )]
    Authority,
    #[error("it refuses our certificate, or wants one; see `tls.cert`")]
    WantsOurs,
    #[error("it does not speak TLS; write http in `url`")]
    NoTls,
    #[error("it speaks TLS; write https in `url`")]
    OnlyTls,
    #[error("the handshake timed out")]
    TimedOut,
    #[error("it closed the connection in the handshake")]
    Closed,
    #[error("{0}")]
    Other(String),
}

/// For people; other names than those that were asked for.
pub fn for_names(names: &[String]) -> String {
    if names.is_empty() { "another name".into() } else { names.join(", ") }
}

/// Words of rustls, which is all that Pingora keeps of its errors, and what they mean here.
const KNOWN_FAULTS: [(&str, TlsFault); 11] = [
    ("certificate expired", TlsFault::Expired),
    ("Expired", TlsFault::Expired),
    ("not valid yet", TlsFault::NotYetValid),
    (OTHER_NAME, TlsFault::OtherName(Vec::new())),
    ("NotValidForName", TlsFault::OtherName(Vec::new())),
    ("UnknownIssuer", TlsFault::UnknownIssuer),
    ("BadSignature", TlsFault::UnknownIssuer),
    ("CaUsedAsEndEntity", TlsFault::Authority),
    ("received fatal alert", TlsFault::WantsOurs),
    ("corrupt message", TlsFault::NoTls),
    ("tls handshake eof", TlsFault::Closed),
];

const OTHER_NAME: &str = "certificate not valid for name";

/// Why a connection could not be secured; `None`: that was not what failed.
pub fn of_tls(error: &Error) -> Option<TlsFault> {
    match error.etype() {
        ErrorType::TLSHandshakeFailure | ErrorType::HandshakeError | ErrorType::InvalidCert => {}
        ErrorType::TLSHandshakeTimedout => return Some(TlsFault::TimedOut),
        _ => return None,
    }
    let context = error.context.as_ref().map_or("", |context| context.as_str());
    let cause = context.rsplit("cause: ").next().and_then(|cause| cause.split(", SNI:").next()).unwrap_or(context);
    let known = KNOWN_FAULTS.iter().find(|(words, _)| context.contains(words)).map(|(_, fault)| fault.clone());
    Some(match known {
        Some(TlsFault::OtherName(_)) => TlsFault::OtherName(names(cause)),
        Some(fault) => fault,
        None => TlsFault::Other(unwrapped(cause).chars().take(REASON_CHARS_MAX).collect()),
    })
}

/// The names that a certificate is for, as rustls tells them. They are the other side's words.
fn names(cause: &str) -> Vec<String> {
    let Some((_, told)) = cause.split_once("is only valid for ") else { return Vec::new() };
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || ".-*:_".contains(c);
    let bare = |name: &str| {
        let inner = name.split_once('(').map_or(name, |(_, inner)| inner);
        inner.chars().filter(|c| is_of_name(*c)).take(REASON_CHARS_MAX).collect::<String>()
    };
    told.replace(" or ", ", ").split(", ").map(bare).filter(|name| !name.is_empty()).take(NAMES_MAX).collect()
}

/// The words without what rustls wraps around those of other libraries.
fn unwrapped(words: &str) -> String {
    match words.split_once("Other(OtherError(") {
        Some((before, inner)) => format!("{before}{}", inner.trim_end().strip_suffix("))").unwrap_or(inner)),
        None => words.to_owned(),
    }
}

/// Why a secured connection was ended as soon as it stood, which is when a server of TLS 1.3 looks at our
/// certificate; `None`: it was not.
pub fn of_alert(error: &Error) -> Option<TlsFault> {
    error.to_string().contains("received fatal alert").then_some(TlsFault::WantsOurs)
}

/// Why there is no connection.
pub fn of_connect(error: &Error) -> &'static str {
    match error.etype() {
        ErrorType::ConnectRefused => "connection refused",
        ErrorType::ConnectTimedout => "connecting timed out",
        ErrorType::ConnectNoRoute => "no route to it",
        _ => "no connection",
    }
}

/// Why a connection gave no answer.
pub fn of_exchange(error: &Error) -> &'static str {
    match error.etype() {
        ErrorType::ConnectionClosed => "it closed the connection without a complete answer",
        ErrorType::InvalidHTTPHeader | ErrorType::H1Error | ErrorType::H2Error | ErrorType::InvalidH2 => {
            "what it answers is not HTTP"
        }
        _ => "the connection broke before the answer was complete",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cause: &str, expected: &str) {
        let context = format!("connecting, cause: {cause}, SNI: localhost");
        let error = Error::explain(ErrorType::TLSHandshakeFailure, context);
        assert_eq!(of_tls(&error).map(|fault| fault.to_string()).as_deref(), Some(expected));
    }

    #[test]
    fn sec_10_no_wrapping_of_libraries_reaches_an_operator() {
        let words = "invalid peer certificate: ";
        check(
            &format!("{words}Other(OtherError(CaUsedAsEndEntity))"),
            "its certificate is an authority's own and not one that an authority signed; sign one with it for this \
             server, or write `tls.insecure: true`",
        );
        check(
            &format!("{words}Other(OtherError(UnsupportedCertVersion))"),
            "invalid peer certificate: UnsupportedCertVersion",
        );
        check(&format!("{words}Other(OtherError(Odd(1, 2)))"), "invalid peer certificate: Odd(1, 2)");
        check(&format!("{words}Revoked"), "invalid peer certificate: Revoked");
        let other = "certificate not valid for name \"localhost\"; certificate is";
        let for_names = |names: &str| format!("its certificate is for {names}; see `url` or `tls.sni`");
        check(&format!("{words}{other} only valid for DnsName(\"a.test\")"), &for_names("a.test"));
        check(
            &format!(
                "{words}{other} only valid for DnsName(\"*.a.test\"), DnsName(\"b\\u{{1b}}[2J\") or IpAddress(::1)"
            ),
            &for_names("*.a.test, bu1b2J, ::1"),
        );
        check(&format!("{words}{other} not valid for any names (according to it)"), &for_names("another name"));
    }
}
