//! Why an upstream could not be talked to, in words for an operator.
//!
//! Pingora's errors say where in Pingora they arose; what helps is what to look at.

use pingora_core::ErrorType;

/// Why there is no connection.
pub fn of_connect(error: &pingora_core::Error) -> &'static str {
    match error.etype() {
        ErrorType::ConnectRefused => "connection refused",
        ErrorType::ConnectTimedout => "connecting timed out",
        ErrorType::ConnectNoRoute => "no route to it",
        ErrorType::InvalidCert => "its certificate is not valid",
        ErrorType::TLSHandshakeTimedout => "the TLS handshake timed out",
        ErrorType::TLSHandshakeFailure | ErrorType::HandshakeError => "the TLS handshake failed",
        _ => "no connection",
    }
}

/// Why a connection gave no answer.
pub fn of_exchange(error: &pingora_core::Error) -> &'static str {
    match error.etype() {
        ErrorType::ConnectionClosed => "it closed the connection without a complete answer",
        ErrorType::InvalidHTTPHeader | ErrorType::H1Error | ErrorType::H2Error | ErrorType::InvalidH2 => {
            "what it answers is not HTTP"
        }
        _ => "the connection broke before the answer was complete",
    }
}
