//! Prompts that are no messages: a text, a list of texts, token ids.
//!
//! A text is cut into pieces of `PIECE_CHARS` characters and each piece is a step; a shorter text is one
//! piece. Token ids are cut where as many tokens of text would be. Nothing else is a prompt.

use serde::de::{MapAccess, SeqAccess};

use super::piece;
use super::size::Size;
use super::steps::{Kind, Step, Steps};
use super::turn::Attachments;
use super::value::{Scalar, Skip, Take, Taker, key, scalar};
use crate::routing::chain::{PIECE_CHARS, hash_text, mix};

/// Token ids in a piece: what `PIECE_CHARS` characters come to.
const PIECE_IDS: u64 = PIECE_CHARS as u64 / 4;

/// Steps of a prompt, or of the input of an embedding.
#[derive(Default)]
pub(super) struct Prompt {
    pub steps: Steps,
}

impl Prompt {
    /// Ends the prompt. Images say what every piece is about, so they are in every piece.
    pub fn close(&mut self, images: Attachments) {
        self.steps.stamp(0, mix(Kind::Prompt as u64, images.hash));
        if let Some(last) = self.steps.last_mut() {
            last.ends_message = true;
            last.size += images.size;
        }
    }

    fn text(&mut self, mut text: &str) {
        while let Some((piece, rest)) = piece::split(text) {
            self.push(hash_text(piece), Size::of_chars(PIECE_CHARS as u64));
            text = rest;
        }
        if !text.is_empty() {
            self.push(hash_text(text), Size::of_chars(text.chars().count() as u64));
        }
    }

    fn push(&mut self, hash: u64, size: Size) {
        self.steps.push(Step { hash, size, ends_message: false });
    }
}

impl<'de> Taker<'de> for &mut Prompt {
    type Out = ();

    fn scalar(self, scalar: Scalar<'_>) {
        if let Scalar::Text(text) = scalar {
            self.text(text);
        }
    }

    fn items<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut ids = Ids::default();
        while let Some(id) = items.next_element_seed(Take(Item(self)))? {
            match id {
                Some(id) => ids.push(id),
                None => self.steps.admit()?,
            }
            if ids.count == PIECE_IDS {
                let full = std::mem::take(&mut ids);
                self.push(full.hash(), full.size());
            }
        }
        if ids.count > 0 {
            self.push(ids.hash(), ids.size());
        }
        Ok(())
    }
}

/// One entry of a list: a text or another list goes to the prompt, an id is handed back.
struct Item<'a>(&'a mut Prompt);

impl<'de> Taker<'de> for Item<'_> {
    type Out = Option<u64>;

    fn scalar(self, scalar: Scalar<'_>) -> Option<u64> {
        self.0.scalar(scalar);
        scalar.count()
    }

    fn items<A: SeqAccess<'de>>(self, items: A) -> Result<Option<u64>, A::Error> {
        self.0.items(items)?;
        Ok(None)
    }

    /// A document to be ranked may be an object with a `text` in it.
    fn fields<A: MapAccess<'de>>(self, mut fields: A) -> Result<Option<u64>, A::Error> {
        while let Some(is_text) = fields.next_key_seed(key(|name| name == "text"))? {
            if is_text {
                fields.next_value_seed(scalar(|s| self.0.scalar(s)))?;
            } else {
                fields.next_value_seed(Take(Skip))?;
            }
        }
        Ok(None)
    }
}

/// A run of token ids.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ids {
    folded: u64,
    count: u64,
}

impl Ids {
    pub fn push(&mut self, id: u64) {
        self.folded = mix(self.folded, id);
        self.count += 1;
    }

    /// The run as one step, for Ollama's `context`; `None` if there are no ids.
    pub fn step(self) -> Option<Step> {
        (self.count > 0).then(|| Step { hash: self.hash(), size: self.size(), ends_message: true })
    }

    fn hash(self) -> u64 {
        mix(Kind::Ids as u64, self.folded)
    }

    fn size(self) -> Size {
        Size { ids: self.count, ..Size::default() }
    }
}

impl<'de> Taker<'de> for &mut Ids {
    type Out = ();

    fn items<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(id) = items.next_element_seed(scalar(|id| id.count()))? {
            if let Some(id) = id {
                self.push(id);
            }
        }
        Ok(())
    }
}
