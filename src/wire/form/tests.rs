//! Forms as clients write them, and as they should not.

use proptest::prelude::*;

use super::*;

const BOUNDARY: &str = "xX-7";

/// Name, whether it is a file, and value of each part.
fn parts(form: &[u8]) -> Vec<(String, bool, &[u8])> {
    Parts::new(form, BOUNDARY).map(|part| (part.name, part.is_file, &form[part.value])).collect()
}

#[track_caller]
fn check(form: &str, expected: &[(&str, bool, &str)]) {
    let expected: Vec<_> = expected.iter().map(|(n, f, v)| (n.to_string(), *f, v.as_bytes())).collect();
    assert_eq!(parts(form.as_bytes()), expected);
}

#[track_caller]
fn check_boundary(content_type: &str, expected: Option<&str>) {
    assert_eq!(boundary(content_type).as_deref(), expected);
}

#[test]
fn the_boundary_is_in_the_content_type() {
    check_boundary("multipart/form-data; boundary=xX-7", Some("xX-7"));
    check_boundary("Multipart/Form-Data;charset=utf-8;BOUNDARY=\"a b;c\" ; x=1", Some("a b;c"));
    check_boundary("multipart/form-data; flag; boundary=a", Some("a"));
    check_boundary("multipart/form-data", None);
    check_boundary("multipart/form-data; boundary=", None);
    check_boundary(&format!("multipart/form-data; boundary={}", "x".repeat(71)), None);
    check_boundary("application/json; boundary=a", None);
}

#[test]
fn parts_are_found_in_order() {
    check(
        "--xX-7\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a;\\\"b.wav\"\r\nContent-Type: audio/wav\r\n\r\n\
         RIFF\r\n--xX-\r\n--xX-78\r\n\r\n--xX-7\r\ncontent-disposition:form-data;name=model\r\n\r\nm\r\n--xX-7--\r\nafter",
        &[("file", true, "RIFF\r\n--xX-\r\n--xX-78\r\n"), ("model", false, "m")],
    );
}

#[test]
fn what_stands_around_the_parts_is_passed_over() {
    check("before\r\n--xX-7 \t\r\nA: b\r\n\r\nv\r\n--xX-7--", &[("", false, "v")]);
    check("--xX-7\r\n\r\nv\r\n--xX-7--", &[("", false, "v")]);
    check("--xX-7\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n\r\n--xX-7--", &[("a", false, "")]);
}

#[test]
fn a_cut_form_has_the_parts_that_ended() {
    check("--xX-7\r\nA: b\r\n\r\nv\r\n--xX-7\r\nA: b\r\n\r\nw", &[("", false, "v")]);
    for form in ["", "--xX-7", "--xX-7--\r\n", "--xX-7\r\n", "--xX-7\r\nA: b\r\n\r\nv", "--other\r\n\r\nv\r\n--other--"]
    {
        check(form, &[]);
    }
}

#[test]
fn a_head_over_the_limit_ends_the_reading() {
    let long = format!("--xX-7\r\nA: {}\r\n\r\nv\r\n--xX-7--", "b".repeat(HEAD_LIMIT));
    check(&long, &[]);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(scraps in prop::collection::vec(
        prop::sample::select(vec!["--xX-7", "\r\n", "--", "\r\n\r\n", "a", ":", ";name=\"", "\"", "\\", "é", "=", " "]),
        0..60,
    )) {
        let form = scraps.concat();
        for (_, _, value) in parts(form.as_bytes()) {
            prop_assert!(value.len() < form.len());
        }
        let _ = (boundary(&form), part_of(&form));
    }
}
