//! Text as tokens, and the text of an answer.
//!
//! A token is four characters. Every part of a prompt is cut on its own, so that a conversation that
//! repeats an answer gives the very tokens that were generated. An answer depends on its prompt
//! alone and says that it is simulated.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::routing::chain::{hash_text, mix};
use crate::sim::engine::{Block, History};

/// Characters a token; close to English text with common vocabularies.
const TOKEN_CHARS: usize = 4;

/// Tokens a cache block, as in vLLM.
pub const BLOCK_TOKENS: usize = 16;

/// A token's number. Positive as a signed integer, for Ollama's `context`.
pub type Token = u32;

/// Cuts a text into tokens and appends them.
pub fn cut(text: &str, tokens: &mut Vec<Token>) {
    tokens.extend(pieces(text).map(token));
}

/// The blocks of a prompt and its answer; the last block only if it is full.
pub fn history(tokens: &[Token]) -> History {
    let mut hash = 0;
    let full = tokens.chunks_exact(BLOCK_TOKENS).enumerate();
    let blocks = full.map(|(index, chunk)| {
        hash = chunk.iter().fold(hash, |h, token| mix(h, u64::from(*token)));
        Block { hash, tokens_end: u32::try_from((index + 1) * BLOCK_TOKENS).unwrap_or(u32::MAX) }
    });
    History::new(blocks.collect())
}

/// What the simulated engine answers to a prompt, one string a token.
pub fn answer(prompt: &[Token], tokens: u32) -> Vec<String> {
    let seed = prompt.iter().fold(0, |h, token| mix(h, u64::from(*token)));
    let chars_max = tokens as usize * TOKEN_CHARS;
    // An odd stride over eight sentences: none is said twice before all were said.
    let (mut sentence, stride) = (seed, seed >> 32 | 1);
    let mut text = String::from("[simulated]");
    while text.len() < chars_max {
        text.push(' ');
        text.push_str(SENTENCES[(sentence % SENTENCES.len() as u64) as usize]);
        sentence = sentence.wrapping_add(stride);
    }
    split(&text).into_iter().take(tokens as usize).collect()
}

/// A text as the strings of its tokens.
pub fn split(text: &str) -> Vec<String> {
    pieces(text).map(str::to_owned).collect()
}

/// ASCII, so that bytes are characters.
const SENTENCES: [&str; 8] = [
    "This text was made up by a simulated engine.",
    "No model has read your question.",
    "Time passes here as it would on a real node.",
    "A warm conversation is answered sooner than a cold one.",
    "Four letters stand for one token.",
    "What was said so far is now held in the cache of this node.",
    "Go on, and only the new part has to be computed.",
    "Another node would have to read all of it again.",
];

/// A point on the unit sphere for a text, the same one every time.
pub fn embedding(tokens: &[Token], length: u32) -> Vec<f32> {
    let seed = tokens.iter().fold(7, |h, token| mix(h, u64::from(*token)));
    let raw: Vec<f32> =
        (0..u64::from(length)).map(|index| (mix(seed, index) >> 40) as f32 / (1u64 << 23) as f32 - 1.0).collect();
    let norm = raw.iter().map(|x| x * x).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    raw.into_iter().map(|x| x / norm).collect()
}

/// Numbers as OpenAI packs them: the bytes of each, least first.
pub fn base64(numbers: &[f32]) -> String {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    BASE64_STANDARD.encode(bytes)
}

fn token(piece: &str) -> Token {
    (hash_text(piece) >> 33) as Token
}

fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = rest.char_indices().nth(TOKEN_CHARS).map_or(rest.len(), |(at, _)| at);
        let (piece, after) = rest.split_at(end);
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_eq!(pieces(text).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn four_characters_a_token() {
        check("", &[]);
        check("abc", &["abc"]);
        check("abcdefgh", &["abcd", "efgh"]);
        check("äöüßé", &["äöüß", "é"]);
    }

    #[test]
    fn an_answer_says_what_it_is() {
        let text = answer(&[1, 2, 3], 40).concat();
        assert!(text.starts_with("[simulated] "), "{text}");
        assert_eq!(answer(&[1, 2, 3], 40).concat(), text);
        assert_ne!(answer(&[1, 2, 4], 40).concat(), text);
    }

    #[test]
    fn numbers_are_packed_least_byte_first() {
        assert_eq!(base64(&[1.0, -2.0]), "AACAPwAAAMA=");
    }

    #[test]
    fn embeddings_have_length_one() {
        let squares: f32 = embedding(&[1, 2], 768).iter().map(|x| x * x).sum();
        assert!((squares - 1.0).abs() < 1e-3, "{squares}");
    }

    proptest! {
        #[test]
        fn a_repeated_answer_is_cut_as_it_was_generated(prompt in ".{0,80}", length in 0..90u32) {
            let mut tokens = Vec::new();
            cut(&prompt, &mut tokens);
            let pieces = answer(&tokens, length);
            prop_assert_eq!(pieces.len(), length as usize);
            let generated: Vec<Token> = pieces.iter().map(|piece| token(piece)).collect();
            let mut repeated = Vec::new();
            cut(&pieces.concat(), &mut repeated);
            prop_assert_eq!(repeated, generated);
        }
    }
}
