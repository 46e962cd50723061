//! One message while it is read.
//!
//! A `Turn` gathers what the message says in whatever order it comes, adds a step for each full piece of
//! its texts and one for its end, and stamps them with role and images when the message is over. It
//! keeps hashes and sizes, never the text.

use serde::de;

use super::digest::Digest;
use super::piece;
use super::size::Size;
use super::steps::{Kind, Step, Steps};
use crate::routing::chain::{PIECE_CHARS, hash_text, mix};

/// Claude Code puts a line that begins so, different in every request, before its system prompt.
const BILLING_LINE: &str = "x-anthropic-billing-header:";

/// Images and other parts that are no text, in order. Their place among the texts does not enter,
/// because Ollama's form of a message does not tell it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attachments {
    pub hash: u64,
    pub size: Size,
}

impl Attachments {
    /// An image by its base64 bytes, with or without a `data:` head, or by its address.
    pub fn image(&mut self, source: u64) {
        self.hash = mix(self.hash, source);
        self.size.images += 1;
    }

    pub fn other(&mut self, hash: u64, chars: u64) {
        self.hash = mix(self.hash, mix(Kind::Attachment as u64, hash));
        self.size.chars += chars;
    }
}

/// Who speaks, as far as it matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Role {
    hash: u64,
    pub is_user: bool,
    pub is_system: bool,
    pub is_assistant: bool,
}

impl Role {
    pub fn of(name: &str) -> Role {
        Role {
            hash: hash_text(name),
            is_user: name == "user",
            is_system: matches!(name, "system" | "developer"),
            is_assistant: matches!(name, "assistant" | "function_call"),
        }
    }
}

/// What a message says besides role and content.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extras {
    pub tool_calls: Digest,
    pub tool_call_id: u64,
    /// The tool that answers, or the speaker.
    pub name: u64,
}

impl Extras {
    fn hash(self) -> u64 {
        mix(mix(self.tool_calls.hash, self.tool_call_id), self.name)
    }
}

/// One message while it is read.
pub(super) struct Turn<'a> {
    steps: &'a mut Steps,
    from: usize,
    /// What came since the last full piece.
    tail: u64,
    tail_size: Size,
    /// Whether a billing line may still come: nothing has been said before it.
    at_beginning: bool,
    /// The billing line that was left out: its hash and its characters.
    billing: Option<(u64, u64)>,
    pub attachments: Attachments,
}

impl<'a> Turn<'a> {
    /// A message whose steps are added to `steps`; `first` if no other message precedes it.
    pub fn new(steps: &'a mut Steps, first: bool) -> Turn<'a> {
        let from = steps.len();
        Turn {
            steps,
            from,
            tail: 0,
            tail_size: Size::default(),
            at_beginning: first,
            billing: None,
            attachments: Attachments::default(),
        }
    }

    /// Counts in a part of the message; an error if there are too many.
    pub fn admit_part<E: de::Error>(&mut self) -> Result<(), E> {
        self.steps.admit()
    }

    /// A text, or a text part, of the message. An empty one says nothing.
    pub fn text(&mut self, text: &str) {
        let mut rest = self.after_billing_line(text);
        if rest.is_empty() {
            return;
        }
        while let Some((piece, after)) = piece::split(rest) {
            let hash = mix(self.tail, hash_text(piece));
            let mut size = std::mem::take(&mut self.tail_size);
            size.chars += PIECE_CHARS as u64;
            self.steps.push(Step { hash, size, ends_message: false });
            self.tail = 0;
            rest = after;
        }
        self.tail = mix(mix(self.tail, hash_text(rest)), Kind::Text as u64);
        self.tail_size.chars += rest.chars().count() as u64;
    }

    /// Ends the message with what may have been told before or after its content.
    pub fn close(self, role: Role, extras: Extras) {
        let mut head = mix(mix(Kind::Message as u64, role.hash), self.attachments.hash);
        let mut size = self.tail_size;
        size += self.attachments.size;
        size += Size { chars: extras.tool_calls.chars, messages: 1, ..Size::default() };
        // Only a system prompt has a billing line; anybody else's words are content.
        if let Some((line, chars)) = self.billing.filter(|_| !role.is_system) {
            head = mix(head, line);
            size.chars += chars;
        }
        self.steps.push(Step { hash: mix(self.tail, extras.hash()), size, ends_message: true });
        self.steps.stamp(self.from, head);
    }

    /// Takes back what the message said.
    pub fn abandon(self) {
        self.steps.truncate(self.from);
    }

    fn after_billing_line<'t>(&mut self, text: &'t str) -> &'t str {
        if !std::mem::replace(&mut self.at_beginning, false) || !text.starts_with(BILLING_LINE) {
            return text;
        }
        let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
        self.billing = Some((hash_text(line), line.chars().count() as u64));
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(role: &str, texts: &[&str]) -> Vec<Step> {
        let mut steps = Steps::default();
        let mut turn = Turn::new(&mut steps, true);
        for text in texts {
            turn.text(text);
        }
        turn.close(Role::of(role), Extras::default());
        steps.into_iter().collect()
    }

    #[test]
    fn a_long_text_has_a_step_for_each_full_piece() {
        let long = "x".repeat(2 * PIECE_CHARS + 7);
        let steps = steps("user", &[&long]);
        assert_eq!(steps.iter().map(|s| s.ends_message).collect::<Vec<_>>(), [false, false, true]);
        assert_eq!(steps.iter().map(|s| s.size.chars).collect::<Vec<_>>(), [1024, 1024, 7]);
    }

    #[test]
    fn what_precedes_a_piece_is_in_its_step() {
        let long = "x".repeat(PIECE_CHARS);
        assert_ne!(steps("user", &["a", &long])[0].hash, steps("user", &["b", &long])[0].hash);
        assert_ne!(steps("user", &[&long])[0].hash, steps("system", &[&long])[0].hash);
        assert_eq!(steps("user", &[&long, "a"])[0].hash, steps("user", &[&long, "b"])[0].hash);
    }

    #[test]
    fn empty_texts_say_nothing_and_borders_count() {
        assert_eq!(steps("user", &["", "a", ""]), steps("user", &["a"]));
        assert_ne!(steps("user", &["a", "b"]), steps("user", &["ab"]));
    }

    #[test]
    fn the_billing_line_is_left_out_of_a_system_text_only() {
        let (one, two) =
            ("x-anthropic-billing-header: cch=1;\nBe brief.", "x-anthropic-billing-header: cch=22;\nBe brief.");
        assert_eq!(steps("system", &[one]), steps("system", &["Be brief."]));
        assert_eq!(steps("system", &[one]), steps("system", &[two]));
        assert_eq!(
            steps("system", &["x-anthropic-billing-header: cch=3;", "Be brief."]),
            steps("system", &["Be brief."])
        );
        assert_ne!(steps("user", &[one]), steps("user", &[two]));
        assert_ne!(steps("system", &["Be brief.", one]), steps("system", &["Be brief.", two]));
    }
}
