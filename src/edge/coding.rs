//! Content codings of request bodies: gzip, deflate and zstd, alone or stacked.
//!
//! Engines mostly understand none of them, and a coded body cannot be routed by what it says. What
//! comes out is capped while it comes out, after every layer, so that a bomb costs no more than the
//! cap. Pure: bytes in, bytes out; whether that happens on a worker thread is the caller's matter.

use std::io::{self, Cursor, Read};

use bytes::Bytes;
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use thiserror::Error;

/// What a 415 may offer in its `Accept-Encoding`.
pub const ACCEPTED: &str = "gzip, deflate, zstd";

/// Layers in one body; honest clients use one.
const LAYERS_MAX: usize = 3;

/// Decoding state a zstd frame may ask for, as a power of two: 8 MiB, which is also the most that
/// RFC 9659 lets a sender of `Content-Encoding: zstd` use.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// Bytes decoded at a time.
const PIECE_BYTES: usize = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    Gzip,
    Deflate,
    Zstd,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum CodingError {
    /// 415: this coding, or so many of them, is not understood.
    #[error("content coding {0:?} is not supported; send {ACCEPTED} or none")]
    Unknown(String),
    /// 400: the bytes are not what the header says.
    #[error("the body cannot be decoded: {0}")]
    Bad(String),
    /// 413: the decoded body would pass the limit.
    #[error("the decoded body is larger than {limit_bytes} bytes")]
    TooLarge { limit_bytes: usize },
}

/// The codings of a body, in the order they were applied; empty for a plain one.
pub fn of_headers(headers: &HeaderMap) -> Result<Vec<Coding>, CodingError> {
    let mut codings = Vec::new();
    for value in headers.get_all(CONTENT_ENCODING) {
        for name in String::from_utf8_lossy(value.as_bytes()).split(',') {
            codings.extend(of_name(name.trim())?);
        }
    }
    if codings.len() > LAYERS_MAX {
        return Err(CodingError::Unknown(format!("{} layers", codings.len())));
    }
    Ok(codings)
}

/// The whole body, decoded.
pub fn decode(body: Bytes, codings: &[Coding], limit_bytes: usize) -> Result<Vec<u8>, CodingError> {
    let mut decoder = Decoder::new(body, codings, limit_bytes)?;
    let mut decoded = Vec::new();
    while let Some(piece) = decoder.next_piece()? {
        decoded.extend_from_slice(piece);
    }
    Ok(decoded)
}

/// A body that is decoded piece by piece, for whoever books the memory as it grows.
pub struct Decoder {
    layers: Box<dyn Read + Send>,
    piece: Vec<u8>,
    limit_bytes: usize,
}

impl Decoder {
    pub fn new(body: Bytes, codings: &[Coding], limit_bytes: usize) -> Result<Decoder, CodingError> {
        let mut layers: Box<dyn Read + Send> = Box::new(Cursor::new(body.clone()));
        let mut zlib_framed = has_zlib_header(&body);
        for coding in codings.iter().rev() {
            let layer = peel(layers, *coding, zlib_framed).map_err(|e| judge(&e, limit_bytes))?;
            layers = Box::new(Capped { inner: layer, left_bytes: limit_bytes });
            // Only the outermost layer can be looked at beforehand.
            zlib_framed = true;
        }
        Ok(Decoder { layers, piece: vec![0; PIECE_BYTES], limit_bytes })
    }

    /// The next piece, none after the last.
    pub fn next_piece(&mut self) -> Result<Option<&[u8]>, CodingError> {
        match self.layers.read(&mut self.piece) {
            Ok(0) => Ok(None),
            Ok(n) => Ok(Some(&self.piece[..n])),
            Err(e) => Err(judge(&e, self.limit_bytes)),
        }
    }
}

fn of_name(name: &str) -> Result<Option<Coding>, CodingError> {
    match name.to_ascii_lowercase().as_str() {
        "" | "identity" => Ok(None),
        "gzip" | "x-gzip" => Ok(Some(Coding::Gzip)),
        "deflate" => Ok(Some(Coding::Deflate)),
        "zstd" => Ok(Some(Coding::Zstd)),
        unknown => Err(CodingError::Unknown(unknown.chars().take(32).collect())),
    }
}

fn peel(inner: Box<dyn Read + Send>, coding: Coding, zlib_framed: bool) -> io::Result<Box<dyn Read + Send>> {
    Ok(match coding {
        Coding::Gzip => Box::new(MultiGzDecoder::new(inner)),
        // "deflate" means zlib's framing, but some clients send the bare stream.
        Coding::Deflate if zlib_framed => Box::new(ZlibDecoder::new(inner)),
        Coding::Deflate => Box::new(DeflateDecoder::new(inner)),
        Coding::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::new(inner)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            Box::new(decoder)
        }
    })
}

/// Whether bytes begin as RFC 1950 has it: method 8 and a header divisible by 31.
fn has_zlib_header(body: &[u8]) -> bool {
    match body {
        [cmf, flg, ..] => cmf & 0x0f == 8 && u16::from_be_bytes([*cmf, *flg]).is_multiple_of(31),
        _ => true,
    }
}

/// Passes bytes on until the cap; the byte after it is an error.
struct Capped {
    inner: Box<dyn Read + Send>,
    left_bytes: usize,
}

/// Marks the error of a `Capped` on its way through the layers above it.
#[derive(Debug, Error)]
#[error("over the cap")]
struct OverCap;

impl Read for Capped {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(into)?;
        self.left_bytes = self.left_bytes.checked_sub(n).ok_or_else(|| io::Error::other(OverCap))?;
        Ok(n)
    }
}

fn judge(error: &io::Error, limit_bytes: usize) -> CodingError {
    if error.get_ref().is_some_and(|e| e.is::<OverCap>()) {
        CodingError::TooLarge { limit_bytes }
    } else {
        CodingError::Bad(error.to_string())
    }
}

#[cfg(test)]
mod tests;
