//! What a failed attempt means: whether the request may move on, who is to blame, and what the client is
//! told. The one table for all of it.
//!
//! Nothing moves after the first byte. An engine stops working for a closed connection, so a request
//! whose connection is gone may be sent again, if doing it twice is as good as once; one that is merely
//! slow may not, since it is being worked on. Every other 4xx is the client's own and passes through.

/// How an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nothing was sent.
    ConnectFailed,
    /// The connection closed or broke.
    ConnectionLost,
    /// 500: the runner crashed, or would not fit.
    EngineFailed,
    /// The engine has no place for it now, by a status that its kind uses for this.
    Busy(u16),
    /// 502, 504: what is behind the node cannot now.
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
    /// Its node was taken out while it waited there.
    Ejected,
}

/// How far an attempt had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Waiting,
    /// The client has a part of the answer.
    Answering,
}

/// Who is worse for a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    Nobody,
    /// The model on this node.
    Holding,
    /// The node with all its models.
    Node,
    /// It is only left alone for a while.
    Busy,
}

/// What follows from a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Another node may be asked the same.
    pub moves: bool,
    /// Moving adds to the work of the fleet, and is limited for all requests together.
    pub spends_budget: bool,
    /// The node's own answer is for the client when no other node is asked.
    pub told: bool,
    pub blame: Blame,
}

impl Cause {
    /// The cause in an upstream's status, if that is one; `busy` are those by which its engine says that
    /// it has no place.
    pub fn of_status(status: u16, busy: &[u16]) -> Option<Cause> {
        match status {
            _ if busy.contains(&status) => Some(Cause::Busy(status)),
            101 | 300..=399 => Some(Cause::Nonsense),
            401 | 403 => Some(Cause::KeyRefused),
            404 => Some(Cause::ModelGone),
            500 => Some(Cause::EngineFailed),
            502..=504 => Some(Cause::Unavailable(status)),
            _ => None,
        }
    }

    /// What follows. `repeatable`: doing it twice is as good as once.
    pub fn verdict(self, phase: Phase, repeatable: bool) -> Verdict {
        let (begun, spends_budget, told, blame) = match self {
            Cause::ConnectFailed => (false, false, false, Blame::Node),
            Cause::ConnectionLost => (true, false, false, Blame::Holding),
            Cause::EngineFailed => (true, true, true, Blame::Holding),
            Cause::Busy(_) => (false, true, true, Blame::Busy),
            Cause::Unavailable(_) => (true, true, true, Blame::Holding),
            Cause::ModelGone => (false, false, true, Blame::Nobody),
            Cause::KeyRefused => (false, true, false, Blame::Node),
            Cause::Nonsense | Cause::Empty => (true, true, false, Blame::Holding),
            Cause::FirstByteLate => (true, true, false, Blame::Holding),
            Cause::Ejected => (true, false, false, Blame::Nobody),
        };
        let still_at_work = self == Cause::FirstByteLate;
        let moves = phase == Phase::Waiting && !still_at_work && (repeatable || !begun);
        Verdict { moves, spends_budget, told, blame }
    }

    /// What `name` says of each.
    pub const NAMES: [&'static str; 12] = [
        "connect_failed",
        "connection_lost",
        "engine_failed",
        "busy",
        "bad_gateway",
        "gateway_timeout",
        "model_gone",
        "key_refused",
        "empty",
        "nonsense",
        "first_byte_late",
        "ejected",
    ];

    pub fn name(self) -> &'static str {
        match self {
            Cause::ConnectFailed => "connect_failed",
            Cause::ConnectionLost => "connection_lost",
            Cause::EngineFailed => "engine_failed",
            Cause::Busy(_) => "busy",
            Cause::Unavailable(502) => "bad_gateway",
            Cause::Unavailable(_) => "gateway_timeout",
            Cause::ModelGone => "model_gone",
            Cause::KeyRefused => "key_refused",
            Cause::Empty => "empty",
            Cause::Nonsense => "nonsense",
            Cause::FirstByteLate => "first_byte_late",
            Cause::Ejected => "ejected",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_status(busy: &[u16], status: u16, expected: Option<Cause>) {
        assert_eq!(Cause::of_status(status, busy), expected, "{status}, busy being {busy:?}");
    }

    #[test]
    fn ret_13_which_statuses_say_busy_is_the_engines_matter() {
        for status in [200, 400, 409, 422, 429] {
            check_status(&[503], status, None);
        }
        for (busy, status) in [(&[503], 503), (&[429], 429), (&[409], 409)] {
            check_status(busy, status, Some(Cause::Busy(status)));
        }
        check_status(&[503], 101, Some(Cause::Nonsense));
        check_status(&[503], 302, Some(Cause::Nonsense));
        check_status(&[503], 401, Some(Cause::KeyRefused));
        check_status(&[503], 404, Some(Cause::ModelGone));
        check_status(&[503], 500, Some(Cause::EngineFailed));
        check_status(&[503], 502, Some(Cause::Unavailable(502)));
        check_status(&[429], 503, Some(Cause::Unavailable(503)));
    }

    /// Every cause before the first byte: whether it moves, for repeatable calls and for others; whether
    /// the move counts against the budget; whether its answer may be told; who is to blame.
    const TABLE: [(Cause, bool, bool, bool, bool, Blame); 12] = [
        (Cause::ConnectFailed, true, true, false, false, Blame::Node),
        (Cause::ConnectionLost, true, false, false, false, Blame::Holding),
        (Cause::EngineFailed, true, false, true, true, Blame::Holding),
        (Cause::Busy(503), true, true, true, true, Blame::Busy),
        (Cause::Busy(429), true, true, true, true, Blame::Busy),
        (Cause::Unavailable(502), true, false, true, true, Blame::Holding),
        (Cause::ModelGone, true, true, false, true, Blame::Nobody),
        (Cause::KeyRefused, true, true, true, false, Blame::Node),
        (Cause::Nonsense, true, false, true, false, Blame::Holding),
        (Cause::Empty, true, false, true, false, Blame::Holding),
        (Cause::FirstByteLate, false, false, true, false, Blame::Holding),
        (Cause::Ejected, true, false, false, false, Blame::Nobody),
    ];

    #[test]
    fn the_whole_table() {
        for (cause, moves, moves_once, spends_budget, told, blame) in TABLE {
            assert!(Cause::NAMES.contains(&cause.name()), "{cause:?}");
            for (repeatable, moves) in [(true, moves), (false, moves_once)] {
                let expected = Verdict { moves, spends_budget, told, blame };
                assert_eq!(cause.verdict(Phase::Waiting, repeatable), expected, "{cause:?}, repeatable: {repeatable}");
                assert!(!cause.verdict(Phase::Answering, repeatable).moves, "ret_03: {cause:?} after the first byte");
            }
        }
    }
}
