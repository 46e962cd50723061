//! A cache of whole conversations, one a slot, as Ollama and llama.cpp have it.
//!
//! A job takes the idle conversation that resembles it most, else an empty place, else the least
//! recently used one, whose content it displaces. With one slot, every new conversation costs the
//! last one its cache: the reason why affinity matters most with these engines.

use super::history::History;

/// Share of a prompt that must be common before a conversation is taken for it: llama-server's
/// default `--slot-prompt-similarity`. Without it a short shared system prompt would displace a long
/// conversation while an empty place is free.
const SIMILARITY_MIN: f64 = 0.1;

#[derive(Clone, Debug)]
pub(super) struct SlotCache {
    kept: usize,
    conversations: Vec<Conversation>,
    uses: u64,
}

#[derive(Clone, Debug, Default)]
struct Conversation {
    history: History,
    /// Tokens of the history that were computed.
    held_tokens: u32,
    busy: bool,
    last_use: u64,
}

impl SlotCache {
    pub fn new(kept: usize) -> SlotCache {
        SlotCache { kept, conversations: Vec::new(), uses: 0 }
    }

    pub fn place(&mut self, history: &History, prompt_tokens: u32) -> usize {
        let place = match self.most_alike(history, prompt_tokens) {
            Some(place) => place,
            None => self.emptiest(),
        };
        self.conversations[place].busy = true;
        place
    }

    pub fn begin(&mut self, place: usize, history: &History) -> u32 {
        let conversation = &mut self.conversations[place];
        let shared = history.shared_tokens(&conversation.history, conversation.held_tokens);
        conversation.history = history.clone();
        conversation.held_tokens = shared;
        shared
    }

    pub fn hold(&mut self, place: usize, tokens: u32) {
        self.conversations[place].held_tokens = tokens;
    }

    pub fn release(&mut self, place: usize) {
        self.uses += 1;
        self.conversations[place].busy = false;
        self.conversations[place].last_use = self.uses;
    }

    fn most_alike(&self, history: &History, prompt_tokens: u32) -> Option<usize> {
        let shared = |c: &Conversation| history.shared_tokens(&c.history, c.held_tokens);
        let (place, shared) = (self.idle())
            .map(|(place, conversation)| (place, shared(conversation)))
            .max_by_key(|(place, shared)| (*shared, std::cmp::Reverse(*place)))?;
        (f64::from(shared) > SIMILARITY_MIN * f64::from(prompt_tokens)).then_some(place)
    }

    fn emptiest(&mut self) -> usize {
        if self.conversations.len() < self.kept {
            self.conversations.push(Conversation::default());
            return self.conversations.len() - 1;
        }
        // A model runs no more jobs than it has slots, and `kept` is at least that: one is idle.
        (self.idle()).min_by_key(|(_, conversation)| conversation.last_use).map_or(0, |(place, _)| place)
    }

    fn idle(&self) -> impl Iterator<Item = (usize, &Conversation)> {
        (self.conversations.iter().enumerate()).filter(|(_, conversation)| !conversation.busy)
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::tests::history;
    use super::*;

    /// Serves histories one after another and gives what each found cached.
    #[track_caller]
    fn check(kept: usize, served: &[(&[u64], u32)]) {
        let mut cache = SlotCache::new(kept);
        for (step, (hashes, cached)) in served.iter().enumerate() {
            let history = history(hashes);
            let tokens = 16 * hashes.len() as u32;
            let place = cache.place(&history, tokens);
            assert_eq!(cache.begin(place, &history), *cached, "step {step}");
            cache.hold(place, tokens);
            cache.release(place);
        }
        assert!(cache.conversations.len() <= kept);
    }

    #[test]
    fn a_follow_up_finds_its_conversation() {
        check(1, &[(&[1, 2], 0), (&[1, 2, 3], 32), (&[1, 2, 3, 4], 48)]);
    }

    #[test]
    fn one_slot_forgets_the_other_conversation() {
        check(1, &[(&[1, 2], 0), (&[8, 9], 0), (&[1, 2, 3], 0)]);
    }

    #[test]
    fn two_places_keep_both_and_then_the_least_recent_goes() {
        check(2, &[(&[1, 2], 0), (&[8, 9], 0), (&[1, 2, 3], 32), (&[5, 6], 0), (&[8, 9], 0)]);
    }

    #[test]
    fn a_short_common_beginning_displaces_nobody() {
        let long: Vec<u64> = (1..=20).collect();
        let other: Vec<u64> = (1..=1).chain(100..=118).collect();
        check(2, &[(&long, 0), (&other, 0), (&long, 320)]);
    }

    #[test]
    fn a_busy_conversation_is_not_taken() {
        let mut cache = SlotCache::new(2);
        let (first, second) = (cache.place(&history(&[1]), 16), cache.place(&history(&[1]), 16));
        assert_ne!(first, second);
    }
}
