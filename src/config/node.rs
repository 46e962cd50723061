//! A YAML text as a tree, before anything is known about its keys.
//!
//! Unlike `serde_yaml::Value` the tree keeps a key that is written twice, so that a duplicate is one
//! problem among the others instead of the end of reading. Keys are text; a key that is no scalar
//! becomes `?`, which no section knows. An alias is a copy, so a short text can mean an endless tree:
//! one of more than `NODES_MAX` is not read.

use std::cell::Cell;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};

use super::problem::Problem;

/// One value as written.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    Null,
    Bool(bool),
    Whole(i128),
    Real(f64),
    Text(String),
    List(Vec<Node>),
    /// In the order of the text, duplicates included.
    Map(Vec<(String, Node)>),
    /// A value behind a `!tag`; no key takes one.
    Tagged,
}

impl Node {
    /// What a message calls it.
    pub fn kind(&self) -> &'static str {
        match self {
            Node::Null => "nothing",
            Node::Bool(_) => "true or false",
            Node::Whole(_) | Node::Real(_) => "a number",
            Node::Text(_) => "text",
            Node::List(_) => "a list",
            Node::Map(_) => "a section with keys",
            Node::Tagged => "a value with a tag",
        }
    }

    /// The text of a scalar.
    pub fn scalar(&self) -> Option<String> {
        match self {
            Node::Bool(value) => Some(value.to_string()),
            Node::Whole(value) => Some(value.to_string()),
            Node::Real(value) => Some(value.to_string()),
            Node::Text(value) => Some(value.clone()),
            Node::Null | Node::List(_) | Node::Map(_) | Node::Tagged => None,
        }
    }
}

/// Most values of one text, what aliases copy included. The largest configuration has a hundred thousand.
const NODES_MAX: usize = 1 << 20;

/// A text counts as one value for each of these many bytes.
const NODE_BYTES: usize = 64;

/// The parser's own limit is half of this, but it looks for the end first, in time that grows with the
/// square of the depth.
const OPEN_MAX: usize = 256;

/// The tree of a text; an empty text is `Null`. A text that is no YAML is one problem.
pub fn parse(text: &str) -> Result<Node, Problem> {
    if let Some(line) = too_deep(text) {
        let what = format!("not YAML: more than {OPEN_MAX} brackets are open at once");
        return Err(Problem { path: String::new(), line: Some(line), what, hint: String::new() });
    }
    let left = Cell::new(NODES_MAX);
    AnyNode { left: &left }
        .deserialize(serde_yaml::Deserializer::from_str(text))
        .map_err(|error| syntax_problem(&error, text))
}

/// The line where too many brackets are open, wherever they stand: no text has so many without ends.
fn too_deep(text: &str) -> Option<usize> {
    let mut open = 0usize;
    let at = text.bytes().position(|byte| {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        open > OPEN_MAX
    })?;
    Some(text[..at].matches('\n').count() + 1)
}

fn syntax_problem(error: &serde_yaml::Error, text: &str) -> Problem {
    let mut what = error.to_string();
    let line = error.location().map(|at| {
        what = what.replacen(&format!(" at line {} column {}", at.line(), at.column()), "", 1);
        at.line().clamp(1, text.lines().count().max(1))
    });
    let tabbed = line.and_then(|line| text.lines().nth(line - 1)).is_some_and(|line| {
        let indent = line.len() - line.trim_start().len();
        line[..indent].contains('\t')
    });
    let hint = if tabbed { "indent with spaces, not tabs" } else { "" };
    Problem { path: String::new(), line, what: format!("not YAML: {what}"), hint: hint.into() }
}

/// Reads one value. `left` is how many more there may be.
#[derive(Clone, Copy)]
struct AnyNode<'a> {
    left: &'a Cell<usize>,
}

impl AnyNode<'_> {
    fn count<E: de::Error>(self, text_bytes: usize) -> Result<(), E> {
        let left = self.left.get().checked_sub(1 + text_bytes / NODE_BYTES);
        self.left.set(left.ok_or_else(|| E::custom(format_args!("more than {NODES_MAX} values; use fewer aliases")))?);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for AnyNode<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Node, D::Error> {
        self.count(0)?;
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AnyNode<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Whole(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Whole(value.into()))
    }

    fn visit_i128<E: de::Error>(self, value: i128) -> Result<Node, E> {
        Ok(Node::Whole(value))
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> Result<Node, E> {
        Ok(i128::try_from(value).map_or(Node::Real(value as f64), Node::Whole))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Real(value))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Node, E> {
        self.count(value.len())?;
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some((key, value)) = pairs.next_entry_seed(self, self)? {
            map.push((key.scalar().unwrap_or_else(|| "?".to_owned()), value));
        }
        Ok(Node::Map(map))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<Node, A::Error> {
        let (_, value) = tagged.variant::<String>()?;
        value.newtype_variant_seed(self)?;
        Ok(Node::Tagged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Node) {
        assert_eq!(parse(text).unwrap(), expected, "{text}");
    }

    #[test]
    fn values() {
        check("", Node::Null);
        check("# nothing but a comment\n", Node::Null);
        check("7", Node::Whole(7));
        check("-7", Node::Whole(-7));
        check("0.5", Node::Real(0.5));
        check("340282366920938463463374607431768211455", Node::Real(u128::MAX as f64));
        check("off", Node::Text("off".into()));
        check("!secret x", Node::Tagged);
        check("[1, ~]", Node::List(vec![Node::Whole(1), Node::Null]));
    }

    #[test]
    fn keys_are_kept_as_often_as_written() {
        let map = [("a", 1), ("a", 2), ("7", 3), ("?", 4)];
        let map = map.map(|(key, value)| (key.to_owned(), Node::Whole(value)));
        check("a: 1\na: 2\n7: 3\n[x]: 4", Node::Map(map.into()));
    }

    #[test]
    fn aliases_of_long_lists_and_texts_are_bounded() {
        let (list, many) = (vec!["x"; 10_000].join(","), vec!["*a"; 10_000].join(","));
        for long in [format!("[{list}]"), "x".repeat(1 << 20)] {
            let problem = parse(&format!("a: &a {long}\nb: [{many}]\n")).unwrap_err();
            assert!(problem.what.ends_with("more than 1048576 values; use fewer aliases"), "{}", problem.what);
        }
        assert!(parse(&format!("a: &a [{list}]\nb: [*a, *a]\n")).is_ok());
    }

    #[test]
    fn endless_brackets_are_refused_at_once() {
        let problem = parse(&format!("a: 1\nb: {}", "[".repeat(1 << 20))).unwrap_err();
        assert_eq!(problem.line, Some(2));
        assert_eq!(problem.what, "not YAML: more than 256 brackets are open at once");
        assert!(parse(&format!("a: {}1{}", "[".repeat(100), "]".repeat(100))).is_ok());
        assert!(parse(&format!("# {}\na: 1", "[x] ".repeat(1000))).is_ok());
    }

    #[test]
    fn a_syntax_error_has_its_line() {
        let problem = parse("listen:\n\t- address: x\n").unwrap_err();
        assert_eq!((problem.line, problem.hint.as_str()), (Some(2), "indent with spaces, not tabs"));
        let problem = parse("a: [1,\n").unwrap_err();
        assert_eq!((problem.line, problem.hint.as_str()), (Some(1), ""));
        assert!(parse("a: 1\n---\nb: 2\n").is_err());
    }
}
