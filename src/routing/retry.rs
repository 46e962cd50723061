//! What a failed attempt means: whether the request may move on, and whether the node is to blame.
//!
//! Only before the first byte. An engine stops working for a closed connection, so a request whose
//! connection is gone may be sent again; one that is merely slow may not, since it is being worked on.

/// How an attempt failed before its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nothing was sent.
    ConnectFailed,
    /// The connection closed or broke.
    ConnectionLost,
    /// 502, 503, 504: the node says that it, or what is behind it, cannot now.
    Unavailable(u16),
    /// 404 from a node that was thought to have the model: our list was stale.
    ModelGone,
    /// No first byte within the limit.
    FirstByteLate,
}

impl Cause {
    /// The cause in an upstream's status, if that is one.
    pub fn of_status(status: u16) -> Option<Cause> {
        match status {
            404 => Some(Cause::ModelGone),
            502..=504 => Some(Cause::Unavailable(status)),
            _ => None,
        }
    }

    /// Whether another node may be asked the same.
    pub fn may_move(self) -> bool {
        self != Cause::FirstByteLate
    }

    /// Whether the node is worse for it. Busy is not broken, and a missing model is no fault.
    pub fn is_failure(self) -> bool {
        !matches!(self, Cause::Unavailable(503) | Cause::ModelGone)
    }

    pub fn name(self) -> &'static str {
        match self {
            Cause::ConnectFailed => "connect_failed",
            Cause::ConnectionLost => "connection_lost",
            Cause::Unavailable(502) => "bad_gateway",
            Cause::Unavailable(503) => "busy",
            Cause::Unavailable(_) => "gateway_timeout",
            Cause::ModelGone => "model_gone",
            Cause::FirstByteLate => "first_byte_late",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_statuses_are_not_alike() {
        assert_eq!(Cause::of_status(500), None);
        assert_eq!(Cause::of_status(429), None);
        assert!(Cause::of_status(503).is_some_and(|cause| cause.may_move() && !cause.is_failure()));
        assert!(Cause::of_status(502).is_some_and(|cause| cause.may_move() && cause.is_failure()));
        assert!(!Cause::FirstByteLate.may_move());
    }
}
