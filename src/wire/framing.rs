//! How an answer's body is divided into messages.
//!
//! Told from the content type alone. Anything that names neither events nor lines is one whole body.

/// What separates one message of an answer from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Server-sent events.
    Events,
    /// One JSON value a line.
    Lines,
    /// The body is one message.
    Whole,
}

impl Framing {
    pub fn of(content_type: &str) -> Framing {
        let media = content_type.split(';').next().unwrap_or_default().trim();
        let is = |name: &str| media.eq_ignore_ascii_case(name);
        if is("text/event-stream") {
            Framing::Events
        } else if ["application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"]
            .into_iter()
            .any(is)
        {
            Framing::Lines
        } else {
            Framing::Whole
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(content_type: &str, framing: Framing) {
        assert_eq!(Framing::of(content_type), framing);
    }

    #[test]
    fn parameters_and_case_do_not_matter() {
        check("text/event-stream", Framing::Events);
        check("Text/Event-Stream;charset=utf-8", Framing::Events);
        check("application/x-ndjson ; charset=utf-8", Framing::Lines);
        check("application/json; charset=utf-8", Framing::Whole);
        check("", Framing::Whole);
    }
}
