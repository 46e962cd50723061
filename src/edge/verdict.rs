//! How a request ended, as one of a fixed set of classes.
//!
//! A status alone cannot say it: a stream that was cut, stalled or left by its client has a 200 as well.
//! Every request that ran a model, or wanted to, ends in exactly one.

use super::refusal::Refusal;
use crate::routing::retry::Cause;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Ok,
    /// The client's to mend: a 4xx, the engine's or ours.
    ClientError,
    /// The engine, or each one that was tried, failed before its answer began.
    BackendError,
    /// The answer broke off.
    Cut,
    /// A good status and nothing after it.
    Empty,
    /// The engine was silent for longer than it may be, before its answer or within.
    Stalled,
    ClientGone,
    /// No engine was asked, though the request was in order.
    Refused,
    /// It waited here for an engine for longer than it may.
    QueueTimeout,
    /// The engine reported an error inside an answer that had begun.
    StreamError,
}

impl Verdict {
    pub const ALL: [Verdict; 10] = [
        Verdict::Ok,
        Verdict::ClientError,
        Verdict::BackendError,
        Verdict::Cut,
        Verdict::Empty,
        Verdict::Stalled,
        Verdict::ClientGone,
        Verdict::Refused,
        Verdict::QueueTimeout,
        Verdict::StreamError,
    ];

    /// The class of a request that ended with our own refusal.
    pub fn of(refusal: &Refusal) -> Verdict {
        match refusal {
            Refusal::AttemptsFailed { last: Cause::Empty, .. } => Verdict::Empty,
            Refusal::AttemptsFailed { last: Cause::FirstByteLate, .. } => Verdict::Stalled,
            Refusal::AttemptsFailed { .. } | Refusal::Misspoken => Verdict::BackendError,
            Refusal::QueueTimeout { .. } => Verdict::QueueTimeout,
            _ if refusal.status() < 500 => Verdict::ClientError,
            _ => Verdict::Refused,
        }
    }

    /// The client did not get what it might have got, and is not the one to mend that.
    pub fn is_failure(self) -> bool {
        !matches!(self, Verdict::Ok | Verdict::ClientError | Verdict::ClientGone)
    }

    /// As a label.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::ClientError => "client_error",
            Verdict::BackendError => "backend_error",
            Verdict::Cut => "cut",
            Verdict::Empty => "empty",
            Verdict::Stalled => "stalled",
            Verdict::ClientGone => "client_gone",
            Verdict::Refused => "refused",
            Verdict::QueueTimeout => "queue_timeout",
            Verdict::StreamError => "stream_error",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::body::BodyError;

    #[track_caller]
    fn check(refusal: Refusal, expected: Verdict) {
        assert_eq!(Verdict::of(&refusal), expected, "{refusal:?}");
    }

    fn failed(last: Cause) -> Refusal {
        Refusal::AttemptsFailed { last, attempts: 1 }
    }

    #[test]
    fn acc_05_a_refusal_tells_whose_fault_it_was() {
        check(failed(Cause::Empty), Verdict::Empty);
        check(failed(Cause::FirstByteLate), Verdict::Stalled);
        check(failed(Cause::ConnectFailed), Verdict::BackendError);
        check(failed(Cause::ModelGone), Verdict::BackendError);
        check(Refusal::UnknownPath, Verdict::ClientError);
        check(Refusal::Body(BodyError::TooSlow), Verdict::ClientError);
        check(Refusal::Body(BodyError::NoMemory), Verdict::Refused);
        check(Refusal::AllDown { model: String::new(), retry_after_s: 1 }, Verdict::Refused);
        check(Refusal::Internal, Verdict::Refused);
    }

    #[test]
    fn acc_05_the_classes_are_a_fixed_set() {
        let mut names = Verdict::ALL.map(Verdict::name);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
