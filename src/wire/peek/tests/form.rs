//! Forms with a model in them, and without.

use super::*;

const CONTENT_TYPE: &str = "multipart/form-data; boundary=----form7";

fn form(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut form = vec![];
    for (disposition, value) in parts {
        let head = format!("------form7\r\nContent-Disposition: form-data; {disposition}\r\n\r\n");
        form.extend([head.as_bytes(), value, b"\r\n"].concat());
    }
    form.extend_from_slice(b"------form7--\r\n");
    form
}

fn read(parts: &[(&str, &[u8])]) -> Result<Peeked, PeekError> {
    peek_form(&form(parts), CONTENT_TYPE, Endpoint::OpenAiTranscriptions)
}

#[track_caller]
fn check_error(parts: &[(&str, &[u8])], expected: PeekError) {
    assert_eq!(read(parts), Err(expected));
}

#[test]
fn bod_09_the_model_is_found_wherever_it_stands() {
    let file = (r#"name="file"; filename="model.wav""#, &[b'\r'; 1 << 20][..]);
    let model = (r#"name="model""#, &b"quill-asr"[..]);
    for parts in [[file, model], [model, file]] {
        let found = read(&parts).unwrap();
        assert_eq!(found.ask.model, "quill-asr");
        assert_eq!(&form(&parts)[found.model_span.clone()], b"quill-asr");
        assert_eq!(spell(found.ask.endpoint, "other"), b"other");
    }
    check_error(&[file], PeekError::NoModel { list: "/v1/models" });
}

#[test]
fn no_part_is_taken_whose_name_readers_differ_about() {
    let model = (r#"name="model""#, &b"a"[..]);
    for odd in [
        r#"name="x"; name="model""#,
        r#"name="x"; NAME=model"#,
        r#"name*=utf-8''model"#,
        r#"name*0="mo"; name*1="del""#,
        "name=\"x\"\r\nContent-Disposition: form-data; name=\"model\"",
        "name=\"x\"\r\n filename=\"y\"",
        "name=\"x\"\r\nA: b\nContent-Disposition: form-data; name=\"model\"",
    ] {
        check_error(&[model, (odd, b"b")], PeekError::OddPart);
        check_error(&[(odd, b"b"), model], PeekError::OddPart);
    }
}

#[test]
fn a_name_in_a_form_is_judged_like_any_other() {
    let list = "/v1/models";
    let model = |value: &'static [u8]| (r#"name="model""#, value);
    check_error(&[model(b"a"), model(b"a")], PeekError::ModelTwice);
    check_error(&[model(b" ")], PeekError::EmptyModel { list });
    check_error(&[model(b"a\nb")], PeekError::ModelUnprintable { list });
    check_error(&[model(&[b'x'; 257])], PeekError::ModelTooLong { list });
    check_error(&[model(b"\xff")], PeekError::ModelNotText { list });
    check_error(&[(r#"name="model"; filename="a""#, b"a")], PeekError::NoModel { list });
}

#[test]
fn str_14_a_form_may_ask_for_a_stream() {
    let stream = |value: &'static [u8]| read(&[(r#"name="model""#, b"a"), ("name=stream", value)]).unwrap().ask.stream;
    assert_eq!([b"true" as &[u8], b"True", b"1", b"false", b""].map(stream), [true, true, true, false, false]);
    assert!(!read(&[(r#"name="model""#, b"a")]).unwrap().ask.stream);
}

#[test]
fn what_is_no_form_is_refused() {
    let endpoint = Endpoint::OpenAiTranslations;
    assert_eq!(peek_form(b"{}", "application/json", endpoint), Err(PeekError::NotForm));
    assert_eq!(peek_form(b"{}", "multipart/form-data", endpoint), Err(PeekError::NotForm));
    assert_eq!(peek_form(b"", CONTENT_TYPE, endpoint), Err(PeekError::NoModel { list: "/v1/models" }));
}

#[test]
fn a_form_of_too_many_parts_is_not_read_on() {
    let parts = vec![("name=x", &b""[..]); ENTRY_LIMIT + 1];
    check_error(&parts, PeekError::TooMany);
}
