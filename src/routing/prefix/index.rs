//! Who holds which beginning of a prompt: copies of links, found by their key and kept in order of use.
//!
//! A copy stands in two lists: that of its key, so that one look finds every place that holds it, and that
//! of its place, the latest used first. Copies live in one array and name each other by number: no
//! allocation each, and nothing to follow but numbers.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::routing::aged::AlreadyHashed;

/// Copies remembered in all, of 48 bytes each and about 34 more for their key.
pub const MAX_COPIES: usize = 1 << 18;

const NONE: u32 = u32::MAX;

/// A cache's place, by number.
pub type PlaceId = u32;

#[derive(Clone, Copy, Debug)]
pub struct Copy {
    key: u64,
    pub place: PlaceId,
    newer: u32,
    older: u32,
    next: u32,
    previous: u32,
    /// Of the piece from the link before to this one.
    tokens: u32,
    /// Written after this link as the answer to it.
    pub answer_tokens: u32,
    /// Seconds since the run's origin.
    pub at_s: u32,
}

/// The copies of one place, the latest used first.
#[derive(Clone, Copy, Debug)]
pub struct List {
    newest: u32,
    oldest: u32,
    pub copies: u32,
    pub tokens: u64,
}

impl Default for List {
    fn default() -> List {
        List { newest: NONE, oldest: NONE, copies: 0, tokens: 0 }
    }
}

#[derive(Clone, Copy)]
struct Owners {
    first: u32,
    count: u32,
}

pub struct Index {
    owners: HashMap<u64, Owners, BuildHasherDefault<AlreadyHashed>>,
    copies: Vec<Copy>,
    free: Vec<u32>,
}

impl Index {
    pub fn new() -> Index {
        Index { owners: HashMap::default(), copies: Vec::new(), free: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.copies.len() - self.free.len()
    }

    pub fn is_full(&self) -> bool {
        self.len() >= MAX_COPIES
    }

    /// How many places hold the link.
    pub fn count(&self, key: u64) -> u32 {
        self.owners.get(&key).map_or(0, |owners| owners.count)
    }

    /// Its copies, the latest made first.
    pub fn copies_of(&self, key: u64) -> impl Iterator<Item = &Copy> {
        let first = self.owners.get(&key).map_or(NONE, |owners| owners.first);
        std::iter::successors(self.copies.get(first as usize), |copy| self.copies.get(copy.next as usize))
    }

    pub fn find(&self, key: u64, place: PlaceId) -> Option<u32> {
        let mut at = self.owners.get(&key)?.first;
        while let Some(copy) = self.copies.get(at as usize) {
            if copy.place == place {
                return Some(at);
            }
            at = copy.next;
        }
        None
    }

    /// A new copy, the latest used of its place.
    pub fn add(&mut self, list: &mut List, place: PlaceId, key: u64, tokens: u32, at_s: u32) {
        let owners = self.owners.entry(key).or_insert(Owners { first: NONE, count: 0 });
        let next = owners.first;
        let copy = Copy { key, place, newer: NONE, older: NONE, next, previous: NONE, tokens, answer_tokens: 0, at_s };
        let id = match self.free.pop() {
            Some(id) => {
                self.copies[id as usize] = copy;
                id
            }
            None => {
                self.copies.push(copy);
                self.copies.len() as u32 - 1
            }
        };
        (owners.first, owners.count) = (id, owners.count + 1);
        if let Some(next) = self.copies.get_mut(next as usize) {
            next.previous = id;
        }
        list.tokens += u64::from(tokens);
        self.put_first(list, id);
    }

    /// Used again: the latest of its place.
    pub fn touch(&mut self, list: &mut List, id: u32, at_s: u32) {
        self.take_out(list, id);
        self.copies[id as usize].at_s = at_s;
        self.put_first(list, id);
    }

    pub fn answered(&mut self, id: u32, tokens: u32) {
        self.copies[id as usize].answer_tokens = tokens;
    }

    /// When the longest unused of a place was used.
    pub fn oldest_at_s(&self, list: &List) -> Option<u32> {
        self.copies.get(list.oldest as usize).map(|copy| copy.at_s)
    }

    /// Forgets the longest unused of a place.
    pub fn drop_oldest(&mut self, list: &mut List) {
        if list.oldest != NONE {
            self.drop(list, list.oldest);
        }
    }

    pub fn drop(&mut self, list: &mut List, id: u32) {
        self.take_out(list, id);
        let Copy { key, tokens, next, previous, .. } = self.copies[id as usize];
        list.tokens = list.tokens.saturating_sub(u64::from(tokens));
        if let Some(next) = self.copies.get_mut(next as usize) {
            next.previous = previous;
        }
        if let Some(previous) = self.copies.get_mut(previous as usize) {
            previous.next = next;
        }
        if let Some(owners) = self.owners.get_mut(&key) {
            owners.count -= 1;
            if owners.first == id {
                owners.first = next;
            }
            if owners.count == 0 {
                self.owners.remove(&key);
            }
        }
        self.copies[id as usize].place = NONE;
        self.free.push(id);
    }

    fn put_first(&mut self, list: &mut List, id: u32) {
        let before = std::mem::replace(&mut list.newest, id);
        let copy = &mut self.copies[id as usize];
        (copy.newer, copy.older) = (NONE, before);
        match self.copies.get_mut(before as usize) {
            Some(before) => before.newer = id,
            None => list.oldest = id,
        }
        list.copies += 1;
    }

    fn take_out(&mut self, list: &mut List, id: u32) {
        let Copy { newer, older, .. } = self.copies[id as usize];
        match self.copies.get_mut(newer as usize) {
            Some(copy) => copy.older = older,
            None => list.newest = older,
        }
        match self.copies.get_mut(older as usize) {
            Some(copy) => copy.newer = newer,
            None => list.oldest = newer,
        }
        list.copies -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(index: &Index, key: u64) -> Vec<PlaceId> {
        index.copies_of(key).map(|copy| copy.place).collect()
    }

    #[test]
    fn copies_are_found_by_key_and_leave_by_age() {
        let (mut index, mut a, mut b) = (Index::new(), List::default(), List::default());
        for key in [1, 2, 3] {
            index.add(&mut a, 0, key, 10, 0);
        }
        index.add(&mut b, 1, 2, 10, 0);
        assert_eq!((owners(&index, 2), index.count(2)), (vec![1, 0], 2));
        let first = index.find(1, 0).expect("there");
        index.touch(&mut a, first, 5);
        index.drop_oldest(&mut a);
        assert_eq!((owners(&index, 2), index.count(2), a.tokens), (vec![1], 1, 20));
        index.drop_oldest(&mut a);
        index.drop_oldest(&mut a);
        index.drop_oldest(&mut a);
        assert_eq!((a.copies, a.tokens, index.len(), index.count(1)), (0, 0, 1, 0));
        index.add(&mut a, 0, 7, 1, 9);
        assert_eq!((owners(&index, 7), index.copies.len()), (vec![0], 4), "places are used again");
    }
}
