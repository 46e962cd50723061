//! Why an upstream could not be talked to, in words for an operator.
//!
//! Pingora's errors say where in Pingora they arose; what helps is what to look at.

use pingora_core::{Error, ErrorType};

/// Of a reason that has no words here, what is passed on.
const REASON_CHARS_MAX: usize = 160;

/// Words of rustls, which is all that Pingora keeps of its errors, and what they mean here.
const TLS_REASONS: [(&str, &str); 9] = [
    ("certificate expired", "its certificate has expired"),
    ("Expired", "its certificate has expired"),
    ("not valid yet", "its certificate is not valid yet; see the clocks"),
    ("certificate not valid for name", "its certificate is for another name; see `url` or `tls.sni`"),
    ("NotValidForName", "its certificate is for another name; see `url` or `tls.sni`"),
    ("UnknownIssuer", "its certificate is signed by nobody who is trusted; see `tls.ca`"),
    ("BadSignature", "its certificate is signed by nobody who is trusted; see `tls.ca`"),
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
    let told = || cause.unwrap_or(context).chars().take(REASON_CHARS_MAX).collect();
    Some(known.unwrap_or_else(told))
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
