//! What a scripted node does with one request, step by step.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::http1::Framing;

/// A list of steps; built from left to right.
#[derive(Clone, Debug)]
pub struct Script {
    pub steps: Vec<Step>,
    /// Whether the steps play as soon as the head has arrived, the body left unread.
    pub before_body: bool,
    /// Whether the connection is never read from again once the head has arrived.
    pub deaf: bool,
}

#[derive(Clone, Debug)]
pub enum Step {
    /// A healthy engine's complete answer to whatever was asked.
    Usual,
    Head {
        status: u16,
        headers: Vec<(String, String)>,
        framing: Framing,
    },
    /// One write; one HTTP chunk if the head said chunked.
    Chunk(Bytes),
    Hold(Hold),
    /// The last chunk of a chunked answer.
    Finish,
    Close,
    Reset,
}

impl Script {
    fn of(steps: Vec<Step>) -> Script {
        Script { steps, before_body: false, deaf: false }
    }

    /// Answers as a healthy engine does.
    pub fn usual() -> Script {
        Script::of(vec![Step::Usual])
    }

    /// Does nothing until told to go on; goes on with the steps that follow.
    pub fn held(hold: &Hold) -> Script {
        Script::of(vec![Step::Hold(hold.clone())])
    }

    /// Reads the request and never answers.
    pub fn silent() -> Script {
        Script::held(&Hold::new())
    }

    /// Takes the request's head, reads nothing of its body and never answers.
    pub fn deaf() -> Script {
        Script { before_body: true, deaf: true, ..Script::silent() }
    }

    /// Reads the request and writes these bytes as they are, of whatever meaning.
    pub fn raw(bytes: impl Into<Bytes>) -> Script {
        Script::of(vec![Step::Chunk(bytes.into())])
    }

    /// Reads the request and closes without a word.
    pub fn closing() -> Script {
        Script::of(vec![Step::Close])
    }

    /// Reads the request and resets the connection.
    pub fn resetting() -> Script {
        Script::of(vec![Step::Reset])
    }

    /// The head of a stream of JSON lines.
    pub fn ndjson() -> Script {
        Script::stream("application/x-ndjson")
    }

    /// The head of a stream of server-sent events.
    pub fn sse() -> Script {
        Script::stream("text/event-stream")
    }

    /// The head of a stream of that type.
    pub fn stream(content_type: &str) -> Script {
        Script::of(vec![Step::Head {
            status: 200,
            headers: vec![("Content-Type".into(), content_type.into())],
            framing: Framing::Chunked,
        }])
    }

    /// The head of a JSON answer of that length, whether or not so much follows.
    pub fn json_head(status: u16, length: u64) -> Script {
        Script::of(vec![Step::Head {
            status,
            headers: vec![("Content-Type".into(), "application/json".into())],
            framing: Framing::Length(length),
        }])
    }

    /// The head of a JSON answer whose length is not told, as servers send it that begin before they
    /// know the end.
    pub fn json_of_any_length(status: u16) -> Script {
        Script::of(vec![Step::Head {
            status,
            headers: vec![("Content-Type".into(), "application/json".into())],
            framing: Framing::Chunked,
        }])
    }

    /// A complete JSON answer.
    pub fn json(status: u16, body: &Value) -> Script {
        let body = body.to_string();
        Script::json_head(status, body.len() as u64).chunk(body)
    }

    /// With another header.
    pub fn header(mut self, name: &str, value: &str) -> Script {
        for step in &mut self.steps {
            if let Step::Head { headers, .. } = step {
                headers.push((name.into(), value.into()));
            }
        }
        self
    }

    /// The same answer, ended by its connection and by nothing else.
    pub fn until_close(mut self) -> Script {
        for step in &mut self.steps {
            if let Step::Head { framing, .. } = step {
                *framing = Framing::UntilClose;
            }
        }
        self.close()
    }

    /// Plays before the body has been read, as a server does that refuses at once.
    pub fn before_body(mut self) -> Script {
        self.before_body = true;
        self
    }

    pub fn chunk(self, bytes: impl Into<Bytes>) -> Script {
        self.then(Step::Chunk(bytes.into()))
    }

    pub fn hold(self, hold: &Hold) -> Script {
        self.then(Step::Hold(hold.clone()))
    }

    /// A complete JSON answer from here on.
    pub fn then_json(mut self, status: u16, body: &Value) -> Script {
        self.steps.extend(Script::json(status, body).steps);
        self
    }

    /// The head of a JSON answer of that length from here on.
    pub fn then_head(mut self, status: u16, length: u64) -> Script {
        self.steps.extend(Script::json_head(status, length).steps);
        self
    }

    /// The usual answer from here on.
    pub fn then_usual(self) -> Script {
        self.then(Step::Usual)
    }

    pub fn finish(self) -> Script {
        self.then(Step::Finish)
    }

    pub fn close(self) -> Script {
        self.then(Step::Close)
    }

    pub fn reset(self) -> Script {
        self.then(Step::Reset)
    }

    fn then(mut self, step: Step) -> Script {
        self.steps.push(step);
        self
    }
}

/// A place at which scripts wait until the test lets them on. Clones are the same place.
#[derive(Clone, Debug)]
pub struct Hold(Arc<Semaphore>);

impl Hold {
    pub fn new() -> Hold {
        Hold(Arc::new(Semaphore::new(0)))
    }

    /// Lets so many scripts on, those that come later included.
    pub fn release(&self, count: usize) {
        self.0.add_permits(count);
    }

    /// Lets all on, for good.
    pub fn open(&self) {
        self.0.close();
    }

    pub async fn wait(&self) {
        if let Ok(permit) = self.0.acquire().await {
            permit.forget();
        }
    }
}
