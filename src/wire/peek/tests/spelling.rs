//! One JSON value, spelled in many ways.

use proptest::prelude::*;
use serde_json::Value;

/// A source of choices, used in turn and then again from the first.
#[derive(Clone, Debug)]
pub struct Whim {
    bytes: Vec<u8>,
    at: usize,
}

pub fn whim() -> impl Strategy<Value = Whim> {
    prop::collection::vec(any::<u8>(), 1..60).prop_map(|bytes| Whim { bytes, at: 0 })
}

impl Whim {
    /// The value as JSON with its keys, blanks and escapes at a whim.
    pub fn spell(&mut self, value: &Value) -> String {
        let text = match value {
            Value::String(text) => self.quote(text),
            Value::Array(items) => {
                let items: Vec<_> = items.iter().map(|item| self.spell(item)).collect();
                format!("[{}]", items.join(","))
            }
            Value::Object(fields) => {
                let mut left: Vec<_> = fields.iter().collect();
                let mut spelled = vec![];
                while !left.is_empty() {
                    let (key, value) = left.swap_remove(self.below(left.len()));
                    spelled.push(format!("{}{}:{}", self.quote(key), self.blank(), self.spell(value)));
                }
                format!("{{{}}}", spelled.join(","))
            }
            scalar => scalar.to_string(),
        };
        format!("{}{text}{}", self.blank(), self.blank())
    }

    fn quote(&mut self, text: &str) -> String {
        let escaped: String = text.chars().map(|c| self.escape(c)).collect();
        format!("\"{escaped}\"")
    }

    fn escape(&mut self, c: char) -> String {
        if self.below(5) == 0 {
            return c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect();
        }
        let quoted = Value::from(c.to_string()).to_string();
        quoted[1..quoted.len() - 1].to_string()
    }

    fn blank(&mut self) -> &'static str {
        ["", "", " ", "\n\t"][self.below(4)]
    }

    fn below(&mut self, n: usize) -> usize {
        self.at = (self.at + 1) % self.bytes.len();
        usize::from(self.bytes[self.at]) % n
    }
}
