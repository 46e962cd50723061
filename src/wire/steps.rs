//! The steps of a prompt, before they are linked to a chain.
//!
//! A request may name its tools after its messages, and a message its role after its text, so nothing
//! can be chained while it is read. A `Step` is one future link's own content. However a body is made
//! up, a list of steps never grows past `STEP_LIMIT`, and one of too many entries is not read to its end.

use serde::de;

use super::size::Size;
use crate::routing::chain::mix;

/// Most steps of one list: four million tokens of text, more than any engine reads. Without it a body of
/// empty messages would take twenty times its own size in memory.
pub(super) const STEP_LIMIT: usize = 16 * 1024;

/// Most messages, parts of messages and texts in one list. A body packed to a hundred kilobytes can hold
/// forty million empty messages, which would take seconds to read.
pub(super) const ENTRY_LIMIT: usize = 100_000;

/// How the error of a list with too many entries is known.
pub(super) const TOO_MANY: &str = "too many entries";

/// What one link adds to the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub hash: u64,
    pub size: Size,
    pub ends_message: bool,
}

/// Keeps contents of different kinds apart in the hashes.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Message = 1,
    Text,
    Prompt,
    Ids,
    Tools,
    Attachment,
}

/// A bounded list of steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Steps {
    list: Vec<Step>,
    /// Entries read so far, whether or not they said anything.
    entries: usize,
}

impl Steps {
    /// Counts an entry in; an error if it is one too many.
    pub fn admit<E: de::Error>(&mut self) -> Result<(), E> {
        self.entries += 1;
        if self.entries > ENTRY_LIMIT { Err(E::custom(TOO_MANY)) } else { Ok(()) }
    }

    /// Adds a step. Past the limit it joins the last one, which then stands for both.
    pub fn push(&mut self, step: Step) {
        let full = self.list.len() >= STEP_LIMIT;
        match self.list.last_mut() {
            Some(last) if full => {
                last.hash = mix(last.hash, step.hash);
                last.size += step.size;
                last.ends_message = step.ends_message;
            }
            _ => self.list.push(step),
        }
    }

    /// Marks the steps from `from` on with what is true of them all.
    pub fn stamp(&mut self, from: usize, mark: u64) {
        let from = from.min(self.list.len().saturating_sub(1));
        for step in self.list.iter_mut().skip(from) {
            step.hash = mix(mark, step.hash);
        }
    }

    /// Takes back all but the first `len` steps. What joined the last step at the limit stays in it.
    pub fn truncate(&mut self, len: usize) {
        self.list.truncate(len);
    }

    pub fn last_mut(&mut self) -> Option<&mut Step> {
        self.list.last_mut()
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

impl IntoIterator for Steps {
    type Item = Step;
    type IntoIter = std::vec::IntoIter<Step>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(count: usize, last: u64) -> Steps {
        let mut steps = Steps::default();
        for n in 1..=count {
            let hash = if n == count { last } else { 0 };
            steps.push(Step { hash, size: Size::of_chars(1), ends_message: true });
        }
        steps
    }

    #[test]
    fn a_list_is_bounded_and_still_tells_all_its_content() {
        let (one, two) = (steps(STEP_LIMIT + 9, 1), steps(STEP_LIMIT + 9, 2));
        assert_eq!(one.len(), STEP_LIMIT);
        assert_ne!(one, two);
        assert_eq!(one.into_iter().map(|step| step.size.chars).sum::<u64>(), STEP_LIMIT as u64 + 9);
    }

    #[test]
    fn a_joined_step_is_stamped_too() {
        let (mut full, plain) = (steps(STEP_LIMIT, 1), steps(STEP_LIMIT, 1));
        full.stamp(STEP_LIMIT, 7);
        assert_ne!(full, plain);
        Steps::default().stamp(0, 7);
    }
}
