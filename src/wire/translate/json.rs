//! JSON as it is put together: made of new parts and of parts lent from what was read.
//!
//! Members stand in the order in which they were put, so the same request always makes the same bytes.

use std::borrow::Cow;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

use super::fields::Fields;

#[derive(Debug)]
pub(super) enum Json<'a> {
    Null,
    Bool(bool),
    Count(u64),
    Text(Cow<'a, str>),
    /// As it was written.
    Raw(&'a RawValue),
    Made(Box<RawValue>),
    /// `data:MEDIA;base64,...`, joined only while it is written: images are large.
    DataUrl {
        media: &'static str,
        base64: Cow<'a, str>,
    },
    List(Vec<Json<'a>>),
    Object(Object<'a>),
}

impl<'a> Json<'a> {
    pub fn text(text: impl Into<Cow<'a, str>>) -> Json<'a> {
        Json::Text(text.into())
    }
}

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Json::Null => to.serialize_unit(),
            Json::Bool(flag) => to.serialize_bool(*flag),
            Json::Count(n) => to.serialize_u64(*n),
            Json::Text(text) => to.serialize_str(text),
            Json::Raw(raw) => raw.serialize(to),
            Json::Made(raw) => raw.serialize(to),
            Json::DataUrl { media, base64 } => to.collect_str(&format_args!("data:{media};base64,{base64}")),
            Json::List(items) => to.collect_seq(items),
            Json::Object(object) => object.serialize(to),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Object<'a>(Vec<(Cow<'a, str>, Json<'a>)>);

impl<'a> Object<'a> {
    pub fn of(members: impl IntoIterator<Item = (&'static str, Json<'a>)>) -> Object<'a> {
        Object(members.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }

    pub fn put(&mut self, name: &'static str, value: Json<'a>) {
        self.0.push((name.into(), value));
    }

    pub fn put_some(&mut self, name: &'static str, value: Option<Json<'a>>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// Adds what is left of an object that was read. The name of a member that is here already comes
    /// back: two values for one name would leave it to chance which counts.
    pub fn put_rest(&mut self, rest: Fields<'a>) -> Result<(), Cow<'a, str>> {
        for (name, value) in rest.into_members() {
            if self.has(&name) {
                return Err(name);
            }
            self.0.push((name, Json::Raw(value)));
        }
        Ok(())
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        // Nothing in it can fail to be written.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut members = to.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            members.serialize_entry(name, value)?;
        }
        members.end()
    }
}

impl<'a> From<Object<'a>> for Json<'a> {
    fn from(object: Object<'a>) -> Json<'a> {
        Json::Object(object)
    }
}
