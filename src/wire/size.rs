//! How large a prompt is, in tokens, by rule of thumb.
//!
//! A quarter of a token a character, four for the frame of a message, 150 an image. The sum is kept in
//! its raw units and divided once, so that the estimate of a whole never depends on how it was cut.

use std::ops::AddAssign;

const CHARS_PER_TOKEN: u64 = 4;
/// What a chat template writes around a message, in characters.
const CHARS_PER_MESSAGE: u64 = 16;
const TOKENS_PER_IMAGE: u64 = 150;

/// Raw amounts of a prompt or a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub chars: u64,
    pub messages: u64,
    pub images: u64,
    /// Characters of the tools' JSON, without white space.
    pub tool_chars: u64,
    /// Text that came as token ids.
    pub ids: u64,
}

impl Size {
    pub fn of_chars(chars: u64) -> Size {
        Size { chars, ..Size::default() }
    }

    pub fn tokens(self) -> u32 {
        let text = (self.chars + CHARS_PER_MESSAGE * self.messages) / CHARS_PER_TOKEN;
        let tools = self.tool_chars / CHARS_PER_TOKEN;
        u32::try_from(text + tools + self.ids + TOKENS_PER_IMAGE * self.images).unwrap_or(u32::MAX)
    }
}

impl AddAssign for Size {
    fn add_assign(&mut self, other: Size) {
        self.chars += other.chars;
        self.messages += other.messages;
        self.images += other.images;
        self.tool_chars += other.tool_chars;
        self.ids += other.ids;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(size: Size, tokens: u32) {
        assert_eq!(size.tokens(), tokens);
    }

    #[test]
    fn tokens_are_estimated_from_raw_amounts() {
        check(Size::default(), 0);
        check(Size { chars: 11, messages: 1, ..Size::default() }, 6);
        check(Size { chars: 4000, messages: 1, ..Size::default() }, 1004);
        check(Size { chars: 4, messages: 1, images: 1, ..Size::default() }, 155);
        check(Size { messages: 1, images: 2, ..Size::default() }, 304);
        check(Size { tool_chars: 7, ids: 5, ..Size::default() }, 6);
    }

    #[test]
    fn an_absurd_size_saturates() {
        check(Size::of_chars(1 << 60), u32::MAX);
    }
}
