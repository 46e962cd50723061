//! An image as Ollama sends it, base64 and nothing else, as the URL that OpenAI's messages want.
//!
//! The URL names the media type, which only the image's first bytes tell. Base64 of known bytes is a known
//! text, so nothing is decoded. An address is not fetched, and not handed on for the engine to fetch.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::json::{Json, Object};
use super::raw;
use super::refusal::{Untranslatable, refuse};

/// How base64 begins, by media type; `?` is any character.
const HEADS: [(&str, &str); 8] = [
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
    ("UklGR??????XRUJQ", "image/webp"),
    ("Qk0", "image/bmp"),
    ("Qk1", "image/bmp"),
    ("Qk2", "image/bmp"),
    ("Qk3", "image/bmp"),
];

/// One image as a part of a message. `place` says where it stands.
pub(super) fn part<'a>(image: &'a RawValue, place: &str) -> Result<Json<'a>, Untranslatable> {
    let Some(source) = raw::text(image) else {
        return refuse(place, "it is not base64 text");
    };
    let Some(url) = url(source) else {
        return refuse(place, "it is not base64 of a PNG, JPEG, GIF, WebP or BMP image");
    };
    let url = Object::of([("url", url)]);
    Ok(Object::of([("type", Json::text("image_url")), ("image_url", url.into())]).into())
}

fn url(source: Cow<'_, str>) -> Option<Json<'_>> {
    if source.starts_with("data:image/") {
        return Some(Json::Text(source));
    }
    let (_, media) = HEADS.into_iter().find(|(head, _)| begins(&source, head))?;
    Some(Json::DataUrl { media, base64: source })
}

fn begins(text: &str, head: &str) -> bool {
    text.len() >= head.len() && head.bytes().zip(text.bytes()).all(|(wanted, byte)| wanted == b'?' || wanted == byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, expected: Option<&str>) {
        let url = url(source.into()).map(|url| serde_json::to_value(url).unwrap());
        assert_eq!(url.as_ref().and_then(|url| url.as_str()), expected);
    }

    #[test]
    fn the_head_tells_the_media_type() {
        check("iVBORw0KGgoAAAAN", Some("data:image/png;base64,iVBORw0KGgoAAAAN"));
        check("/9j/4AAQSkZJRg==", Some("data:image/jpeg;base64,/9j/4AAQSkZJRg=="));
        check("R0lGODlhAQABAAAA", Some("data:image/gif;base64,R0lGODlhAQABAAAA"));
        check("UklGRiIAAABXRUJQVlA4", Some("data:image/webp;base64,UklGRiIAAABXRUJQVlA4"));
        check("Qk06AAAAAAAA", Some("data:image/bmp;base64,Qk06AAAAAAAA"));
        check("data:image/png;base64,iVBO", Some("data:image/png;base64,iVBO"));
    }

    #[test]
    fn anything_else_is_no_image() {
        for source in ["", "iVBO", "http://intranet/x.png", "UklGRiIAAABXQVZFZm10", "JVBERi0xLjc=", "data:text/html,x"]
        {
            check(source, None);
        }
    }
}
