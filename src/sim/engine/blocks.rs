//! A cache of blocks that all conversations share, as vLLM has it.
//!
//! A block is found by the hash of everything up to its end. The least recently used block goes
//! first, and of one history the last block before the first, so that beginnings survive longest.
//! Blocks of running jobs are not pinned: a job in progress never asks for them again.

use std::collections::{BTreeMap, HashMap};

use super::history::History;

#[derive(Clone, Debug)]
pub(super) struct BlockCache {
    blocks_max: usize,
    block_tokens: u32,
    blocks_held: usize,
    /// Last use of every block held; never iterated, so its order decides nothing.
    last_use: HashMap<u64, u64>,
    /// The same by age: last use to hash and size in blocks.
    by_age: BTreeMap<u64, (u64, usize)>,
    uses: u64,
}

impl BlockCache {
    pub fn new(blocks_max: usize, block_tokens: u32) -> BlockCache {
        BlockCache {
            blocks_max,
            block_tokens: block_tokens.max(1),
            blocks_held: 0,
            last_use: HashMap::new(),
            by_age: BTreeMap::new(),
            uses: 0,
        }
    }

    pub fn begin(&mut self, history: &History) -> u32 {
        let found = (history.blocks().iter())
            .take_while(|block| self.last_use.contains_key(&block.hash))
            .last()
            .map_or(0, |block| block.tokens_end);
        self.hold(history, found);
        found
    }

    pub fn hold(&mut self, history: &History, tokens: u32) {
        let blocks = history.within(tokens);
        for (index, block) in blocks.iter().enumerate().rev() {
            let begin = index.checked_sub(1).map_or(0, |i| blocks[i].tokens_end);
            let size = (block.tokens_end - begin).div_ceil(self.block_tokens) as usize;
            self.touch(block.hash, size);
        }
        self.shrink();
    }

    fn touch(&mut self, hash: u64, size: usize) {
        self.uses += 1;
        if let Some(before) = self.last_use.insert(hash, self.uses) {
            self.forget(before);
        }
        self.by_age.insert(self.uses, (hash, size));
        self.blocks_held += size;
    }

    fn shrink(&mut self) {
        while self.blocks_held > self.blocks_max {
            let Some((use_number, (hash, size))) = self.by_age.pop_first() else {
                return;
            };
            debug_assert_eq!(self.last_use.get(&hash), Some(&use_number));
            self.last_use.remove(&hash);
            self.blocks_held -= size;
        }
    }

    fn forget(&mut self, use_number: u64) {
        if let Some((_, size)) = self.by_age.remove(&use_number) {
            self.blocks_held -= size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::{Block, tests::history};
    use super::*;

    #[track_caller]
    fn check(blocks_max: usize, served: &[(&[u64], u32)]) {
        let mut cache = BlockCache::new(blocks_max, 16);
        for (step, (hashes, cached)) in served.iter().enumerate() {
            let history = history(hashes);
            assert_eq!(cache.begin(&history), *cached, "step {step}");
            cache.hold(&history, 16 * hashes.len() as u32);
            assert!(cache.blocks_held <= blocks_max);
            assert_eq!(cache.last_use.len(), cache.by_age.len());
        }
    }

    #[test]
    fn conversations_share_their_beginning() {
        check(10, &[(&[1, 2, 3], 0), (&[1, 2, 9], 32), (&[1, 2, 3, 4], 48)]);
    }

    #[test]
    fn the_end_of_the_oldest_goes_first() {
        check(4, &[(&[1, 2], 0), (&[8, 9], 0), (&[5], 0), (&[1, 2], 16)]);
    }

    #[test]
    fn a_history_larger_than_the_cache_keeps_its_beginning() {
        check(2, &[(&[1, 2, 3, 4], 0), (&[1, 2, 3, 4], 32)]);
    }

    #[test]
    fn a_long_block_counts_for_its_tokens() {
        let long = |hash| History::new(vec![Block { hash, tokens_end: 512 }]);
        let mut cache = BlockCache::new(32, 16);
        cache.hold(&long(1), 512);
        cache.hold(&long(2), 512);
        assert_eq!((cache.begin(&long(1)), cache.begin(&long(2))), (0, 512));
    }
}
