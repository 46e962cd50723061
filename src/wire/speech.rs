//! Whether a message, or a delta of one, holds some of the model's output.
//!
//! A dialect tells who speaks and what of before anything is said, and ends with a message that says
//! nothing; an answer's first word and its pace are told by those in between.

use serde::de::{IgnoredAny, MapAccess, SeqAccess};

use super::usage::{Counts, Usage};
use super::value::{Scalar, Take, Taker, key};

/// Whether a message says anything, and the counts that Anthropic's hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub anything: bool,
    pub usage: Usage,
}

/// Takes a message, or a delta of one that is an object.
pub(super) struct Speech;

#[derive(Clone, Copy)]
enum Field {
    /// About the message, and not in it.
    Frame,
    Usage,
    Word,
}

impl Field {
    fn of(key: &str) -> Field {
        match key {
            "role" | "type" | "id" | "model" | "stop_reason" | "stop_sequence" => Field::Frame,
            "usage" => Field::Usage,
            _ => Field::Word,
        }
    }
}

impl<'de> Taker<'de> for Speech {
    type Out = Said;

    fn fields<A: MapAccess<'de>>(self, mut fields: A) -> Result<Said, A::Error> {
        let mut said = Said::default();
        while let Some(field) = fields.next_key_seed(key(Field::of))? {
            match field {
                Field::Frame => drop(fields.next_value::<IgnoredAny>()?),
                Field::Usage => said.usage = fields.next_value_seed(Take(Counts))?,
                Field::Word => said.anything |= fields.next_value_seed(Take(Filled))?,
            }
        }
        Ok(said)
    }
}

/// Takes a delta: an object, or as in OpenAI's Responses a text.
pub(super) struct Delta;

impl<'de> Taker<'de> for Delta {
    type Out = bool;

    fn scalar(self, scalar: Scalar<'_>) -> bool {
        scalar.is_filled()
    }

    fn fields<A: MapAccess<'de>>(self, fields: A) -> Result<bool, A::Error> {
        Ok(Speech.fields(fields)?.anything)
    }
}

/// OpenAI's `choices`, of an event or of a whole answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Chosen {
    pub says: bool,
    pub finished: bool,
}

pub(super) struct Choices;

impl<'de> Taker<'de> for Choices {
    type Out = Chosen;

    fn items<A: SeqAccess<'de>>(self, mut items: A) -> Result<Chosen, A::Error> {
        let mut all = Chosen::default();
        while let Some(one) = items.next_element_seed(Take(Choice))? {
            all.says |= one.says;
            all.finished |= one.finished;
        }
        Ok(all)
    }
}

struct Choice;

#[derive(Clone, Copy)]
enum ChoiceField {
    Speech,
    Text,
    FinishReason,
    Other,
}

impl ChoiceField {
    fn of(key: &str) -> ChoiceField {
        match key {
            "delta" | "message" => ChoiceField::Speech,
            "text" => ChoiceField::Text,
            "finish_reason" => ChoiceField::FinishReason,
            _ => ChoiceField::Other,
        }
    }
}

impl<'de> Taker<'de> for Choice {
    type Out = Chosen;

    fn fields<A: MapAccess<'de>>(self, mut fields: A) -> Result<Chosen, A::Error> {
        let mut chosen = Chosen::default();
        while let Some(field) = fields.next_key_seed(key(ChoiceField::of))? {
            match field {
                ChoiceField::Speech => chosen.says |= fields.next_value_seed(Take(Speech))?.anything,
                ChoiceField::Text => chosen.says |= fields.next_value_seed(Take(Filled))?,
                ChoiceField::FinishReason => chosen.finished |= fields.next_value_seed(Take(Filled))?,
                ChoiceField::Other => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        Ok(chosen)
    }
}

/// Whether a value is anything but null, false or empty.
pub(super) struct Filled;

impl<'de> Taker<'de> for Filled {
    type Out = bool;

    fn scalar(self, scalar: Scalar<'_>) -> bool {
        scalar.is_filled()
    }

    fn items<A: SeqAccess<'de>>(self, mut items: A) -> Result<bool, A::Error> {
        let mut any = false;
        while items.next_element::<IgnoredAny>()?.is_some() {
            any = true;
        }
        Ok(any)
    }

    fn fields<A: MapAccess<'de>>(self, mut fields: A) -> Result<bool, A::Error> {
        let mut any = false;
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            any = true;
        }
        Ok(any)
    }
}
