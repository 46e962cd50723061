//! A text as a cache sees it: blocks, each known by the hash of everything up to its end.
//!
//! Two histories share exactly the blocks whose hashes agree, and because a hash stands for all that
//! lies before it, agreement at one place means agreement before. No text is kept. Copies are cheap:
//! a job, a cache and a log may hold the same history.

use std::sync::Arc;

/// Everything up to the end of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub hash: u64,
    /// Tokens from the beginning of the text to the end of this block.
    pub tokens_end: u32,
}

/// A prompt, and after it the answer where that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(Arc<[Block]>);

impl History {
    pub fn new(blocks: Vec<Block>) -> History {
        History(blocks.into())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn blocks(&self) -> &[Block] {
        &self.0
    }

    /// The blocks that lie wholly within the first `tokens`.
    pub fn within(&self, tokens: u32) -> &[Block] {
        let count = self.0.partition_point(|block| block.tokens_end <= tokens);
        &self.0[..count]
    }

    /// Tokens that both begin with, whole blocks only, when of `other` no more than `held` exist.
    pub fn shared_tokens(&self, other: &History, held: u32) -> u32 {
        let other = other.within(held);
        let pairs = self.0.len().min(other.len());
        let (mut agree, mut differ) = (0, pairs);
        while agree < differ {
            let middle = agree + (differ - agree) / 2;
            if self.0[middle].hash == other[middle].hash {
                agree = middle + 1;
            } else {
                differ = middle;
            }
        }
        agree.checked_sub(1).map_or(0, |last| self.0[last].tokens_end)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Blocks of sixteen tokens.
    pub fn history(hashes: &[u64]) -> History {
        let block = |(index, hash): (usize, &u64)| Block { hash: *hash, tokens_end: 16 * (index as u32 + 1) };
        History::new(hashes.iter().enumerate().map(block).collect())
    }

    #[track_caller]
    fn check(one: &[u64], other: &[u64], held: u32, shared: u32) {
        assert_eq!(history(one).shared_tokens(&history(other), held), shared);
    }

    #[test]
    fn shares_whole_blocks_from_the_beginning() {
        check(&[], &[], 100, 0);
        check(&[1, 2, 3], &[1, 2, 3], 48, 48);
        check(&[1, 2, 3], &[1, 2, 9], 48, 32);
        check(&[1, 2, 3, 4], &[1, 2], 32, 32);
        check(&[1, 2], &[1, 2, 3, 4], 64, 32);
        check(&[7], &[1], 16, 0);
    }

    #[test]
    fn what_is_not_held_is_not_shared() {
        check(&[1, 2, 3], &[1, 2, 3], 47, 32);
        check(&[1, 2, 3], &[1, 2, 3], 15, 0);
    }
}
