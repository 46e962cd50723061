//! Codings, stacked and broken, and bombs.

use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use http::HeaderValue;

use super::*;

const LIMIT_BYTES: usize = 1 << 20;

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn zlib(plain: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn raw_deflate(plain: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn zstd(plain: &[u8]) -> Vec<u8> {
    zstd::encode_all(plain, 3).unwrap()
}

fn prompt() -> Vec<u8> {
    (0..20_000).flat_map(|i| format!("word {i} ").into_bytes()).collect()
}

fn headers(values: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for value in values {
        headers.append(CONTENT_ENCODING, HeaderValue::from_str(value).unwrap());
    }
    headers
}

#[track_caller]
fn check_names(values: &[&str], expected: &[Coding]) {
    assert_eq!(of_headers(&headers(values)).unwrap(), expected);
}

#[test]
fn header_values_name_codings() {
    use Coding::*;
    check_names(&[], &[]);
    check_names(&["identity"], &[]);
    check_names(&["gzip"], &[Gzip]);
    check_names(&["X-GZIP"], &[Gzip]);
    check_names(&["deflate, identity ,zstd"], &[Deflate, Zstd]);
    check_names(&["gzip", "zstd"], &[Gzip, Zstd]);
    check_names(&[""], &[]);
}

#[track_caller]
fn check_unknown(values: &[&str], named: &str) {
    assert_eq!(of_headers(&headers(values)), Err(CodingError::Unknown(named.to_string())));
}

#[test]
fn unknown_codings_are_named() {
    check_unknown(&["zig"], "zig");
    check_unknown(&["gzip, br"], "br");
    check_unknown(&["gzip;q=1"], "gzip;q=1");
    check_unknown(&["gzip,gzip,gzip,gzip"], "4 layers");
    check_unknown(&["x".repeat(500).as_str()], &"x".repeat(32));
}

#[track_caller]
fn check_decodes(coded: Vec<u8>, codings: &[Coding]) {
    assert!(decode(coded.into(), codings, LIMIT_BYTES).unwrap() == prompt());
}

#[test]
fn codings_are_undone_from_the_last_to_the_first() {
    use Coding::*;
    check_decodes(prompt(), &[]);
    check_decodes(gzip(&prompt()), &[Gzip]);
    check_decodes(zlib(&prompt()), &[Deflate]);
    check_decodes(raw_deflate(&prompt()), &[Deflate]);
    check_decodes(zstd(&prompt()), &[Zstd]);
    check_decodes(zstd(&gzip(&prompt())), &[Gzip, Zstd]);
    check_decodes(gzip(&zstd(&zlib(&prompt()))), &[Deflate, Zstd, Gzip]);
}

#[test]
fn concatenated_members_are_one_body() {
    let plain = prompt();
    let (head, tail) = plain.split_at(1000);
    check_decodes([gzip(head), gzip(tail)].concat(), &[Coding::Gzip]);
    check_decodes([zstd(head), zstd(tail)].concat(), &[Coding::Zstd]);
}

#[track_caller]
fn check_bad(coded: Vec<u8>, coding: Coding) {
    let got = decode(coded.into(), &[coding], LIMIT_BYTES);
    assert!(matches!(got, Err(CodingError::Bad(_))), "{got:?}");
}

#[test]
fn broken_bodies_are_errors() {
    for coding in [Coding::Gzip, Coding::Deflate, Coding::Zstd] {
        check_bad(b"{\"model\":\"moss\"}".to_vec(), coding);
    }
    let half = |coded: Vec<u8>| coded[..coded.len() / 2].to_vec();
    check_bad(half(gzip(&prompt())), Coding::Gzip);
    check_bad(half(zlib(&prompt())), Coding::Deflate);
    check_bad(half(zstd(&prompt())), Coding::Zstd);
}

#[test]
fn zstd_frames_may_not_ask_for_a_huge_window() {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    encoder.window_log(27).unwrap();
    encoder.write_all(&prompt()).unwrap();
    check_bad(encoder.finish().unwrap(), Coding::Zstd);
}

#[track_caller]
fn check_bomb(coded: Vec<u8>, codings: &[Coding]) {
    let got = decode(coded.into(), codings, LIMIT_BYTES);
    assert_eq!(got, Err(CodingError::TooLarge { limit_bytes: LIMIT_BYTES }));
}

#[test]
fn bombs_stop_at_the_cap() {
    let zeros = vec![0; 50 * LIMIT_BYTES];
    check_bomb(gzip(&zeros), &[Coding::Gzip]);
    check_bomb(zlib(&zeros), &[Coding::Deflate]);
    check_bomb(zstd(&zeros), &[Coding::Zstd]);
    check_bomb(zstd(&gzip(&zeros)), &[Coding::Gzip, Coding::Zstd]);
}

#[test]
fn a_layer_that_shrinks_again_is_capped_too() {
    // Empty gzip members decode to nothing at all, a million of them too.
    let members = gzip(b"").repeat(LIMIT_BYTES / 10);
    check_bomb(gzip(&members), &[Coding::Gzip, Coding::Gzip]);
}

#[test]
fn the_cap_itself_is_allowed() {
    let coded = gzip(&vec![0; LIMIT_BYTES]);
    assert_eq!(decode(coded.into(), &[Coding::Gzip], LIMIT_BYTES).unwrap().len(), LIMIT_BYTES);
}
