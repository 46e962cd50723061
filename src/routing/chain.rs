//! A conversation as a chain of hashes: each link stands for everything up to it.
//!
//! One link a message, and one more after every full piece of `PIECE_CHARS` characters inside a long
//! text, so that two prompts which part in the middle of a message still share what lies before. A
//! chain holds no text. Links are content only; whoever compares them across tenants or models mixes
//! in a domain first (`Link::within`).

use serde::{Deserialize, Serialize};

/// Characters of one text after which a long message gets a link of its own.
pub const PIECE_CHARS: usize = 1024;

/// Everything up to a point of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    pub hash: u64,
    /// Estimated tokens from the beginning of the prompt to here.
    pub tokens: u32,
    /// Whether a message ends here (otherwise: a piece inside one).
    pub ends_message: bool,
}

impl Link {
    /// The link as a key of one tenant's conversations with one model.
    pub fn within(&self, domain: u64) -> u64 {
        mix(domain, self.hash)
    }
}

/// The links of a prompt, in order; tools and system text come first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    pub links: Vec<Link>,
    /// Index of the link that ends the first user message: what all turns of a conversation have in
    /// common, and what no two conversations share just because their system prompt is the same.
    pub root: u32,
    /// How often the assistant has answered since; zero where nobody tells who says what.
    #[serde(default)]
    pub answers: u32,
}

impl Chain {
    /// The link that stands for the whole prompt.
    pub fn end(&self) -> Option<&Link> {
        self.links.last()
    }

    /// The link up to and with the first user message.
    pub fn root(&self) -> Option<&Link> {
        self.links.get(self.root as usize).or(self.links.last())
    }
}

/// Folds one 64-bit value into another; order matters.
pub fn mix(seed: u64, value: u64) -> u64 {
    // splitmix64's finaliser over the running value, after Steele, Lea and Flood (OOPSLA 2014).
    let mut z = seed.rotate_left(23).wrapping_add(value).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Hash of a name or other short text.
pub fn hash_text(text: &str) -> u64 {
    hash_bytes(text.as_bytes())
}

/// The same of a text's bytes.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}
