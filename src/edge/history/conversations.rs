//! The latest conversations: where each is at home, its turns, and what its warmth saved or lost.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::Loss;

/// Conversations remembered; the one that has been quiet for longest makes room.
const CONVERSATIONS_MAX: usize = 512;

/// Of these, shown at most.
const SHOWN_MAX: usize = 64;

/// A turn that was answered.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    /// The conversation's key, in hexadecimal.
    pub session: String,
    pub model: String,
    pub node: String,
    pub prompt_tokens: u32,
    pub saved_tokens: u32,
    /// What was saved is believed, not told by the engine.
    pub is_estimate: bool,
}

#[derive(Default)]
pub struct Conversations(HashMap<String, Conversation>);

#[derive(Clone, Debug, Default)]
struct Conversation {
    model: String,
    node: String,
    turns: u64,
    prompt_tokens: u64,
    saved_tokens: u64,
    is_estimate: bool,
    moved: u64,
    lost_s: f64,
    last_ms: u64,
}

impl Conversations {
    pub fn take(&mut self, turn: Turn, loss: Option<&Loss>, at_ms: u64) {
        if !self.0.contains_key(&turn.session) && self.0.len() >= CONVERSATIONS_MAX {
            let quiet = self.0.iter().min_by_key(|(_, conversation)| conversation.last_ms).map(|(key, _)| key.clone());
            quiet.iter().for_each(|key| drop(self.0.remove(key)));
        }
        let conversation = self.0.entry(turn.session).or_default();
        conversation.model = turn.model;
        conversation.node = turn.node;
        conversation.turns += 1;
        conversation.prompt_tokens += u64::from(turn.prompt_tokens);
        conversation.saved_tokens += u64::from(turn.saved_tokens);
        conversation.is_estimate |= turn.is_estimate && turn.saved_tokens > 0;
        conversation.moved += u64::from(loss.is_some());
        conversation.lost_s += loss.and_then(|loss| loss.seconds).unwrap_or(0.0);
        conversation.last_ms = at_ms;
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The latest first.
    pub fn to_json(&self) -> Value {
        let mut latest: Vec<(&String, &Conversation)> = self.0.iter().collect();
        latest.sort_by_key(|(key, conversation)| (std::cmp::Reverse(conversation.last_ms), *key));
        latest.into_iter().take(SHOWN_MAX).map(|(key, conversation)| conversation.to_json(key)).collect()
    }
}

impl Conversation {
    fn to_json(&self, key: &str) -> Value {
        json!({
            "session": key,
            "model": self.model,
            "node": self.node,
            "turns": self.turns,
            "prompt_tokens": self.prompt_tokens,
            "saved_tokens": self.saved_tokens,
            "saved_is_estimate": self.is_estimate,
            "moved": self.moved,
            "lost_s_estimated": self.lost_s,
            "last_ms": self.last_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quiet_make_room_and_turns_add_up() {
        let mut conversations = Conversations::default();
        for n in 0..2000u64 {
            let turn = Turn { session: (n % 700).to_string(), saved_tokens: 5, ..Turn::default() };
            conversations.take(turn, None, n);
            assert!(conversations.len() <= CONVERSATIONS_MAX);
        }
        let told = conversations.to_json();
        assert_eq!(told.as_array().map(Vec::len), Some(SHOWN_MAX));
        assert_eq!((&told[0]["session"], &told[0]["last_ms"]), (&json!("599"), &json!(1999)));
        let loss = Loss { seconds: Some(2.0), ..Loss::default() };
        conversations.take(Turn { session: "599".into(), ..Turn::default() }, Some(&loss), 3000);
        let told = &conversations.to_json()[0];
        assert_eq!((&told["moved"], &told["lost_s_estimated"]), (&json!(1), &json!(2.0)));
    }
}
