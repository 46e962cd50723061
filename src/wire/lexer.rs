//! JSON in memory, read many bytes at a time.
//!
//! Takes only what serde_json takes and tells the same of it. Whatever is odd it declines, be it wrong or only rare,
//! and serde_json reads the body from its beginning: there all judging is, and the words for what is wrong. Texts
//! without escapes are lent from the body. Never trusts a length, an escape or a depth.

use std::fmt;
use std::iter::once;

use serde::de::value::{BorrowedStrDeserializer, MapDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use simdutf8::basic::from_utf8;

use super::value::{Skip, Take};

/// Lists and objects inside each other: as many as serde_json takes.
const DEPTH_MAX: u8 = 127;

pub(super) struct Lexer<'de> {
    text: &'de str,
    at: usize,
    depth_left: u8,
    /// The text that was read last, if it had escapes.
    unescaped: Vec<u8>,
}

/// Somebody else has to read this.
#[derive(Debug)]
pub(super) struct Declined;

impl<'de> Lexer<'de> {
    pub fn new(text: &'de str) -> Lexer<'de> {
        Lexer { text, at: 0, depth_left: DEPTH_MAX, unescaped: Vec::new() }
    }

    /// Nothing but white space is left.
    pub fn end(&mut self) -> Result<(), Declined> {
        self.skip_blanks();
        if self.at == self.text.len() { Ok(()) } else { Err(Declined) }
    }

    fn rest(&self) -> &'de [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn skip_blanks(&mut self) {
        self.at += self.rest().iter().take_while(|byte| matches!(byte, b' ' | b'\n' | b'\t' | b'\r')).count();
    }

    /// The byte with which the next thing begins; it is not taken.
    fn next(&mut self) -> Result<u8, Declined> {
        self.skip_blanks();
        self.rest().first().copied().ok_or(Declined)
    }

    fn take(&mut self, expected: u8) -> Result<(), Declined> {
        if self.next()? != expected {
            return Err(Declined);
        }
        self.at += 1;
        Ok(())
    }

    fn word(&mut self, word: &str) -> Result<(), Declined> {
        if !self.rest().starts_with(word.as_bytes()) {
            return Err(Declined);
        }
        self.at += word.len();
        Ok(())
    }

    /// A list or an object; its first byte is not taken yet.
    fn inside<R>(
        &mut self,
        end: u8,
        read: impl FnOnce(Entries<'_, 'de>) -> Result<R, Declined>,
    ) -> Result<R, Declined> {
        self.depth_left = self.depth_left.checked_sub(1).ok_or(Declined)?;
        self.at += 1;
        let read = read(Entries { lexer: self, end, is_first: true })?;
        self.take(end)?;
        self.depth_left += 1;
        Ok(read)
    }

    /// A text; its quote is not taken yet.
    fn string<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Declined> {
        let start = self.at + 1;
        self.at = start + plain_bytes(self.text.as_bytes().get(start..).unwrap_or_default());
        if self.rest().first() == Some(&b'"') {
            let lent = self.text.get(start..self.at).ok_or(Declined)?;
            self.at += 1;
            return visitor.visit_borrowed_str(lent);
        }
        self.unescape(start)?;
        visitor.visit_str(from_utf8(&self.unescaped).map_err(|_| Declined)?)
    }

    /// Undoes the escapes of the text that began at `start`, of which the first is next, and takes its quote.
    fn unescape(&mut self, start: usize) -> Result<(), Declined> {
        let bytes = self.text.as_bytes();
        let (out, mut at) = (&mut self.unescaped, self.at);
        out.clear();
        out.extend_from_slice(bytes.get(start..at).unwrap_or_default());
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            at += match rest {
                [b'"', ..] => break,
                [b'\\', b'u', ..] => {
                    let (character, length) = unicode(rest).ok_or(Declined)?;
                    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                    length
                }
                [b'\\', escape, ..] => {
                    match ESCAPES[usize::from(*escape)] {
                        0 => return Err(Declined),
                        byte => out.push(byte),
                    }
                    2
                }
                _ => return Err(Declined),
            };
            at += copy_plain(bytes.get(at..).unwrap_or_default(), out);
        }
        self.at = at + 1;
        Ok(())
    }

    fn number<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Declined> {
        let rest = self.rest();
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let is_whole = !matches!(rest.get(digits), Some(b'.' | b'e' | b'E'));
        match rest.get(..digits) {
            Some(whole @ [b'1'..=b'9', ..]) if is_whole && digits <= SAFE_DIGITS => {
                self.at += digits;
                visitor.visit_u64(whole.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
            }
            _ => self.odd_number(visitor),
        }
    }

    /// What takes more than adding up digits.
    fn odd_number<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Declined> {
        let is_part = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let end = self.at + self.rest().iter().take_while(is_part).count();
        let mut number = serde_json::Deserializer::from_str(self.text.get(self.at..end).ok_or(Declined)?);
        self.at = end;
        let value = number.deserialize_any(visitor).map_err(|_| Declined)?;
        number.end().map_err(|_| Declined)?;
        Ok(value)
    }
}

/// So many digits always fit into 64 bits.
const SAFE_DIGITS: usize = 19;

/// The character of a `\u` escape that stands here, or of two that stand for its halves, and the bytes they take.
fn unicode(bytes: &[u8]) -> Option<(char, usize)> {
    let first = unit(bytes)?;
    if let Some(character) = char::from_u32(first) {
        return Some((character, UNIT_BYTES));
    }
    let second = unit(bytes.get(UNIT_BYTES..)?)?;
    if !(0xd800..0xdc00).contains(&first) || !(0xdc00..0xe000).contains(&second) {
        return None;
    }
    let character = char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00))?;
    Some((character, 2 * UNIT_BYTES))
}

/// Of `\u` and four digits.
const UNIT_BYTES: usize = 6;

fn unit(bytes: &[u8]) -> Option<u32> {
    let [b'\\', b'u', digits @ ..] = bytes.first_chunk::<UNIT_BYTES>()? else { return None };
    let unit = digits.iter().fold(0, |unit, digit| unit << 4 | HEX[usize::from(*digit)]);
    Some(unit).filter(|unit| *unit <= 0xffff)
}

/// What a digit is worth; of what is none, more than four digits hold.
const HEX: [u32; 256] = {
    let (mut worth, mut byte) = ([0x1_0000; 256], 0);
    while byte < worth.len() {
        if let Some(digit) = (byte as u8 as char).to_digit(16) {
            worth[byte] = digit;
        }
        byte += 1;
    }
    worth
};

/// What stands for a byte after a backslash; of what may not stand there, zero.
const ESCAPES: [u8; 256] = {
    let mut bytes = [0; 256];
    let mut n = 0;
    const PAIRS: [(u8, u8); 8] = [
        (b'"', b'"'),
        (b'\\', b'\\'),
        (b'/', b'/'),
        (b'n', b'\n'),
        (b't', b'\t'),
        (b'r', b'\r'),
        (b'b', 0x08),
        (b'f', 0x0c),
    ];
    while n < PAIRS.len() {
        bytes[PAIRS[n].0 as usize] = PAIRS[n].1;
        n += 1;
    }
    bytes
};

/// Copies plain text up to the next quote or escape, and tells how much there was.
fn copy_plain(bytes: &[u8], out: &mut Vec<u8>) -> usize {
    // Between escapes there are few bytes as a rule: a word is copied before it is known how much of it counts.
    let (words, _) = bytes.as_chunks::<WORD>();
    for (n, word) in words.iter().take(SHORT_WORDS).enumerate() {
        out.extend_from_slice(word);
        let plain = plain_in_word(*word);
        if plain < WORD {
            out.truncate(out.len() + plain - WORD);
            return n * WORD + plain;
        }
    }
    let copied = words.len().min(SHORT_WORDS) * WORD;
    let rest = bytes.get(copied..).unwrap_or_default();
    let plain = long_plain_bytes(rest);
    out.extend_from_slice(rest.get(..plain).unwrap_or_default());
    copied + plain
}

/// Bytes of a text up to its quote, an escape or a control character.
fn plain_bytes(bytes: &[u8]) -> usize {
    let (words, _) = bytes.as_chunks::<WORD>();
    for (n, word) in words.iter().take(SHORT_WORDS).enumerate() {
        let plain = plain_in_word(*word);
        if plain < WORD {
            return n * WORD + plain;
        }
    }
    let seen = words.len().min(SHORT_WORDS) * WORD;
    seen + bytes.get(seen..).map_or(0, long_plain_bytes)
}

/// The same of a text of which there may be much.
fn long_plain_bytes(bytes: &[u8]) -> usize {
    let plain = memchr::memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
    bytes.get(..plain).map_or(plain, before_control)
}

/// Bytes that are looked at side by side.
const WORD: usize = 8;

/// Words after which a text counts as long: looking for its end has then a price, and goes faster.
const SHORT_WORDS: usize = 8;

fn plain_in_word(word: [u8; WORD]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    let word = u64::from_le_bytes(word);
    // The highest bit of a byte marks it; what stands above the first mark means nothing.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word;
    let controls = word.wrapping_sub(ONES * 0x20) & !word;
    let marks = controls | zeros(word ^ (ONES * u64::from(b'"'))) | zeros(word ^ (ONES * u64::from(b'\\')));
    (marks & (ONES << 7)).trailing_zeros() as usize / 8
}

/// Bytes before the first control character, all if there is none.
fn before_control(bytes: &[u8]) -> usize {
    let is_free = |some: &[u8]| some.iter().fold(u8::MAX, |least, byte| least.min(*byte)) >= b' ';
    let free = bytes.chunks(LOOKED_AT_ONCE).take_while(|some| is_free(some)).map(<[u8]>::len).sum::<usize>();
    let rest = bytes.get(free..).unwrap_or_default();
    free + rest.iter().take_while(|byte| **byte >= b' ').count()
}

const LOOKED_AT_ONCE: usize = 256;

impl<'de> Deserializer<'de> for &mut Lexer<'de> {
    type Error = Declined;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Declined> {
        match self.next()? {
            b'"' => self.string(visitor),
            b'{' => self.inside(b'}', |fields| visitor.visit_map(fields)),
            b'[' => self.inside(b']', |items| visitor.visit_seq(items)),
            b't' => self.word("true").and_then(|()| visitor.visit_bool(true)),
            b'f' => self.word("false").and_then(|()| visitor.visit_bool(false)),
            b'n' => self.word("null").and_then(|()| visitor.visit_unit()),
            b'-' | b'0'..=b'9' => self.number(visitor),
            _ => Err(Declined),
        }
    }

    /// Only serde_json's raw values ask for one, and are told as it tells them.
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Declined> {
        self.skip_blanks();
        let start = self.at;
        Take(Skip).deserialize(&mut *self)?;
        let raw = BorrowedStrDeserializer::new(self.text.get(start..self.at).ok_or(Declined)?);
        visitor.visit_map(MapDeserializer::new(once((name, raw))))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// The entries of a list or an object.
struct Entries<'l, 'de> {
    lexer: &'l mut Lexer<'de>,
    end: u8,
    is_first: bool,
}

impl Entries<'_, '_> {
    /// Goes on to the next entry, if there is one, and tells its first byte.
    fn step(&mut self) -> Result<Option<u8>, Declined> {
        let next = self.lexer.next()?;
        if next == self.end {
            return Ok(None);
        }
        if std::mem::replace(&mut self.is_first, false) {
            return Ok(Some(next));
        }
        self.lexer.take(b',')?;
        self.lexer.next().map(Some)
    }
}

impl<'de> SeqAccess<'de> for Entries<'_, 'de> {
    type Error = Declined;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Declined> {
        match self.step()? {
            Some(_) => seed.deserialize(&mut *self.lexer).map(Some),
            None => Ok(None),
        }
    }
}

impl<'de> MapAccess<'de> for Entries<'_, 'de> {
    type Error = Declined;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Declined> {
        match self.step()? {
            Some(b'"') => seed.deserialize(&mut *self.lexer).map(Some),
            Some(_) => Err(Declined),
            None => Ok(None),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Declined> {
        self.lexer.take(b':')?;
        seed.deserialize(&mut *self.lexer)
    }
}

impl de::Error for Declined {
    fn custom<T: fmt::Display>(_: T) -> Declined {
        Declined
    }
}

impl std::error::Error for Declined {}

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("not read here")
    }
}

#[cfg(test)]
mod tests;
