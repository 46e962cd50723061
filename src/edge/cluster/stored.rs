//! Pins as they stand in Redis: one short text a key, that people can read with its own tools.
//!
//! All keys under which one prompt may be found have the same hash tag, the beginning of the conversation, so that
//! one call finds them in a cluster, too.

use crate::routing::elsewhere::Turn;
use crate::routing::session::{Candidates, SharedPin};

/// `PREFIX:pin:{ROOT}:KEY`
pub fn key(prefix: &str, root: u64, key: u64) -> String {
    format!("{prefix}:pin:{{{root:016x}}}:{key:016x}")
}

/// The keys of a pin, and what stands there.
pub fn entries(prefix: &str, turn: &Turn, wall_ms: u64) -> impl Iterator<Item = (String, String)> {
    let SharedPin { key: end, root, previous, turns } = turn.pin;
    let value = move |previous: u64| format!("{:016x} {turns} {wall_ms} {previous:x}", turn.node);
    let end = (key(prefix, root, end), value(previous));
    let named = turn.named.map(|named| (key(prefix, root, named), value(0)));
    [Some(end), named].into_iter().flatten()
}

/// The key of the turn before, which is rarely gone on from once more.
pub fn before(prefix: &str, turn: &Turn) -> Option<String> {
    let SharedPin { key: end, root, previous, .. } = turn.pin;
    (previous != 0 && previous != end).then(|| key(prefix, root, previous))
}

/// Where to look for a prompt, in that order.
pub fn places(wanted: &Candidates) -> Vec<(u64, u64)> {
    let response = wanted.response.map(|response| (response, response));
    response.into_iter().chain(wanted.keys.iter().map(|key| (wanted.root, *key))).collect()
}

/// What stands at a key, and when that was, in milliseconds since 1970; `None`: it is none of ours.
pub fn read(root: u64, key: u64, text: &str) -> Option<(Turn, u64)> {
    let mut words = text.split(' ');
    let node = u64::from_str_radix(words.next()?, 16).ok()?;
    let turns = words.next()?.parse().ok()?;
    let at_ms = words.next()?.parse().ok()?;
    let previous = u64::from_str_radix(words.next()?, 16).ok()?;
    Some((Turn { pin: SharedPin { key, root, previous, turns }, named: None, node, held: None }, at_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_is_read() {
        let pin = SharedPin { key: 0xab, root: 0xcd, previous: 0xef, turns: 3 };
        let turn = Turn { pin, named: Some(0x12), node: 0x34, held: None };
        let entries: Vec<_> = entries("w", &turn, 5678).collect();
        assert_eq!(entries[0].0, "w:pin:{00000000000000cd}:00000000000000ab");
        assert_eq!(entries[0].1, "0000000000000034 3 5678 ef");
        assert_eq!(
            entries[1],
            ("w:pin:{00000000000000cd}:0000000000000012".into(), "0000000000000034 3 5678 0".into())
        );
        assert_eq!(before("w", &turn), Some("w:pin:{00000000000000cd}:00000000000000ef".into()));
        let first = Turn { pin: SharedPin { previous: 0, ..pin }, ..turn.clone() };
        assert_eq!(before("w", &first), None);
        assert_eq!(read(0xcd, 0xab, &entries[0].1), Some((Turn { named: None, ..turn }, 5678)));
        for other in ["", "x", "1 2 3", "zz 1 2 3", "1 -2 3 4"] {
            assert_eq!(read(1, 2, other), None, "{other:?}");
        }
    }
}
