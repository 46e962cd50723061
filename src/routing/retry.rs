//! What a failed attempt means: whether the request may move on, and whether the node is to blame.
//!
//! Only before the first byte. An engine stops working for a closed connection, so a request whose
//! connection is gone may be sent again; one that is merely slow may not, since it is being worked on.
//! Every other 4xx is the client's own and passes through.

/// How an attempt failed before its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nothing was sent.
    ConnectFailed,
    /// The connection closed or broke.
    ConnectionLost,
    /// 500: the runner crashed, or would not fit.
    EngineFailed,
    /// 502, 503, 504: the node says that it, or what is behind it, cannot now.
    Unavailable(u16),
    /// 404 from a node that was thought to have the model: our list was stale.
    ModelGone,
    /// 401, 403: it does not take our key, or our name for it. The operator's to mend.
    KeyRefused,
    /// A good status and no byte of a body.
    Empty,
    /// A redirect, a change of protocol: nothing an engine says.
    Nonsense,
    /// No first byte within the limit.
    FirstByteLate,
}

impl Cause {
    /// The cause in an upstream's status, if that is one.
    pub fn of_status(status: u16) -> Option<Cause> {
        match status {
            101 | 300..=399 => Some(Cause::Nonsense),
            401 | 403 => Some(Cause::KeyRefused),
            404 => Some(Cause::ModelGone),
            500 => Some(Cause::EngineFailed),
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

    /// Whether the node's own answer is for the client when no other node can be asked.
    pub fn may_be_told(self) -> bool {
        matches!(self, Cause::EngineFailed | Cause::Unavailable(_) | Cause::ModelGone)
    }

    pub fn name(self) -> &'static str {
        match self {
            Cause::ConnectFailed => "connect_failed",
            Cause::ConnectionLost => "connection_lost",
            Cause::EngineFailed => "engine_failed",
            Cause::Unavailable(502) => "bad_gateway",
            Cause::Unavailable(503) => "busy",
            Cause::Unavailable(_) => "gateway_timeout",
            Cause::ModelGone => "model_gone",
            Cause::KeyRefused => "key_refused",
            Cause::Empty => "empty",
            Cause::Nonsense => "nonsense",
            Cause::FirstByteLate => "first_byte_late",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moves on, blames the node, may be told to the client.
    #[track_caller]
    fn check(status: u16, expected: Option<(bool, bool, bool)>) {
        let got = Cause::of_status(status).map(|cause| (cause.may_move(), cause.is_failure(), cause.may_be_told()));
        assert_eq!(got, expected, "{status}");
    }

    #[test]
    fn statuses_are_not_alike() {
        check(200, None);
        check(400, None);
        check(429, None);
        check(101, Some((true, true, false)));
        check(302, Some((true, true, false)));
        check(401, Some((true, true, false)));
        check(404, Some((true, false, true)));
        check(500, Some((true, true, true)));
        check(502, Some((true, true, true)));
        check(503, Some((true, false, true)));
        assert!(!Cause::FirstByteLate.may_move());
        assert!(Cause::Empty.may_move() && Cause::Empty.is_failure() && !Cause::Empty.may_be_told());
    }
}
