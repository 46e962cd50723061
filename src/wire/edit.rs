//! Changes to a body that leave every other byte as it came (L9).

use std::borrow::Cow;
use std::ops::Range;

/// These bytes in place of those at `at`; an empty range inserts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    pub at: Range<usize>,
    pub bytes: Cow<'static, [u8]>,
}

impl Edit {
    pub fn replace(at: Range<usize>, bytes: impl Into<Cow<'static, [u8]>>) -> Edit {
        Edit { at, bytes: bytes.into() }
    }

    pub fn insert(at: usize, bytes: impl Into<Cow<'static, [u8]>>) -> Edit {
        Edit::replace(at..at, bytes)
    }
}

/// The body with all of these changes; `None` if one lies outside of it or two overlap.
pub fn edited(body: &[u8], mut edits: Vec<Edit>) -> Option<Vec<u8>> {
    edits.sort_by_key(|edit| edit.at.start);
    let added: usize = edits.iter().map(|edit| edit.bytes.len()).sum();
    let mut changed = Vec::with_capacity(body.len().saturating_add(added));
    let mut done = 0;
    for edit in &edits {
        changed.extend_from_slice(body.get(done..edit.at.start)?);
        changed.extend_from_slice(&edit.bytes);
        done = edit.at.end;
    }
    changed.extend_from_slice(body.get(done..)?);
    Some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(edits: &[(Range<usize>, &'static str)], expected: Option<&str>) {
        let edits = edits.iter().map(|(at, bytes)| Edit::replace(at.clone(), bytes.as_bytes())).collect();
        assert_eq!(edited(b"0123456789", edits).as_deref(), expected.map(str::as_bytes));
    }

    #[test]
    fn only_what_was_named_changes() {
        check(&[], Some("0123456789"));
        check(&[(3..5, "abc")], Some("012abc56789"));
        check(&[(9..10, ""), (0..0, "a"), (4..4, "b")], Some("a0123b45678"));
        check(&[(3..5, "a"), (5..6, "b")], Some("012ab6789"));
    }

    #[test]
    fn what_does_not_fit_changes_nothing() {
        check(&[(3..5, "a"), (4..6, "b")], None);
        check(&[(9..11, "a")], None);
        check(&[(11..11, "a")], None);
    }
}
