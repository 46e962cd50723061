//! A text that grows, in the two forms in which it is looked at.
//!
//! Engines see blocks of a few tokens; a router sees a link a message and one more every 1,024
//! characters inside a message, as `wire::peek` makes them.

use crate::routing::chain::{Chain, Link, PIECE_CHARS, mix};
use crate::sim::engine::{Block, History};

/// Tokens of a block, as vLLM has them.
pub const BLOCK_TOKENS: u32 = 16;

/// Characters of a token, as `wire::size` reckons.
pub const TOKEN_CHARS: u32 = 4;

const PIECE_TOKENS: u32 = PIECE_CHARS as u32 / TOKEN_CHARS;

#[derive(Clone, Debug, Default)]
pub struct Text {
    blocks: Vec<Block>,
    links: Vec<Link>,
    tokens: u32,
    hash: u64,
    root: Option<u32>,
    answers: u32,
}

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voice {
    System,
    User,
    Assistant,
}

impl Text {
    /// Adds a message of `tokens`; `content` stands for what it says.
    pub fn say(&mut self, voice: Voice, content: u64, tokens: u32) {
        let parts = tokens.max(1).div_ceil(BLOCK_TOKENS);
        let hashes: Vec<u64> = (0..parts).map(|part| mix(content, u64::from(part))).collect();
        self.add(voice, &hashes, tokens.max(1));
    }

    /// Adds a message whose blocks have these hashes, each of its own content alone.
    pub fn add(&mut self, voice: Voice, hashes: &[u64], tokens: u32) {
        let begin = self.tokens;
        for (hash, number) in hashes.iter().zip(1..) {
            self.hash = mix(self.hash, *hash);
            let tokens_end = begin + (BLOCK_TOKENS * number).min(tokens);
            self.blocks.push(Block { hash: self.hash, tokens_end });
            if (tokens_end - begin).is_multiple_of(PIECE_TOKENS) && tokens_end < begin + tokens {
                self.links.push(Link { hash: self.hash, tokens: tokens_end, ends_message: false });
            }
        }
        self.tokens = begin + tokens;
        self.links.push(Link { hash: self.hash, tokens: self.tokens, ends_message: true });
        if voice == Voice::User && self.root.is_none() {
            self.root = Some(self.links.len() as u32 - 1);
        }
        self.answers += u32::from(voice == Voice::Assistant && self.root.is_some());
    }

    pub fn tokens(&self) -> u32 {
        self.tokens
    }

    pub fn chain(&self) -> Chain {
        Chain { links: self.links.clone(), root: self.root.unwrap_or(0), answers: self.answers }
    }

    pub fn history(&self) -> History {
        History::new(self.blocks.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_turn_repeats_the_last_one() {
        let mut text = Text::default();
        text.say(Voice::System, 1, 600);
        text.say(Voice::User, 2, 10);
        let (chain, history) = (text.chain(), text.history());
        assert_eq!(chain.links.iter().map(|link| link.tokens).collect::<Vec<_>>(), [256, 512, 600, 610]);
        assert_eq!(chain.root, 3);
        text.say(Voice::Assistant, 3, 50);
        text.say(Voice::User, 4, 10);
        assert_eq!(&text.chain().links[..4], &chain.links[..]);
        assert_eq!([chain.answers, text.chain().answers], [0, 1]);
        assert_eq!(text.history().shared_tokens(&history, 610), 610);
    }

    #[test]
    fn another_word_parts_them() {
        let said = |content| {
            let mut text = Text::default();
            text.say(Voice::System, 1, 64);
            text.say(Voice::User, content, 64);
            text.history()
        };
        assert_eq!(said(2).shared_tokens(&said(3), 128), 64);
    }
}
