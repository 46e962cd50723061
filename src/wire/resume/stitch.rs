//! The second answer, joined to what the client was given of the first.
//!
//! Its frames take over the head of the first, tell nobody again who speaks, and count for the whole. It must
//! go on with text: one that begins to think anew would also say anew what was said.

use serde_json::value::RawValue;

use super::follower::{HEAD, Said};
use super::frame::{Frame, Frames, Says, read};
use super::members::{Members, span};
use super::{Kind, Unfit};
use crate::wire::edit::{Edit, edited};

/// The counts of what came before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Base {
    pub prompt: Option<u32>,
    pub output: u32,
}

impl Base {
    fn of(said: &Said) -> Base {
        Base { prompt: said.prompt, output: said.output_tokens() }
    }

    /// The prompt as the client knows it: what was said counts as prompt to the node that goes on from it.
    pub fn prompt(&self, told: u32) -> u32 {
        self.prompt.unwrap_or_else(|| told.saturating_sub(self.output))
    }

    pub fn output(&self, told: u32) -> u32 {
        told.saturating_add(self.output)
    }
}

/// Joins one answer to those before it.
#[derive(Debug)]
pub struct Stitch {
    kind: Kind,
    pub base: Base,
    frames: Frames,
    head: [Option<String>; 3],
    has_role: bool,
    /// Some text stands before it.
    has_text: bool,
    /// White space that the client has and the node was not given, as far as it may still come again.
    owed: String,
    /// The client did not ask for the event of counts.
    drops_counts: bool,
    /// Its end mark has been passed on.
    pub is_over: bool,
    /// The model has said all; only the end mark may be missing.
    pub has_said_all: bool,
}

impl Stitch {
    pub fn new(kind: Kind, said: &Said, drops_counts: bool) -> Stitch {
        Stitch {
            kind,
            base: Base::of(said),
            frames: Frames::new(kind),
            head: said.head.clone(),
            has_role: said.has_role,
            has_text: !said.given().is_empty(),
            owed: said.text.get(said.given().len()..).unwrap_or_default().to_string(),
            drops_counts,
            is_over: false,
            has_said_all: false,
        }
    }

    /// What the client gets for a chunk; an error if this answer does not go on with the first.
    pub fn feed(&mut self, chunk: &[u8]) -> Result<Vec<u8>, Unfit> {
        let mut whole: Vec<Vec<u8>> = Vec::new();
        let fed = self.frames.feed(chunk, |frame| whole.push(frame.to_vec()));
        let mut passed = Vec::with_capacity(chunk.len());
        for frame in whole {
            if !self.is_over {
                self.join(&frame, &mut passed)?;
            }
        }
        fed.map(|()| passed).map_err(|_| Unfit::Odd)
    }

    fn join(&mut self, frame: &[u8], passed: &mut Vec<u8>) -> Result<(), Unfit> {
        match read(self.kind, frame) {
            Frame::Blank => passed.extend_from_slice(frame),
            Frame::Done => {
                self.is_over = true;
                passed.extend_from_slice(frame);
            }
            Frame::Error => return Err(Unfit::Over),
            Frame::Odd => return Err(Unfit::Odd),
            Frame::Says(says) => passed.extend(self.joined(frame, says)?),
        }
        Ok(())
    }

    fn joined(&mut self, frame: &[u8], says: Says<'_>) -> Result<Vec<u8>, Unfit> {
        if self.has_text && !says.thinking.is_empty() {
            return Err(Unfit::Thinking);
        }
        let text = self.unowed(&says.text);
        self.has_said_all |= says.is_last;
        self.is_over |= says.is_last && self.kind == Kind::Ollama;
        let counts_alone = says.message.is_none() && says.counts.is_some();
        let has_role = self.kind == Kind::OpenAi && says.fields.get("role").is_some();
        let repeats_role = self.has_role && has_role;
        self.has_role |= has_role;
        let says_something = !text.is_empty() || !says.thinking.is_empty() || says.calls_tools || says.is_last;
        let says_nothing = !says_something && (repeats_role || !has_role);
        if counts_alone && self.drops_counts || says_nothing && says.counts.is_none() {
            return Ok(Vec::new());
        }
        let mut edits = self.counted(frame, &says);
        for (held, name) in self.head.iter().zip(HEAD) {
            if let (Some(first), Some(raw)) = (held, says.top.get(name)) {
                edits.push(Edit::replace(span(frame, raw), first.clone().into_bytes()));
            }
        }
        if let Some(message) = says.message.filter(|_| repeats_role || text != says.text) {
            let said = rebuilt(&says.fields, repeats_role, text);
            edits.push(Edit::replace(span(frame, message), said.into_bytes()));
        }
        edited(frame, edits).ok_or(Unfit::Odd)
    }

    /// What is new of a text.
    fn unowed<'t>(&mut self, text: &'t str) -> &'t str {
        let mut rest = text;
        while let Some(next) = rest.chars().next() {
            if !self.owed.starts_with(next) {
                self.owed.clear();
                break;
            }
            self.owed.remove(0);
            rest = rest.get(next.len_utf8()..).unwrap_or_default();
        }
        rest
    }

    /// Its counts as those of the whole.
    fn counted(&self, frame: &[u8], says: &Says<'_>) -> Vec<Edit> {
        let put = |raw: Option<&RawValue>, count: Option<u32>| {
            let count = count?.to_string().into_bytes();
            Some(Edit::replace(span(frame, raw?), count))
        };
        let (prompt, output) = (says.prompt.map(|n| self.base.prompt(n)), says.output.map(|n| self.base.output(n)));
        let edits = match (self.kind, &says.counts) {
            (Kind::Ollama, _) => {
                vec![put(says.top.get("prompt_eval_count"), prompt), put(says.top.get("eval_count"), output)]
            }
            (Kind::OpenAi, Some((_, counts))) => {
                let total = prompt.zip(output).map(|(prompt, output)| prompt.saturating_add(output));
                let put = |name, count| put(counts.get(name), count);
                vec![put("prompt_tokens", prompt), put("completion_tokens", output), put("total_tokens", total)]
            }
            (Kind::OpenAi, None) => Vec::new(),
        };
        edits.into_iter().flatten().collect()
    }
}

/// A message with another text, and without its role.
fn rebuilt(fields: &Members<'_>, drops_role: bool, text: &str) -> String {
    let mut said = String::from("{");
    for (name, raw) in fields.iter().filter(|(name, _)| !(drops_role && *name == "role")) {
        if said.len() > 1 {
            said.push(',');
        }
        said.push_str(&serde_json::Value::from(name).to_string());
        said.push(':');
        match name {
            "content" => said.push_str(&serde_json::Value::from(text).to_string()),
            _ => said.push_str(raw.get()),
        }
    }
    said.push('}');
    said
}
