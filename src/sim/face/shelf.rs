//! The responses that a node has stored, to go on from with `previous_response_id`.
//!
//! In the memory of one process, as engines keep them: another node knows none of them, and neither
//! does this one after a restart. The oldest go when it is full.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use super::text::Token;

/// A few hours of agents at work.
const RESPONSES_MAX: usize = 4096;

/// Sixteen megabytes.
const TOKENS_MAX: usize = 4 << 20;

#[derive(Default)]
pub struct Shelf(Mutex<Stored>);

#[derive(Default)]
struct Stored {
    talks: HashMap<String, Arc<[Token]>>,
    /// Oldest first.
    ids: VecDeque<String>,
    tokens: usize,
}

impl Shelf {
    /// The talk up to and with that response.
    pub fn talk(&self, id: &str) -> Option<Arc<[Token]>> {
        self.0.lock().talks.get(id).cloned()
    }

    /// An id is used once.
    pub fn put(&self, id: &str, talk: Vec<Token>) {
        let mut stored = self.0.lock();
        stored.tokens += talk.len();
        stored.ids.push_back(id.to_owned());
        stored.talks.insert(id.to_owned(), talk.into());
        while stored.ids.len() > RESPONSES_MAX || stored.tokens > TOKENS_MAX {
            let Some(oldest) = stored.ids.pop_front() else { return };
            stored.tokens -= stored.talks.remove(&oldest).map_or(0, |talk| talk.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let shelf = Shelf::default();
        for number in 0..=RESPONSES_MAX {
            shelf.put(&number.to_string(), vec![1]);
        }
        assert_eq!(shelf.talk("0"), None);
        assert_eq!(shelf.talk("1").as_deref(), Some(&[1][..]));
        shelf.put("long", vec![1; TOKENS_MAX]);
        assert_eq!(shelf.talk("1"), None);
        assert!(shelf.talk("long").is_some());
    }
}
