//! When the slots of a model on a node come free, one request after the other.
//!
//! Whoever comes takes the slot that is free first. A node can have hundreds of slots and as many that wait, and all
//! nodes are looked at for each decision: so one more costs the logarithm of the slots, not all of them.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

pub struct SlotEnds {
    slots: usize,
    /// Of the slots that are taken; the others are free now.
    ends: BinaryHeap<Reverse<End>>,
}

impl SlotEnds {
    /// All free; room is made for so many requests.
    pub fn new(slots: usize, requests: usize) -> SlotEnds {
        SlotEnds { slots, ends: BinaryHeap::with_capacity(slots.min(requests)) }
    }

    /// Seconds until one is free.
    pub fn next_s(&self) -> f64 {
        if self.ends.len() < self.slots {
            return 0.0;
        }
        self.ends.peek().map_or(0.0, |Reverse(End(end_s))| *end_s)
    }

    /// The next one is taken until then.
    pub fn take_until(&mut self, end_s: f64) {
        if self.ends.len() < self.slots {
            self.ends.push(Reverse(End(end_s)));
        } else if let Some(mut first) = self.ends.peek_mut() {
            *first = Reverse(End(end_s));
        }
    }
}

/// Seconds from now, which can be ordered.
struct End(f64);

impl Ord for End {
    fn cmp(&self, other: &End) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for End {
    fn partial_cmp(&self, other: &End) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for End {
    fn eq(&self, other: &End) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for End {}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(slots: usize, ends_s: &[f64], expected_s: f64) {
        let mut slots = SlotEnds::new(slots, ends_s.len());
        ends_s.iter().for_each(|end_s| slots.take_until(*end_s));
        assert_eq!(slots.next_s(), expected_s, "after {ends_s:?}");
    }

    #[test]
    fn who_comes_takes_what_is_free_first() {
        check(2, &[], 0.0);
        check(2, &[5.0], 0.0);
        check(2, &[5.0, 3.0], 3.0);
        check(2, &[5.0, 3.0, 9.0], 5.0);
        check(2, &[5.0, 3.0, 9.0, 6.0], 6.0);
        check(1, &[4.0, 2.0], 2.0);
        check(0, &[4.0], 0.0);
    }
}
