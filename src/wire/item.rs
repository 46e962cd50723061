//! The `input` of OpenAI's Responses: a text, or the items of a talk.
//!
//! An item that is a message is one as in a chat. Any other is told by its `type`: what it says is its
//! content or output, and everything else about it tells it from others. Reasoning is not said again to
//! the model as text and, like `thinking` in other dialects, does not enter.

use serde::de::{MapAccess, SeqAccess};

use super::digest::{Digest, Digester};
use super::message::{Content, Messages, text_hash};
use super::turn::{Extras, Role};
use super::value::{Scalar, Take, Taker, key, scalar};
use crate::routing::chain::{hash_text, mix};

pub(super) struct Input<'a>(pub &'a mut Messages);

impl<'de> Taker<'de> for Input<'_> {
    type Out = ();

    fn scalar(self, scalar: Scalar<'_>) {
        if let Scalar::Text(text) = scalar {
            let (mut turn, user) = (self.0.turn(), Role::of("user"));
            turn.text(text);
            turn.close(user, Extras::default());
            self.0.ended(user);
        }
    }

    fn items<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Take(Item(self.0)))?.is_some() {
            self.0.steps.admit()?;
        }
        Ok(())
    }
}

struct Item<'a>(&'a mut Messages);

#[derive(Clone, Copy, Default)]
enum Kind {
    #[default]
    Message,
    Reasoning,
    Other(Role),
}

impl Kind {
    fn of(name: &str) -> Kind {
        match name {
            "message" => Kind::Message,
            "reasoning" => Kind::Reasoning,
            // What the name of a role is to a message, the type is to anything else.
            other => Kind::Other(Role::of(other)),
        }
    }
}

#[derive(Clone, Copy)]
enum Field {
    Type,
    Role,
    Content,
    CallId,
    Name,
    Other(u64),
}

impl Field {
    fn of(key: &str) -> Field {
        match key {
            "type" => Field::Type,
            "role" => Field::Role,
            "content" | "output" => Field::Content,
            "call_id" => Field::CallId,
            "name" => Field::Name,
            other => Field::Other(hash_text(other)),
        }
    }
}

impl<'de> Taker<'de> for Item<'_> {
    type Out = ();

    fn fields<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut turn = self.0.turn();
        let (mut kind, mut role) = (Kind::default(), Role::default());
        let (mut extras, mut rest) = (Extras::default(), Digest::default());
        while let Some(field) = fields.next_key_seed(key(Field::of))? {
            match field {
                Field::Type => kind = fields.next_value_seed(scalar(|s| s.text().map(Kind::of)))?.unwrap_or_default(),
                Field::Role => role = fields.next_value_seed(scalar(|s| s.text().map(Role::of)))?.unwrap_or_default(),
                Field::Content => fields.next_value_seed(Take(Content(&mut turn)))?,
                Field::CallId => extras.tool_call_id = fields.next_value_seed(scalar(text_hash))?,
                Field::Name => extras.name = fields.next_value_seed(scalar(text_hash))?,
                Field::Other(name) => {
                    let value = fields.next_value_seed(Take(Digester::default()))?;
                    rest.hash = rest.hash.wrapping_add(mix(name, value.hash));
                    rest.chars += value.chars;
                }
            }
        }
        let role = match kind {
            Kind::Reasoning => {
                turn.abandon();
                return Ok(());
            }
            Kind::Message => role,
            Kind::Other(role) => {
                extras.tool_calls = rest;
                role
            }
        };
        turn.close(role, extras);
        self.0.ended(role);
        Ok(())
    }
}
