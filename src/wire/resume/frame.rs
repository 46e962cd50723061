//! One frame of a chat stream: where it ends, and what it says.

use serde_json::value::RawValue;

use super::super::frame_end::{FrameEnd, Lost};
use super::Kind;
use super::members::{Members, is_filled, one_item, text};

/// The longest frame that is taken for one; a frame of text has some hundred bytes.
const FRAME_LIMIT: usize = 64 * 1024;

/// Cuts a stream into frames. What has no end yet is kept back.
#[derive(Debug)]
pub(super) struct Frames {
    kind: Kind,
    held: Vec<u8>,
    end: FrameEnd,
}

impl Frames {
    pub fn new(kind: Kind) -> Frames {
        Frames { kind, held: Vec::new(), end: FrameEnd::default() }
    }

    /// What is not given to `each` is kept back, also when the border is lost or a frame is too long.
    pub fn feed(&mut self, chunk: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), Lost> {
        let mut rest = chunk;
        loop {
            let end = self.end.find(rest, self.kind.ends());
            let parts = end.as_ref().ok().and_then(|end| rest.split_at_checked((*end)?));
            let Some((last, after)) = parts else {
                self.held.extend_from_slice(rest);
                let fits = self.held.len() <= FRAME_LIMIT;
                return if end.is_ok() && fits { Ok(()) } else { Err(Lost) };
            };
            if self.held.is_empty() {
                each(last);
            } else {
                self.held.extend_from_slice(last);
                each(&std::mem::take(&mut self.held));
            }
            rest = after;
        }
    }

    pub fn is_between(&self) -> bool {
        self.held.is_empty()
    }

    /// The beginning of a frame whose end has not come.
    pub fn take_half(&mut self) -> Vec<u8> {
        self.end = FrameEnd::default();
        std::mem::take(&mut self.held)
    }
}

/// What a frame is.
#[derive(Debug)]
pub(super) enum Frame<'a> {
    /// A comment, or a blank line.
    Blank,
    /// OpenAI's end mark.
    Done,
    Error,
    /// Not known here.
    Odd,
    Says(Says<'a>),
}

/// A message of the stream.
#[derive(Debug, Default)]
pub(super) struct Says<'a> {
    pub top: Members<'a>,
    /// Ollama's message, OpenAI's delta. `None`: an event of counts alone.
    pub message: Option<&'a RawValue>,
    pub fields: Members<'a>,
    pub text: String,
    pub thinking: String,
    pub calls_tools: bool,
    /// The model has said all.
    pub is_last: bool,
    /// Where its counts stand.
    pub counts: Option<(&'a RawValue, Members<'a>)>,
    pub prompt: Option<u32>,
    pub output: Option<u32>,
}

pub(super) fn read(kind: Kind, frame: &[u8]) -> Frame<'_> {
    let Ok(frame) = std::str::from_utf8(frame) else { return Frame::Odd };
    let json = match kind {
        Kind::Ollama => frame.trim(),
        Kind::OpenAi => match data(frame) {
            Data::One(data) => data,
            Data::None => "",
            Data::Error => return Frame::Error,
            Data::Odd => return Frame::Odd,
        },
    };
    match json {
        "" => return Frame::Blank,
        "[DONE]" => return Frame::Done,
        _ => {}
    }
    let Some(top) = Members::read(json) else { return Frame::Odd };
    let flat_error = top.get("object").is_some_and(|object| object.get() == "\"error\"");
    if top.filled("error").is_some() || flat_error {
        return Frame::Error;
    }
    let says = match kind {
        Kind::Ollama => ollama(top),
        Kind::OpenAi => openai(top),
    };
    says.map_or(Frame::Odd, Frame::Says)
}

/// What the lines of an event hold.
enum Data<'a> {
    None,
    One(&'a str),
    Error,
    Odd,
}

fn data(event: &str) -> Data<'_> {
    let mut found = Data::None;
    for line in event.lines() {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        match name {
            "data" if matches!(found, Data::One(_)) => return Data::Odd,
            "data" => found = Data::One(value.trim()),
            "error" => return Data::Error,
            "event" if value.trim() == "error" => return Data::Error,
            _ => {}
        }
    }
    found
}

fn ollama(top: Members<'_>) -> Option<Says<'_>> {
    let message = top.get("message");
    let is_last = top.filled("done").is_some();
    if message.is_none() && !is_last || top.filled("logprobs").is_some() {
        return None;
    }
    let mut says = said_in(message)?;
    says.is_last = is_last;
    says.prompt = top.count("prompt_eval_count");
    says.output = top.count("eval_count");
    Some(Says { top, ..says })
}

fn openai(top: Members<'_>) -> Option<Says<'_>> {
    let mut says = match one_item(top.get("choices")?.get())? {
        None => Says::default(),
        Some(choice) => {
            let choice = Members::read(choice.get())?;
            if choice.filled("index").is_some() || choice.filled("logprobs").is_some() {
                return None;
            }
            let mut says = said_in(choice.get("delta"))?;
            says.is_last = choice.filled("finish_reason").is_some();
            says
        }
    };
    if let Some(usage) = top.filled("usage") {
        let counts = Members::read(usage.get())?;
        says.prompt = counts.count("prompt_tokens");
        says.output = counts.count("completion_tokens");
        says.counts = Some((usage, counts));
    }
    Some(Says { top, ..says })
}

/// What a message or a delta says.
fn said_in(message: Option<&RawValue>) -> Option<Says<'_>> {
    let fields = match message {
        Some(raw) if raw.get() != "null" => Members::read(raw.get())?,
        _ => Members::default(),
    };
    let mut says = Says { message, ..Says::default() };
    for (name, raw) in fields.iter().filter(|(_, raw)| is_filled(raw)) {
        match name {
            "role" => {}
            "content" => says.text = text(Some(raw))?,
            // vLLM writes the same under both of its names for a while.
            "thinking" | "reasoning" | "reasoning_content" => says.thinking = text(Some(raw))?,
            "tool_calls" | "function_call" => says.calls_tools = true,
            _ => return None,
        }
    }
    // White space alone is text, too.
    if says.text.is_empty() {
        says.text = text(fields.get("content"))?;
    }
    says.fields = fields;
    Some(says)
}
