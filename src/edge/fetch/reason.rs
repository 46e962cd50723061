//! Why an upstream could not be talked to, in words for an operator.
//!
//! Pingora's errors say where in Pingora they arose; what helps is what to look at.

use pingora_core::{Error, ErrorType};

/// Of a reason that has no words here, what is passed on.
const REASON_CHARS_MAX: usize = 160;

/// Words of rustls, which is all that Pingora keeps of its errors, and what they mean here.
const TLS_REASONS: [(&str, &str); 10] = [
    ("certificate expired", "its certificate has expired"),
    ("Expired", "its certificate has expired"),
    ("not valid yet", "its certificate is not valid yet; see the clocks"),
    ("certificate not valid for name", "its certificate is for another name; see `url` or `tls.sni`"),
    ("NotValidForName", "its certificate is for another name; see `url` or `tls.sni`"),
    ("UnknownIssuer", "its certificate is signed by nobody who is trusted; see `tls.ca`"),
    ("BadSignature", "its certificate is signed by nobody who is trusted; see `tls.ca`"),
    (
        "CaUsedAsEndEntity",
        "its certificate is an authority's own and not one that an authority signed; sign one with it for this server, \
         or write `tls.insecure: true`",
    ),
    ("received fatal alert", "it refuses our certificate, or wants one; see `tls.cert`"),
    ("corrupt message", "it does not speak TLS; write http in `url`"),
];

/// Why a connection could not be secured; `None`: that was not what failed.
pub fn of_tls(error: &Error) -> Option<String> {
    match error.etype() {
        ErrorType::TLSHandshakeFailure | ErrorType::HandshakeError | ErrorType::InvalidCert => {}
        ErrorType::TLSHandshakeTimedout => return Some("the handshake timed out".into()),
        _ => return None,
    }
    let context = error.context.as_ref().map_or("", |context| context.as_str());
    let known = TLS_REASONS.iter().find(|(words, _)| context.contains(words)).map(|(_, reason)| reason.to_string());
    let cause = context.rsplit("cause: ").next().and_then(|cause| cause.split(", SNI:").next());
    let told = || unwrapped(cause.unwrap_or(context)).chars().take(REASON_CHARS_MAX).collect();
    Some(known.unwrap_or_else(told))
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
pub fn of_alert(error: &Error) -> Option<&'static str> {
    let text = error.to_string();
    let alert = text.contains("received fatal alert");
    let ours = "it refuses our certificate, or wants one; see `tls.cert`";
    alert.then_some(ours)
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
        assert_eq!(of_tls(&error).as_deref(), Some(expected));
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
    }
}
