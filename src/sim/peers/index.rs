//! What a router believes of a node's cache: blocks of the prompts it sent there, the least recently used
//! forgotten first.

use std::collections::{BTreeMap, HashMap};

use crate::sim::engine::{Block, History};

#[derive(Clone, Debug)]
pub struct Index {
    tokens_max: u64,
    tokens: u64,
    /// Last use and size of every block.
    blocks: HashMap<u64, (u64, u64)>,
    by_age: BTreeMap<u64, u64>,
    uses: u64,
}

impl Index {
    pub fn new(tokens_max: u64) -> Index {
        Index { tokens_max, tokens: 0, blocks: HashMap::new(), by_age: BTreeMap::new(), uses: 0 }
    }

    /// Blocks of the prompt that are known there, from its beginning.
    pub fn known<'a>(&self, prompt: &'a [Block]) -> &'a [Block] {
        let count = prompt.iter().take_while(|block| self.blocks.contains_key(&block.hash)).count();
        &prompt[..count]
    }

    /// So many tokens of a history are there now; its beginning is used last.
    pub fn learn(&mut self, history: &History, tokens: u32) {
        let blocks = history.within(tokens);
        for (index, block) in blocks.iter().enumerate().rev() {
            let begin = index.checked_sub(1).map_or(0, |before| blocks[before].tokens_end);
            self.touch(block.hash, u64::from(block.tokens_end - begin));
        }
        while self.tokens > self.tokens_max {
            let Some((_, hash)) = self.by_age.pop_first() else { return };
            self.tokens -= self.blocks.remove(&hash).map_or(0, |(_, size)| size);
        }
    }

    fn touch(&mut self, hash: u64, size: u64) {
        self.uses += 1;
        if let Some((used, before)) = self.blocks.insert(hash, (self.uses, size)) {
            self.by_age.remove(&used);
            self.tokens -= before;
        }
        self.by_age.insert(self.uses, hash);
        self.tokens += size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(hashes: &[u64]) -> History {
        let block = |(hash, number): (&u64, u32)| Block { hash: *hash, tokens_end: 10 * number };
        History::new(hashes.iter().zip(1..).map(block).collect())
    }

    #[test]
    fn the_end_of_the_longest_unused_goes_first() {
        let mut index = Index::new(40);
        index.learn(&history(&[1, 2]), 20);
        index.learn(&history(&[7, 8, 9]), 30);
        assert_eq!(index.known(history(&[1, 2]).blocks()).len(), 1);
        assert_eq!(index.known(history(&[7, 8, 9, 10]).blocks()).len(), 3);
    }
}
