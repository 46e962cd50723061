//! `wire::peek::peek_form`: the model in a form. An input's first line is the content type.

use warmgate::routing::ask::{Ask, Endpoint};
use warmgate::routing::chain::mix;
use warmgate::wire::peek::{PeekError, peek_form};

use crate::target::{Target, law};

pub static TARGET: Target = Target {
    name: "form",
    words: &[
        "multipart/form-data; boundary=",
        "\r\n--x\r\n",
        "\r\n--x--\r\n",
        "--x\r\n",
        "\r\n\r\n",
        "boundary=\"x\"",
        "Content-Disposition: form-data; name=\"model\"\r\n\r\n",
        "; filename=\"a.wav\"",
        "name=\"stream\"",
        "true",
        "; name=\"\\\"",
        "filename*=UTF-8''a",
        "\r\n--",
        " \t",
    ],
    check,
};

fn check(input: &[u8]) -> Result<u64, String> {
    let at = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let content_type = String::from_utf8_lossy(&input[..at]);
    let body = input.get(at + 1..).unwrap_or_default();
    let endpoint = Endpoint::OpenAiTranscriptions;
    let Peeked { ask, span } = match peek_form(body, &content_type, endpoint) {
        Ok(peeked) => Peeked { ask: peeked.ask, span: peeked.model_span },
        Err(error) => return Ok(kind(&error)),
    };
    let named = body.get(span.clone()).ok_or_else(|| format!("{span:?} is not in the form"))?;
    law(named == ask.model.as_bytes(), || format!("{:?} stands there, not {:?}", named, ask.model))?;
    law(ask.model.len() <= 256 && !ask.model.trim().is_empty(), || format!("a name {:?}", ask.model))?;
    // Names that make a form's boundary are no names.
    let other = Ask { model: "another one".into(), ..ask.clone() };
    let exchanged = [&body[..span.start], other.model.as_bytes(), &body[span.end..]].concat();
    let again = peek_form(&exchanged, &content_type, endpoint).map(|peeked| peeked.ask);
    law(again == Ok(other), || format!("another name changes more than the name: {again:?}"))?;
    Ok(mix(u64::from(ask.stream), span.start as u64 / 64))
}

struct Peeked {
    ask: Ask,
    span: std::ops::Range<usize>,
}

fn kind(error: &PeekError) -> u64 {
    match error {
        PeekError::NotForm => 1,
        PeekError::NoModel { .. } => 2,
        PeekError::EmptyModel { .. } => 3,
        PeekError::ModelNotText { .. } => 4,
        PeekError::ModelTwice => 5,
        PeekError::ModelTooLong { .. } => 6,
        PeekError::ModelUnprintable { .. } => 7,
        PeekError::TooMany => 8,
        _ => 9,
    }
}
