//! The messages of a chat, in every dialect's spelling alike.
//!
//! What a message says is its role, texts, images, tool calls and the names that tie a tool's answer to
//! its call. A part that holds parts of its own, as Anthropic's tool results do, says what they say.
//! What a model thought (`thinking`, `reasoning_content`, `reasoning`) and marks for caches are not said
//! again to the model and do not enter; nor do fields nobody here knows.

use serde::de::{MapAccess, SeqAccess};

use super::digest::{Digester, payload};
use super::steps::Steps;
use super::turn::{Attachments, Extras, Role, Turn};
use super::value::{Scalar, Skip, Take, Taker, key, scalar};
use crate::routing::chain::{hash_text, mix};

/// Steps of a list of messages.
#[derive(Default)]
pub(super) struct Messages {
    pub steps: Steps,
    /// The step that ends the first message of a user.
    pub first_user: Option<usize>,
    /// Answers of the assistant since, what it says in one go being one. Where nothing follows it is put into its mouth.
    pub answers: u32,
    is_answer: bool,
}

impl Messages {
    /// Begins the next message.
    pub fn turn(&mut self) -> Turn<'_> {
        let first = self.steps.is_empty();
        Turn::new(&mut self.steps, first)
    }

    /// The message last begun is over and was `role`'s.
    pub fn ended(&mut self, role: Role) {
        if role.is_user && self.first_user.is_none() {
            self.first_user = Some(self.steps.len() - 1);
        }
        if self.is_answer && !role.is_assistant {
            self.answers = self.answers.saturating_add(1);
        }
        self.is_answer = role.is_assistant && self.first_user.is_some();
    }
}

impl<'de> Taker<'de> for &mut Messages {
    type Out = ();

    fn items<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Take(Message(self)))?.is_some() {
            self.steps.admit()?;
        }
        Ok(())
    }
}

/// The `system` text beside the messages, as if it were the first of them.
pub(super) struct System<'a>(pub &'a mut Messages);

impl<'de> Taker<'de> for System<'_> {
    type Out = ();

    fn scalar(self, scalar: Scalar<'_>) {
        if let Some(text) = scalar.text().filter(|text| !text.is_empty()) {
            let mut turn = Turn::new(&mut self.0.steps, true);
            turn.text(text);
            turn.close(Role::of("system"), Extras::default());
        }
    }

    fn items<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        let mut turn = Turn::new(&mut self.0.steps, true);
        Content(&mut turn).items(items)?;
        turn.close(Role::of("system"), Extras::default());
        Ok(())
    }
}

struct Message<'a>(&'a mut Messages);

#[derive(Clone, Copy)]
enum Field {
    Role,
    Content,
    Images,
    ToolCalls,
    ToolCallId,
    ToolName,
    Other,
}

impl Field {
    fn of(key: &str) -> Field {
        match key {
            "role" => Field::Role,
            "content" => Field::Content,
            "images" => Field::Images,
            "tool_calls" | "function_call" => Field::ToolCalls,
            "tool_call_id" => Field::ToolCallId,
            "tool_name" | "name" => Field::ToolName,
            _ => Field::Other,
        }
    }
}

impl<'de> Taker<'de> for Message<'_> {
    type Out = ();

    fn fields<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut turn = self.0.turn();
        let (mut role, mut extras) = (Role::default(), Extras::default());
        while let Some(field) = fields.next_key_seed(key(Field::of))? {
            match field {
                Field::Role => role = fields.next_value_seed(scalar(|s| s.text().map(Role::of)))?.unwrap_or_default(),
                Field::Content => fields.next_value_seed(Take(Content(&mut turn)))?,
                Field::Images => fields.next_value_seed(Take(Images(&mut turn.attachments)))?,
                Field::ToolCalls => {
                    extras.tool_calls = fields.next_value_seed(Take(Digester::default()))?.unless_empty()
                }
                Field::ToolCallId => extras.tool_call_id = fields.next_value_seed(scalar(text_hash))?,
                Field::ToolName => extras.name = fields.next_value_seed(scalar(text_hash))?,
                Field::Other => fields.next_value_seed(Take(Skip))?,
            }
        }
        turn.close(role, extras);
        self.0.ended(role);
        Ok(())
    }
}

pub(super) fn text_hash(scalar: Scalar<'_>) -> u64 {
    scalar.text().map_or(0, hash_text)
}

/// A message's content: a text, or a list of parts.
pub(super) struct Content<'t, 'a>(pub &'t mut Turn<'a>);

impl<'de> Taker<'de> for Content<'_, '_> {
    type Out = ();

    fn scalar(self, scalar: Scalar<'_>) {
        if let Scalar::Text(text) = scalar {
            self.0.text(text);
        }
    }

    fn items<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Take(Part(self.0)))?.is_some() {
            self.0.admit_part()?;
        }
        Ok(())
    }

    fn fields<A: MapAccess<'de>>(self, fields: A) -> Result<(), A::Error> {
        Part(self.0).fields(fields)
    }
}

struct Part<'t, 'a>(&'t mut Turn<'a>);

#[derive(Clone, Copy, Default)]
enum PartKind {
    #[default]
    Untold,
    Text,
    Image,
    Thought,
    Other(u64),
}

impl PartKind {
    fn of(name: &str) -> PartKind {
        match name {
            "text" | "input_text" | "output_text" => PartKind::Text,
            "image_url" | "input_image" | "image" => PartKind::Image,
            "thinking" | "redacted_thinking" | "reasoning" => PartKind::Thought,
            other => PartKind::Other(hash_text(other)),
        }
    }
}

#[derive(Clone, Copy)]
enum PartField {
    Type,
    Text,
    Source,
    CacheMark,
    Other(u64),
}

impl PartField {
    fn of(key: &str) -> PartField {
        match key {
            "type" => PartField::Type,
            "text" | "content" => PartField::Text,
            "image_url" | "source" | "image" => PartField::Source,
            "cache_control" => PartField::CacheMark,
            other => PartField::Other(hash_text(other)),
        }
    }
}

impl<'de> Taker<'de> for Part<'_, '_> {
    type Out = ();

    fn scalar(self, scalar: Scalar<'_>) {
        Content(self.0).scalar(scalar);
    }

    fn fields<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let turn = self.0;
        let (mut kind, mut source) = (PartKind::Untold, None);
        let (mut rest, mut rest_chars) = (0u64, 0);
        while let Some(field) = fields.next_key_seed(key(PartField::of))? {
            match field {
                PartField::Type => {
                    kind = fields.next_value_seed(scalar(|s| s.text().map(PartKind::of)))?.unwrap_or_default();
                }
                PartField::Text => fields.next_value_seed(Take(Content(turn)))?,
                PartField::Source => source = fields.next_value_seed(Take(Source))?,
                PartField::CacheMark => fields.next_value_seed(Take(Skip))?,
                PartField::Other(name) => {
                    let value = fields.next_value_seed(Take(Digester::default()))?;
                    rest = rest.wrapping_add(mix(name, value.hash));
                    rest_chars += value.chars;
                }
            }
        }
        match (kind, source) {
            (PartKind::Text | PartKind::Thought, _) | (PartKind::Untold, None) => {}
            (PartKind::Image | PartKind::Untold, source) => turn.attachments.image(source.unwrap_or(rest)),
            (PartKind::Other(kind), source) => {
                turn.attachments.other(mix(kind, mix(rest, source.unwrap_or(0))), rest_chars);
            }
        }
        Ok(())
    }
}

/// Where an image's bytes are: a text, or an object with a `url`, `data` or `file_id` in it.
struct Source;

impl<'de> Taker<'de> for Source {
    type Out = Option<u64>;

    fn scalar(self, scalar: Scalar<'_>) -> Option<u64> {
        scalar.text().map(bytes_hash)
    }

    fn fields<A: MapAccess<'de>>(self, mut fields: A) -> Result<Option<u64>, A::Error> {
        let mut found = None;
        while let Some(holds_it) = fields.next_key_seed(key(|name| matches!(name, "url" | "data" | "file_id")))? {
            if holds_it {
                found = fields.next_value_seed(Take(Source))?.or(found);
            } else {
                fields.next_value_seed(Take(Skip))?;
            }
        }
        Ok(found)
    }
}

/// Ollama's list of images beside a text.
pub(super) struct Images<'a>(pub &'a mut Attachments);

impl<'de> Taker<'de> for Images<'_> {
    type Out = ();

    fn items<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(source) = items.next_element_seed(Take(Source))? {
            self.0.image(source.unwrap_or(0));
        }
        Ok(())
    }
}

/// Base64 stands for its bytes, whichever dialect wraps it.
fn bytes_hash(source: &str) -> u64 {
    hash_text(payload(source).unwrap_or(source))
}
