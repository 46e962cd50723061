//! What replicas publish for each other: many small things in one message.
//!
//! A byte says which kind of message it is; another number is another meaning, and is left alone. What follows is
//! Protocol Buffers: whoever is older passes over fields that it does not know, so that a newer replica can say more
//! without that the others go deaf. Fields are added, never changed, and each time `MINOR` goes up by one. Ages are
//! told and no moments, and a message says when it was sent by the wall clock, so that one which was held up somewhere
//! is not taken for news.

use prost::Message as _;

use crate::routing::elsewhere::{Held, Loads, ModelLoad, NodeLoad, Turn};
use crate::routing::moment::Moment;
use crate::routing::session::SharedPin;

/// Of what the fields mean and of what hashes are of.
pub const MAJOR: u8 = 3;

/// Of which fields there are.
pub const MINOR: u32 = 0;

/// What is longer is nobody's of ours.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Of a replica's name, for people.
const NAME_CHARS_MAX: usize = 64;

/// What a replica says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Word {
    pub replica: u64,
    /// What people call it.
    pub name: String,
    /// Of which upstreams it tells: a hash of the names that are configured.
    pub fleet: u64,
    pub minor: u32,
    pub in_flight: u32,
    sent_ms: u64,
    /// `None`: they are as they were.
    pub loads: Option<Loads>,
    turns: Vec<(u32, Turn)>,
}

/// Who speaks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Speaker {
    pub replica: u64,
    pub name: String,
    pub fleet: u64,
    pub in_flight: u32,
}

/// Why a message is not for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// Of another kind: neither hears the other.
    Other(u8),
    Broken,
}

impl Word {
    /// `now` is the moment of `wall_ms`.
    pub fn new(from: Speaker, loads: Option<Loads>, turns: &[(Moment, Turn)], now: Moment, wall_ms: u64) -> Word {
        let age = |at: Moment| u32::try_from(now.since(at).as_millis()).unwrap_or(u32::MAX);
        let turns = turns.iter().map(|(at, turn)| (age(*at), turn.clone())).collect();
        let Speaker { replica, name, fleet, in_flight } = from;
        Word { replica, name, fleet, minor: MINOR, in_flight, sent_ms: wall_ms, loads, turns }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let form = Form {
            minor: self.minor,
            replica: self.replica,
            fleet: self.fleet,
            sent_ms: self.sent_ms,
            name: self.name.clone(),
            in_flight: self.in_flight,
            loads: self.loads.as_ref().map(LoadsForm::of),
            turns: self.turns.iter().map(|(age_ms, turn)| TurnForm::of(*age_ms, turn)).collect(),
        };
        let mut bytes = vec![MAJOR];
        bytes.extend(form.encode_to_vec());
        bytes
    }

    pub fn of(bytes: &[u8]) -> Result<Word, Unread> {
        let (major, rest) = bytes.split_first().ok_or(Unread::Broken)?;
        if *major != MAJOR {
            return Err(Unread::Other(*major));
        }
        if rest.len() > MESSAGE_BYTES_MAX {
            return Err(Unread::Broken);
        }
        let form = Form::decode(rest).map_err(|_| Unread::Broken)?;
        // It is shown to people.
        let shown = form.name.chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX);
        Ok(Word {
            replica: form.replica,
            name: shown.collect(),
            fleet: form.fleet,
            minor: form.minor,
            in_flight: form.in_flight,
            sent_ms: form.sent_ms,
            loads: form.loads.map(LoadsForm::read),
            turns: form.turns.into_iter().map(|turn| (turn.age_ms, turn.read())).collect(),
        })
    }

    /// How long it was under way, as far as clocks agree.
    pub fn under_way_ms(&self, wall_ms: u64) -> u64 {
        wall_ms.saturating_sub(self.sent_ms)
    }

    /// The turns, and how long ago each was when it is `wall_ms`.
    pub fn turns(&self, wall_ms: u64) -> impl Iterator<Item = (u64, &Turn)> {
        let under_way = self.under_way_ms(wall_ms);
        self.turns.iter().map(move |(age, turn)| (u64::from(*age).saturating_add(under_way), turn))
    }
}

/// Numbers of fields are for ever: what is given up leaves its number unused.
#[derive(Clone, PartialEq, prost::Message)]
struct Form {
    #[prost(uint32, tag = "1")]
    minor: u32,
    #[prost(fixed64, tag = "2")]
    replica: u64,
    #[prost(fixed64, tag = "3")]
    fleet: u64,
    #[prost(uint64, tag = "4")]
    sent_ms: u64,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(uint32, tag = "6")]
    in_flight: u32,
    #[prost(message, optional, tag = "7")]
    loads: Option<LoadsForm>,
    #[prost(message, repeated, tag = "8")]
    turns: Vec<TurnForm>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LoadsForm {
    #[prost(bool, tag = "1")]
    only_changes: bool,
    #[prost(message, repeated, tag = "2")]
    nodes: Vec<NodeForm>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct NodeForm {
    #[prost(fixed64, tag = "1")]
    node: u64,
    #[prost(bool, tag = "2")]
    broken: bool,
    #[prost(message, repeated, tag = "3")]
    models: Vec<ModelForm>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ModelForm {
    #[prost(fixed64, tag = "1")]
    model: u64,
    #[prost(uint32, tag = "2")]
    running: u32,
    #[prost(uint32, tag = "3")]
    waiting: u32,
    #[prost(bool, tag = "4")]
    broken: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TurnForm {
    #[prost(uint32, tag = "1")]
    age_ms: u32,
    #[prost(fixed64, tag = "2")]
    key: u64,
    #[prost(fixed64, tag = "3")]
    root: u64,
    #[prost(fixed64, tag = "4")]
    previous: u64,
    #[prost(uint32, tag = "5")]
    turns: u32,
    #[prost(fixed64, optional, tag = "6")]
    named: Option<u64>,
    #[prost(fixed64, tag = "7")]
    node: u64,
    #[prost(message, optional, tag = "8")]
    held: Option<HeldForm>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HeldForm {
    #[prost(fixed64, tag = "1")]
    model: u64,
    #[prost(uint32, tag = "2")]
    prompt_tokens: u32,
    #[prost(fixed64, repeated, tag = "3")]
    links: Vec<u64>,
    /// Up to each link.
    #[prost(uint32, repeated, tag = "4")]
    tokens: Vec<u32>,
}

impl LoadsForm {
    fn of(loads: &Loads) -> LoadsForm {
        let model = |load: &ModelLoad| {
            let ModelLoad { model, running, waiting, broken } = *load;
            ModelForm { model, running, waiting, broken }
        };
        let node = |load: &NodeLoad| NodeForm {
            node: load.node,
            broken: load.broken,
            models: load.models.iter().map(model).collect(),
        };
        LoadsForm { only_changes: loads.only_changes, nodes: loads.nodes.iter().map(node).collect() }
    }

    fn read(self) -> Loads {
        let model = |form: ModelForm| {
            let ModelForm { model, running, waiting, broken } = form;
            ModelLoad { model, running, waiting, broken }
        };
        let node = |form: NodeForm| {
            let NodeForm { node, broken, models } = form;
            NodeLoad { node, broken, models: models.into_iter().map(model).collect() }
        };
        Loads { only_changes: self.only_changes, nodes: self.nodes.into_iter().map(node).collect() }
    }
}

impl TurnForm {
    fn of(age_ms: u32, turn: &Turn) -> TurnForm {
        let Turn { pin: SharedPin { key, root, previous, turns }, named, node, held } = turn;
        let held = held.as_ref().map(|held| HeldForm {
            model: held.model,
            prompt_tokens: held.prompt_tokens,
            links: held.links.iter().map(|(link, _)| *link).collect(),
            tokens: held.links.iter().map(|(_, tokens)| *tokens).collect(),
        });
        let (key, root, previous, turns) = (*key, *root, *previous, *turns);
        TurnForm { age_ms, key, root, previous, turns, named: *named, node: *node, held }
    }

    fn read(self) -> Turn {
        let TurnForm { age_ms: _, key, root, previous, turns, named, node, held } = self;
        let held = held.map(|held| Held {
            model: held.model,
            prompt_tokens: held.prompt_tokens,
            links: held.links.into_iter().zip(held.tokens).collect(),
        });
        Turn { pin: SharedPin { key, root, previous, turns }, named, node, held }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn() -> Turn {
        let pin = SharedPin { key: 1, root: 2, previous: 3, turns: 4 };
        let links = vec![(9, 10), (u64::MAX, 300)];
        Turn { pin, named: Some(5), node: 6, held: Some(Held { model: 7, prompt_tokens: 8, links }) }
    }

    fn speaker() -> Speaker {
        Speaker { replica: 11, name: "gate-2".into(), fleet: 12, in_flight: 3 }
    }

    fn word() -> Word {
        let models = vec![ModelLoad { model: 2, running: 3, waiting: 4, broken: true }];
        let loads = Loads { only_changes: true, nodes: vec![NodeLoad { node: 1, broken: true, models }] };
        Word::new(speaker(), Some(loads), &[(Moment(1_000_000), turn())], Moment(1_500_000), 100_000)
    }

    #[test]
    fn what_was_sent_is_read_with_its_age() {
        let read = Word::of(&word().to_bytes()).expect("a word");
        assert_eq!(read, word());
        assert_eq!(read.turns(100_030).map(|(age, turn)| (age, turn.clone())).collect::<Vec<_>>(), [(530, turn())]);
        assert_eq!(read.turns(99_000).next().map(|(age, _)| age), Some(500), "a clock that is behind");
    }

    /// A turn of a later version, with one field more.
    #[derive(Clone, PartialEq, prost::Message)]
    struct LaterTurn {
        #[prost(fixed64, tag = "2")]
        key: u64,
        #[prost(string, tag = "900")]
        colour: String,
    }

    /// The message around it, of which some things are new as well.
    #[derive(Clone, PartialEq, prost::Message)]
    struct Later {
        #[prost(uint32, tag = "1")]
        minor: u32,
        #[prost(fixed64, tag = "2")]
        replica: u64,
        #[prost(message, repeated, tag = "8")]
        turns: Vec<LaterTurn>,
        #[prost(message, repeated, tag = "100")]
        more: Vec<LaterTurn>,
        #[prost(double, tag = "101")]
        warmth: f64,
    }

    #[test]
    fn a_later_version_is_understood_as_far_as_it_is_known() {
        let turn = LaterTurn { key: 1, colour: "warm".into() };
        let later = Later { minor: MINOR + 1, replica: 11, turns: vec![turn.clone()], more: vec![turn], warmth: 1.5 };
        let mut bytes = vec![MAJOR];
        bytes.extend(later.encode_to_vec());
        let read = Word::of(&bytes).expect("a word");
        assert_eq!((read.replica, read.minor, read.loads.is_none()), (11, MINOR + 1, true));
        assert_eq!(read.turns(0).map(|(_, turn)| turn.pin.key).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn another_kind_of_message_is_left_alone() {
        for major in [0, 1, 2, MAJOR + 1, u8::MAX] {
            assert_eq!(Word::of(&[major, 1, 2]), Err(Unread::Other(major)));
        }
        assert_eq!(Word::of(&[]), Err(Unread::Broken));
        assert_eq!(Word::of(&[MAJOR, 0xff]), Err(Unread::Broken));
    }

    #[test]
    fn names_are_short_and_move_no_cursor() {
        let name = format!("a\u{1b}[2J\n{}", "b".repeat(100));
        let word = Word::new(Speaker { name, ..speaker() }, None, &[], Moment(0), 0);
        let read = Word::of(&word.to_bytes()).expect("a word").name;
        assert!(read.starts_with("a[2Jbb") && read.chars().count() == NAME_CHARS_MAX, "{read:?}");
    }

    #[test]
    fn bytes_from_outside_never_end_the_process() {
        let good = word().to_bytes();
        for cut in 0..good.len() {
            let _ = Word::of(&good[..cut]);
        }
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut turned = good.clone();
                turned[at] ^= 1 << bit;
                let _ = Word::of(&turned);
            }
        }
    }
}
