//! What the client was given of a stream, kept for the case that it is cut.
//!
//! Frames leave with their last byte; the beginning of one whose end has not come is kept back, so that a
//! cut never lies within a frame for the client. Once a stream cannot go on any more it passes untouched.

use super::frame::{Frame, Frames, Says, read};
use super::members::Members;
use super::{Kind, Unfit};

/// Text of one answer that is kept: some 60,000 tokens. A longer one does not go on.
const SAID_BYTES_MAX: usize = 256 * 1024;

/// The answer so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    pub text: String,
    pub thinking: String,
    /// Frames with something said in them. Engines write one a token as a rule.
    pub frames: u32,
    /// Counts, where a frame told them.
    pub prompt: Option<u32>,
    pub output: Option<u32>,
    /// The client was told who speaks.
    pub(super) has_role: bool,
    /// The values of `id`, `created` and `model`, as they stand in its frames.
    pub(super) head: [Option<String>; 3],
}

pub(super) const HEAD: [&str; 3] = ["id", "created", "model"];

impl Said {
    /// Tokens that the model has made: told, or else a token a frame.
    pub fn output_tokens(&self) -> u32 {
        self.output.unwrap_or(self.frames)
    }

    /// What a node is told that was said. White space at its end is left out: many templates take it
    /// away, and few models go on from it well.
    pub fn given(&self) -> &str {
        self.text.trim_end()
    }

    fn add(&mut self, says: &Says<'_>) -> Result<(), Unfit> {
        self.learn_head(&says.top);
        self.has_role |= says.fields.filled("role").is_some();
        self.frames += u32::from(!says.text.is_empty() || !says.thinking.is_empty());
        self.prompt = says.prompt.or(self.prompt);
        self.output = says.output.or(self.output);
        match () {
            _ if says.is_last => return Err(Unfit::Over),
            _ if says.calls_tools => return Err(Unfit::Tools),
            // It thinks again after it has spoken.
            _ if !says.thinking.is_empty() && !self.text.is_empty() => return Err(Unfit::Thinking),
            _ => {}
        }
        self.thinking.push_str(&says.thinking);
        self.text.push_str(&says.text);
        if self.text.len() + self.thinking.len() > SAID_BYTES_MAX { Err(Unfit::TooLong) } else { Ok(()) }
    }

    fn learn_head(&mut self, top: &Members<'_>) {
        for (held, name) in self.head.iter_mut().zip(HEAD) {
            if held.is_none() {
                *held = top.get(name).map(|raw| raw.get().to_string());
            }
        }
    }
}

/// Follows one answer, over all nodes that say it.
#[derive(Debug)]
pub struct Follower {
    pub kind: Kind,
    frames: Frames,
    said: Said,
    unfit: Option<Unfit>,
}

impl Follower {
    pub fn new(kind: Kind) -> Follower {
        Follower { kind, frames: Frames::new(kind), said: Said::default(), unfit: None }
    }

    /// What of a chunk goes to the client; `None`: all of it, as it came.
    pub fn feed(&mut self, chunk: &[u8]) -> Option<Vec<u8>> {
        if self.unfit.is_some() {
            return None;
        }
        let mut changed = !self.frames.is_between();
        let mut passed = Vec::with_capacity(chunk.len());
        let Follower { kind, frames, said, unfit } = self;
        let fed = frames.feed(chunk, |frame| {
            passed.extend_from_slice(frame);
            *unfit = unfit.or(match read(*kind, frame) {
                Frame::Blank => None,
                Frame::Done | Frame::Error => Some(Unfit::Over),
                Frame::Odd => Some(Unfit::Odd),
                Frame::Says(says) => said.add(&says).err(),
            });
        });
        if fed.is_err() {
            *unfit = unfit.or(Some(Unfit::Odd));
        }
        if unfit.is_some() {
            passed.append(&mut frames.take_half());
            *said = Said::default();
        }
        changed |= !frames.is_between();
        changed.then_some(passed)
    }

    /// What was said, if more can follow from elsewhere.
    pub fn said(&self) -> Result<&Said, Unfit> {
        self.unfit.map_or(Ok(&self.said), Err)
    }

    /// The beginning of a frame that the client was not given.
    pub fn take_half(&mut self) -> Vec<u8> {
        self.frames.take_half()
    }
}
