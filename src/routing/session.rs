//! Which upstream served a conversation last.
//!
//! Turn N+1 repeats the messages of turn N, so its chain contains the link that ended turn N: a pin
//! is kept under that link and found by looking from the longest to the shortest. Branches need no
//! care, since each end has its own pin. A name that the client gave (affinity header,
//! `prompt_cache_key`) is a second way to the pin, trusted only while the conversation begins as it
//! did when the name was first seen. A shared system prompt alone never leads to a pin.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::aged::Aged;
use super::ask::Ask;
use super::chain::mix;
use super::fleet::UpstreamId;
use super::moment::Moment;
use super::name;

/// The memory that a conversation was last served by an upstream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pin {
    pub upstream: UpstreamId,
    /// When the first byte of the latest turn came.
    pub at: Moment,
    /// When that turn's answer had ended; before that its first byte.
    pub rests_since: Moment,
    pub turns: u32,
    /// Answers in its prompt; `NOT_COUNTED` where only others, or a run before, have seen it.
    answers: u32,
    /// Root link of the conversation: a name is believed only if this agrees.
    root: u64,
    /// Key of the pin of the turn before.
    previous: u64,
    /// A later turn has continued from here.
    continued: bool,
}

impl Pin {
    /// More than one answer has come to the conversation since: others have served it.
    pub fn is_overtaken(&self, ask: &Ask) -> bool {
        ask.chain.answers > self.answers.saturating_add(1)
    }
}

const NOT_COUNTED: u32 = u32::MAX;

/// A pin without its run: its age instead of its moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinRecord {
    key: u64,
    pub upstream: UpstreamId,
    age_ms: u64,
    turns: u32,
    root: u64,
    previous: u64,
    continued: bool,
}

/// A pin as replicas tell each other of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedPin {
    pub key: u64,
    pub root: u64,
    pub previous: u64,
    pub turns: u32,
}

/// Where others may keep what is not known here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidates {
    pub root: u64,
    /// The surest first.
    pub keys: Vec<u64>,
    /// Of a stored response, whose maker must be found.
    pub response: Option<u64>,
}

pub struct Sessions {
    pins: Aged<Pin>,
    /// How often anything was remembered.
    written: u64,
    ttl: Duration,
}

/// Pins kept for each session of `max_sessions`: its latest end, the end before (a turn is often
/// asked again or edited), and its name.
const PINS_PER_SESSION: usize = 3;

/// Ends of a prompt under which others are asked for its pin. The one before is a few ends back.
const CANDIDATES_MAX: usize = 16;

/// Clocks of replicas differ by no more than this; of pins closer in time the one with more turns is the later.
const CLOCKS_AGREE: Duration = Duration::from_secs(1);

impl Sessions {
    pub fn new(max_sessions: usize, ttl: Duration) -> Sessions {
        Sessions { pins: Aged::new(max_sessions.saturating_mul(PINS_PER_SESSION)), written: 0, ttl }
    }

    /// Other limits hold from now on; pins for which there is room are kept.
    pub fn limit(&mut self, max_sessions: usize, ttl: Duration) {
        self.pins.limit(max_sessions.saturating_mul(PINS_PER_SESSION));
        self.ttl = ttl;
    }

    /// The live pin of the conversation that `ask` continues, if any.
    pub fn find(&self, ask: &Ask, now: Moment) -> Option<Pin> {
        self.find_keyed(ask, now).map(|(_, pin)| pin)
    }

    /// Where the conversation that `ask` continues was served last, be it that this pin has expired and is only
    /// not forgotten yet.
    pub fn last_served(&self, ask: &Ask) -> Option<UpstreamId> {
        let domain = domain(ask);
        let root = ask.chain.root()?.within(domain);
        let kept = |key: u64| self.pins.get(key);
        let named = name_key(ask, domain).and_then(kept).filter(|pin| pin.root == root);
        let ends = ask.chain.links.iter().rev().filter(|link| link.ends_message);
        named.or_else(|| ends.map(|link| link.within(domain)).find_map(kept)).map(|pin| pin.upstream)
    }

    /// Remembers that `upstream` began to answer `ask`; the pin that the conversation had before.
    pub fn pin(&mut self, ask: &Ask, upstream: UpstreamId, now: Moment) -> Option<Pin> {
        let (end, root) = (ask.chain.end()?, ask.chain.root()?);
        let domain = domain(ask);
        let (end_key, root) = (end.within(domain), root.within(domain));
        self.written += 1;
        let before = self.find_keyed(ask, now);
        let previous = before.map_or(0, |(key, _)| key);
        if previous != 0 && previous != end_key {
            self.continue_from(previous);
        }
        let turns = before.map_or(1, |(_, pin)| pin.turns.saturating_add(1));
        let answers = ask.chain.answers;
        let pin = Pin { upstream, at: now, rests_since: now, turns, answers, root, previous, continued: false };
        self.pins.insert(end_key, pin);
        if let Some(named) = name_key(ask, domain)
            && self.live(named, now).is_none_or(|named| named.root == root)
        {
            self.pins.insert(named, Pin { previous: 0, ..pin });
        }
        before.map(|(_, pin)| pin)
    }

    /// The answer to a turn is over, and the conversation rests.
    pub fn rests(&mut self, end: u64, now: Moment) {
        if let Some(pin) = self.pins.remove(end) {
            self.pins.insert(end, Pin { rests_since: now, ..pin });
        }
    }

    /// Remembers the `context` that an answer handed out: a later prompt which begins with it goes on
    /// from here. Its hash is that of the link such a prompt begins with.
    pub fn pin_context(&mut self, ask: &Ask, context: u64, upstream: UpstreamId, now: Moment) -> SharedPin {
        self.pin_alone(mix(domain(ask), context), upstream, now)
    }

    /// Remembers who made a response that may be stored there: only the maker can go on from it.
    pub fn pin_response(&mut self, ask: &Ask, response: u64, upstream: UpstreamId, now: Moment) -> SharedPin {
        self.pin_alone(response_key(ask, response), upstream, now)
    }

    fn pin_alone(&mut self, key: u64, upstream: UpstreamId, now: Moment) -> SharedPin {
        self.written += 1;
        let (at, answers) = (now, NOT_COUNTED);
        let pin = Pin { upstream, at, rests_since: at, turns: 1, answers, root: key, previous: 0, continued: false };
        self.pins.insert(key, pin);
        SharedPin { key, root: key, previous: 0, turns: 1 }
    }

    /// Who made the response that `ask` goes on from, if that is remembered.
    pub fn maker(&self, ask: &Ask, now: Moment) -> Option<UpstreamId> {
        self.live(response_key(ask, ask.previous_response?), now).map(|pin| pin.upstream)
    }

    /// Counts what was remembered: the same number, the same pins.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The live pins, the latest `max` at most, those of the older generation first.
    pub fn records(&self, now: Moment, max: usize) -> Vec<PinRecord> {
        let live = self.pins.iter().filter(|(_, pin)| now.since(pin.at) < self.ttl);
        let record = |(key, pin): (u64, &Pin)| PinRecord {
            key,
            upstream: pin.upstream,
            age_ms: now.since(pin.at).as_millis() as u64,
            turns: pin.turns,
            root: pin.root,
            previous: pin.previous,
            continued: pin.continued,
        };
        live.skip(self.pins.len().saturating_sub(max)).map(record).collect()
    }

    /// Remembers a pin of `away` ago for that upstream; false if it has expired, or a younger one is known.
    pub fn recall(&mut self, record: &PinRecord, upstream: UpstreamId, away: Duration, now: Moment) -> bool {
        let at = now.before(Duration::from_millis(record.age_ms).saturating_add(away));
        if now.since(at) >= self.ttl || self.pins.get(record.key).is_some_and(|pin| pin.at >= at) {
            return false;
        }
        let PinRecord { key, turns, root, previous, continued, .. } = *record;
        let answers = NOT_COUNTED;
        self.pins.insert(key, Pin { upstream, at, rests_since: at, turns, answers, root, previous, continued });
        self.written += 1;
        true
    }

    /// The pin of the turn that `ask` is, as others are told of it, and its second key.
    pub fn shared(&self, ask: &Ask) -> Option<(SharedPin, Option<u64>)> {
        let domain = domain(ask);
        let key = ask.chain.end()?.within(domain);
        let pin = self.pins.get(key)?;
        let named = name_key(ask, domain).filter(|key| self.pins.get(*key).is_some_and(|named| named.root == pin.root));
        Some((SharedPin { key, root: pin.root, previous: pin.previous, turns: pin.turns }, named))
    }

    /// Where others may know more of the conversation of `ask`: if it goes on from a turn of which nothing is
    /// known here, or nothing since `sure_since`.
    pub fn candidates(&self, ask: &Ask, sure_since: Moment, now: Moment) -> Option<Candidates> {
        let domain = domain(ask);
        let root = ask.chain.root()?.within(domain);
        let response = ask.previous_response.map(|response| response_key(ask, response));
        let response = response.filter(|key| self.live(*key, now).is_none());
        let is_sure = self.find(ask, now).is_some_and(|pin| pin.at >= sure_since);
        let first = (ask.chain.root as usize).min(ask.chain.links.len().saturating_sub(1));
        let ends = || ask.chain.links.iter().skip(first).rev().filter(|link| link.ends_message);
        let goes_on = ends().nth(1).is_some();
        let ends = ends().map(|link| link.within(domain)).take(CANDIDATES_MAX);
        let keys: Vec<u64> =
            if goes_on && !is_sure { name_key(ask, domain).into_iter().chain(ends).collect() } else { Vec::new() };
        (response.is_some() || !keys.is_empty()).then_some(Candidates { root, keys, response })
    }

    /// A pin that another replica made at `at`; false: it has expired, or what is known here is later.
    pub fn learn(&mut self, told: &SharedPin, upstream: UpstreamId, at: Moment, now: Moment) -> bool {
        let SharedPin { key, root, previous, turns } = *told;
        if now.since(at) >= self.ttl {
            return false;
        }
        if let Some(known) = self.live(key, now) {
            let later = match () {
                _ if at > known.at + CLOCKS_AGREE => true,
                _ if known.at > at + CLOCKS_AGREE => false,
                _ => (turns, at) > (known.turns, known.at),
            };
            if known.root != root || !later {
                return false;
            }
        }
        if previous != 0 && previous != key {
            self.continue_from(previous);
        }
        let answers = NOT_COUNTED;
        self.pins.insert(key, Pin { upstream, at, rests_since: at, turns, answers, root, previous, continued: false });
        self.written += 1;
        true
    }

    pub fn len(&self) -> usize {
        self.pins.len()
    }

    pub fn is_empty(&self) -> bool {
        self.pins.is_empty()
    }

    pub fn max_pins(&self) -> usize {
        self.pins.max_entries()
    }

    fn find_keyed(&self, ask: &Ask, now: Moment) -> Option<(u64, Pin)> {
        let domain = domain(ask);
        let root = ask.chain.root()?.within(domain);
        let named = name_key(ask, domain).and_then(|key| Some((key, self.live(key, now)?)));
        named.filter(|(_, pin)| pin.root == root).or_else(|| {
            let ends = ask.chain.links.iter().rev().filter(|link| link.ends_message);
            ends.map(|link| link.within(domain)).find_map(|key| Some((key, self.live(key, now)?)))
        })
    }

    fn live(&self, key: u64, now: Moment) -> Option<Pin> {
        self.pins.get(key).filter(|pin| now.since(pin.at) < self.ttl).copied()
    }

    /// Marks a pin as continued, and forgets the one before it unless somebody came back to that.
    fn continue_from(&mut self, key: u64) {
        let Some(pin) = self.pins.remove(key) else { return };
        self.pins.insert(key, Pin { continued: true, ..pin });
        if let Some(before) = self.pins.remove(pin.previous)
            && !before.continued
        {
            self.pins.insert(pin.previous, before);
        }
    }
}

/// What separates one tenant's conversations with one model from all others.
pub fn domain(ask: &Ask) -> u64 {
    mix(ask.tenant, name::fold_hash(&ask.model))
}

/// Names the conversation the same way at every turn and on every replica: by its given name, else
/// by its beginning. `None`: no conversation.
pub fn conversation(ask: &Ask) -> Option<u64> {
    let domain = domain(ask);
    let root = ask.chain.root()?.within(domain);
    Some(name_key(ask, domain).unwrap_or(root))
}

/// Whatever the model: a stored response may be gone on from with another.
fn response_key(ask: &Ask, response: u64) -> u64 {
    const RESPONSE: u64 = 0x7265_7370;
    mix(mix(ask.tenant, RESPONSE), response)
}

fn name_key(ask: &Ask, domain: u64) -> Option<u64> {
    const NAMED: u64 = 0x6e61_6d65;
    ask.session_name.map(|name| mix(mix(domain, NAMED), name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::chain::{Chain, Link};

    const TTL: Duration = Duration::from_secs(60);
    const A: UpstreamId = UpstreamId(0);
    const B: UpstreamId = UpstreamId(1);

    /// A chat whose messages are the characters of `text`; the first is the system prompt.
    fn chat(text: &str) -> Ask {
        let mut hash = 0;
        let links = text.chars().map(|c| {
            hash = mix(hash, u64::from(c));
            Link { hash, tokens: 1, ends_message: true }
        });
        Ask { chain: Chain { links: links.collect(), root: 1, answers: 0 }, ..Ask::plain() }
    }

    fn at(secs: u64) -> Moment {
        Moment::from_secs(secs)
    }

    #[track_caller]
    fn check(sessions: &Sessions, ask: &Ask, secs: u64, expected: Option<UpstreamId>) {
        assert_eq!(sessions.find(ask, at(secs)).map(|pin| pin.upstream), expected);
    }

    #[test]
    fn the_next_turn_finds_the_pin_and_a_shared_system_prompt_does_not() {
        let mut sessions = Sessions::new(100, TTL);
        sessions.pin(&chat("su"), A, at(0));
        check(&sessions, &chat("suav"), 1, Some(A));
        check(&sessions, &chat("sx"), 1, None);
        check(&sessions, &chat("xu"), 1, None);
        let other_model = Ask { model: "other".into(), ..chat("suav") };
        check(&sessions, &other_model, 1, None);
        let other_tenant = Ask { tenant: 1, ..chat("suav") };
        check(&sessions, &other_tenant, 1, None);
    }

    #[test]
    fn bal_09_pins_expire_and_slide() {
        let mut sessions = Sessions::new(100, TTL);
        sessions.pin(&chat("su"), A, at(0));
        check(&sessions, &chat("suav"), 59, Some(A));
        check(&sessions, &chat("suav"), 60, None);
        assert_eq!(sessions.last_served(&chat("suav")), Some(A), "expired, and still known");
        assert_eq!(sessions.last_served(&chat("xu")), None);
        sessions.pin(&chat("suav"), A, at(59));
        check(&sessions, &chat("suavbw"), 100, Some(A));
    }

    #[test]
    fn branches_have_pins_of_their_own() {
        let mut sessions = Sessions::new(100, TTL);
        sessions.pin(&chat("su"), A, at(0));
        sessions.pin(&chat("suav"), A, at(1));
        sessions.pin(&chat("suaw"), B, at(2));
        check(&sessions, &chat("suavbx"), 3, Some(A));
        check(&sessions, &chat("suawbx"), 3, Some(B));
        assert_eq!(sessions.find(&chat("suawbx"), at(3)).map(|pin| pin.turns), Some(2));
    }

    #[test]
    fn a_turn_asked_again_is_the_same_session() {
        let mut sessions = Sessions::new(100, TTL);
        for turn in ["su", "suav", "suavbw"] {
            sessions.pin(&chat(turn), A, at(0));
        }
        check(&sessions, &chat("suavbw"), 1, Some(A));
        check(&sessions, &chat("suavbz"), 1, Some(A));
        assert_eq!(sessions.len(), 2, "ends before the last two are forgotten");
    }

    #[test]
    fn a_name_wins_only_while_the_beginning_agrees() {
        let mut sessions = Sessions::new(100, TTL);
        let named = |text| Ask { session_name: Some(42), ..chat(text) };
        sessions.pin(&named("su"), A, at(0));
        check(&sessions, &named("suXv"), 1, Some(A));
        check(&sessions, &named("tt"), 1, None);
        sessions.pin(&named("tt"), B, at(1));
        check(&sessions, &named("suavbw"), 2, Some(A));
    }

    #[test]
    fn another_run_takes_the_pins_over_with_their_ages() {
        let mut sessions = Sessions::new(100, TTL);
        sessions.pin(&chat("su"), A, at(100));
        sessions.pin(&chat("ty"), A, at(140));
        let records = sessions.records(at(150), 100);
        assert_eq!(records.len(), 2);
        assert_eq!(sessions.records(at(165), 100).len(), 1, "expired ones are left out");

        let mut next = Sessions::new(100, TTL);
        let (away, now) = (Duration::from_secs(5), at(1000));
        next.pin(&chat("ty"), A, at(999));
        let taken = records.iter().filter(|record| next.recall(record, B, away, now)).count();

        assert_eq!(taken, 1, "what is younger stays");
        check(&next, &chat("suav"), 1000, Some(B));
        check(&next, &chat("suav"), 1004, Some(B));
        check(&next, &chat("suav"), 1005, None);
        check(&next, &chat("tyav"), 1000, Some(A));
        let late = Sessions::new(100, TTL).recall(&records[0], B, TTL, now);
        assert!(!late);
    }

    #[test]
    fn the_bound_holds() {
        let mut sessions = Sessions::new(10, TTL);
        for n in 0..1000u32 {
            let letters: String = [char::from_u32(0x4e00 + n).unwrap_or('x'), 'u'].iter().collect();
            sessions.pin(&chat(&letters), A, at(0));
            assert!(sessions.len() <= sessions.max_pins());
        }
    }
}
