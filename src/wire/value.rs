//! Any JSON value, taken leniently and in one pass.
//!
//! Serde's visitors refuse a value of the wrong type; an ingress must not, since judging a body is the
//! engine's office. A `Taker` says what it makes of each shape of value and passes over the others.
//! Strings are lent, not copied; no tree is built; depth is bounded by serde_json's own limit.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A JSON value that holds no other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scalar<'a> {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(&'a str),
}

impl<'a> Scalar<'a> {
    pub fn text(self) -> Option<&'a str> {
        match self {
            Scalar::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A count, saturated; `None` for anything but a number that is zero or more.
    pub fn count(self) -> Option<u64> {
        match self {
            Scalar::Unsigned(n) => Some(n),
            Scalar::Float(f) if f >= 0.0 => Some(f as u64),
            _ => None,
        }
    }

    pub fn count_u32(self) -> Option<u32> {
        self.count().map(|n| u32::try_from(n).unwrap_or(u32::MAX))
    }

    /// Whether it says something: not null, false or an empty text.
    pub fn is_filled(self) -> bool {
        !matches!(self, Scalar::Null | Scalar::Bool(false) | Scalar::Text(""))
    }
}

/// What to make of one JSON value of whatever shape. The defaults pass over it.
pub(super) trait Taker<'de>: Sized {
    type Out: Default;

    fn scalar(self, _: Scalar<'_>) -> Self::Out {
        Self::Out::default()
    }

    fn items<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Out, A::Error> {
        while items.next_element_seed(Take(Skip))?.is_some() {}
        Ok(Self::Out::default())
    }

    fn fields<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Out, A::Error> {
        while fields.next_key_seed(key(|_| ()))?.is_some() {
            fields.next_value_seed(Take(Skip))?;
        }
        Ok(Self::Out::default())
    }
}

/// Walks over a value. Unlike serde's `IgnoredAny` it keeps to the depth limit.
pub(super) struct Skip;

impl Taker<'_> for Skip {
    type Out = ();
}

/// A scalar, run through a function; containers give the default.
pub(super) fn scalar<R: Default, F: FnOnce(Scalar<'_>) -> R>(f: F) -> Take<One<F>> {
    Take(One(f))
}

/// An object's key, escapes undone, run through a function.
pub(super) fn key<R, F: FnOnce(&str) -> R>(f: F) -> Name<F> {
    Name(f)
}

pub(super) struct One<F>(F);

impl<R: Default, F: FnOnce(Scalar<'_>) -> R> Taker<'_> for One<F> {
    type Out = R;

    fn scalar(self, scalar: Scalar<'_>) -> R {
        (self.0)(scalar)
    }
}

/// Makes a `Taker` the seed serde asks for.
pub(super) struct Take<T>(pub T);

impl<'de, T: Taker<'de>> DeserializeSeed<'de> for Take<T> {
    type Value = T::Out;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<T::Out, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de, T: Taker<'de>> Visitor<'de> for Take<T> {
    type Value = T::Out;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<T::Out, E> {
        Ok(self.0.scalar(Scalar::Null))
    }

    fn visit_bool<E: Error>(self, b: bool) -> Result<T::Out, E> {
        Ok(self.0.scalar(Scalar::Bool(b)))
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<T::Out, E> {
        Ok(self.0.scalar(Scalar::Unsigned(n)))
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<T::Out, E> {
        Ok(self.0.scalar(Scalar::Signed(n)))
    }

    fn visit_f64<E: Error>(self, f: f64) -> Result<T::Out, E> {
        Ok(self.0.scalar(Scalar::Float(f)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T::Out, E> {
        Ok(self.0.scalar(Scalar::Text(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<T::Out, A::Error> {
        self.0.items(items)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T::Out, A::Error> {
        self.0.fields(fields)
    }
}

pub(super) struct Name<F>(F);

impl<'de, R, F: FnOnce(&str) -> R> DeserializeSeed<'de> for Name<F> {
    type Value = R;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<R, D::Error> {
        from.deserialize_str(self)
    }
}

impl<R, F: FnOnce(&str) -> R> Visitor<'_> for Name<F> {
    type Value = R;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object's key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<R, E> {
        Ok((self.0)(key))
    }
}
