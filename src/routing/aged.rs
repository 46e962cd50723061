//! A bounded map that forgets what has not been written for longest.
//!
//! Two generations: writes go to the young one; when it holds half of the bound, the old one is
//! dropped whole and the young one takes its place. That keeps between half and all of the bound's
//! most recently written entries with no links between entries, and costs one hash map's worth of
//! memory an entry (law L8). Reading does not write.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Entries by keys that are hashes already.
pub struct Aged<V> {
    young: Generation<V>,
    old: Generation<V>,
    per_generation: usize,
}

type Generation<V> = HashMap<u64, V, BuildHasherDefault<AlreadyHashed>>;

impl<V> Aged<V> {
    /// At most `max_entries`, and at least half of that many of the latest.
    pub fn new(max_entries: usize) -> Aged<V> {
        Aged {
            young: Generation::default(),
            old: Generation::default(),
            per_generation: max_entries.div_ceil(2).max(1),
        }
    }

    /// Another bound holds from now on. Of what is too much the oldest go first, and of those of one age any.
    pub fn limit(&mut self, max_entries: usize) {
        self.per_generation = max_entries.div_ceil(2).max(1);
        if self.young.len() > self.per_generation {
            self.old = std::mem::take(&mut self.young);
        }
        let surplus = self.old.len().saturating_sub(self.per_generation);
        if surplus > 0 {
            let mut seen = 0;
            self.old.retain(|_, _| {
                seen += 1;
                seen > surplus
            });
            self.old.shrink_to_fit();
        }
    }

    pub fn get(&self, key: u64) -> Option<&V> {
        self.young.get(&key).or_else(|| self.old.get(&key))
    }

    pub fn insert(&mut self, key: u64, value: V) {
        self.old.remove(&key);
        if self.young.len() >= self.per_generation && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    /// The entry, taken out, to be changed and inserted again.
    pub fn remove(&mut self, key: u64) -> Option<V> {
        let young = self.young.remove(&key);
        self.old.remove(&key).or(young)
    }

    /// All entries, those of the older generation first; in no order beyond that.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        self.old.iter().chain(&self.young).map(|(key, value)| (*key, value))
    }

    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn max_entries(&self) -> usize {
        2 * self.per_generation
    }
}

/// Passes a key through that is a good hash itself; hashing it again would only cost time.
#[derive(Default)]
pub(super) struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = super::chain::mix(self.0, u64::from(*byte));
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_latest_half_and_never_more_than_the_bound() {
        let mut aged = Aged::new(100);
        for key in 0..1000u64 {
            aged.insert(key, key);
            assert!(aged.len() <= aged.max_entries());
            for recent in key.saturating_sub(49)..=key {
                assert_eq!(aged.get(recent), Some(&recent));
            }
        }
        assert_eq!(aged.get(0), None);
    }

    #[test]
    fn another_bound_holds_at_once_and_forgets_no_more_than_it_must() {
        let mut aged = Aged::new(100);
        (0..70u64).for_each(|key| aged.insert(key, ()));
        aged.limit(200);
        assert_eq!(aged.len(), 70);
        aged.limit(100);
        assert_eq!(aged.len(), 70);
        aged.limit(60);
        assert_eq!((aged.len(), aged.get(60)), (50, Some(&())), "30 of the old, all of the young");
        aged.limit(10);
        assert_eq!(aged.len(), 5);
        (100..200u64).for_each(|key| aged.insert(key, ()));
        assert!(aged.len() <= 10);
    }

    #[test]
    fn writing_again_keeps_an_entry() {
        let mut aged = Aged::new(4);
        for key in 0..100u64 {
            aged.insert(7, 0);
            aged.insert(1000 + key, 1);
        }
        assert_eq!(aged.get(7), Some(&0));
        assert_eq!(aged.remove(7), Some(0));
        assert_eq!(aged.get(7), None);
    }
}
