//! What other replicas of Warmgate tell of the same fleet, and what is told to them.
//!
//! Each replica decides by its own tables; what others tell is merged into these as hints. Turns that they
//! served become pins and prefixes, their requests count in the depths, and what they found broken is relied on
//! less, but never left out by hearsay. A replica that falls silent is forgotten. Nodes and models go by hashes of
//! their names, since ids mean nothing to others.

pub mod loads;
pub mod tempo;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

pub use loads::{Loads, LoadsLearnt, ModelLoad, NodeLoad, Telling};

use super::ask::Ask;
use super::chain::hash_text;
use super::fleet::{Fleet, HoldingId, UpstreamId};
use super::moment::Moment;
use super::session::{Candidates, SharedPin, domain};

/// More than one replica can have at a node; what is told beyond is no count.
const REQUESTS_MAX: u32 = 100_000;

/// A turn that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    pub pin: SharedPin,
    /// Under the name that the client gave, a second way to the pin.
    pub named: Option<u64>,
    /// The node that serves it.
    pub node: u64,
    /// What the node holds since; `None`: nothing more than before.
    pub held: Option<Held>,
}

/// A prompt that a node has read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub model: u64,
    pub prompt_tokens: u32,
    /// Some of its links, and the tokens up to each.
    pub links: Vec<(u64, u32)>,
}

impl Held {
    /// What is learnt of them after so long. Whoever hears as late as that hears nothing of how busy the nodes are: if it
    /// learnt what prompts have in common, all replicas would begin their conversations at the few nodes that had it
    /// first. So the first link, where a system text ends, is left out if others go on from it.
    fn links_learnt(&self, age: Duration) -> &[(u64, u32)] {
        let links = self.links.get(..LINKS_LEARNT_MAX).unwrap_or(&self.links);
        match links {
            [_, own @ ..] if age >= tempo::LIFE && !own.is_empty() => own,
            _ => links,
        }
    }
}

/// Requests of other replicas for one model on one node, or for all models there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Others {
    pub running: u32,
    pub waiting: u32,
    /// How many replicas have any there.
    pub replicas: u32,
    /// How many found it broken.
    pub broken: u32,
    /// Since when some have.
    pub broken_since: Moment,
}

impl Others {
    pub fn requests(&self) -> u32 {
        self.running.saturating_add(self.waiting)
    }

    /// Some found it broken, and it has shown nothing to the contrary since.
    pub fn doubt(&self, answered_at: Option<Moment>) -> bool {
        self.broken > 0 && answered_at.is_none_or(|at| at < self.broken_since)
    }

    fn add(&mut self, running: u32, waiting: u32, broken: bool, now: Moment) {
        self.running = self.running.saturating_add(running.min(REQUESTS_MAX));
        self.waiting = self.waiting.saturating_add(waiting.min(REQUESTS_MAX));
        self.replicas += u32::from(running > 0 || waiting > 0);
        if broken && self.broken == 0 {
            self.broken_since = now;
        }
        self.broken += u32::from(broken);
    }

    fn take(&mut self, running: u32, waiting: u32, broken: bool) {
        self.running = self.running.saturating_sub(running.min(REQUESTS_MAX));
        self.waiting = self.waiting.saturating_sub(waiting.min(REQUESTS_MAX));
        self.replicas = self.replicas.saturating_sub(u32::from(running > 0 || waiting > 0));
        self.broken = self.broken.saturating_sub(u32::from(broken));
    }
}

/// What is known of other replicas, and what they are to be told.
#[derive(Default)]
pub struct Elsewhere {
    /// Nothing is noted for others while this is off.
    pub tells: bool,
    told: VecDeque<(Moment, Turn)>,
    lost: u64,
    nodes: HashMap<u64, UpstreamId>,
    replicas: BTreeMap<u64, loads::Replica>,
}

/// Turns kept for others while they cannot be told: some minutes of a busy replica, about 15 MB.
pub const TOLD_MAX: usize = 1 << 16;

/// Replicas that are told apart; more count as none.
pub const REPLICAS_MAX: usize = 256;

/// Links of one prompt that are told: where its conversation begins, and its latest ends.
const LINKS_TOLD_MAX: usize = 8;

/// Links taken in of a turn, whatever others send.
const LINKS_LEARNT_MAX: usize = 64;

impl Elsewhere {
    pub(super) fn joined(&mut self, node: u64, id: UpstreamId) {
        self.nodes.insert(node, id);
    }

    pub(super) fn left(&mut self, node: u64, id: UpstreamId) {
        if self.nodes.get(&node) == Some(&id) {
            self.nodes.remove(&node);
        }
    }

    /// Turns that others have not been told of, and how many more there were that are forgotten.
    pub fn take_told(&mut self, max: usize) -> (Vec<(Moment, Turn)>, u64) {
        let count = self.told.len().min(max);
        (self.told.drain(..count).collect(), std::mem::take(&mut self.lost))
    }

    pub fn untold(&self) -> usize {
        self.told.len()
    }

    /// Others could not be told after all. What has come since is kept before these.
    pub fn give_back(&mut self, turns: Vec<(Moment, Turn)>) {
        for turn in turns.into_iter().rev() {
            if self.told.len() >= TOLD_MAX {
                self.lost += 1;
            } else {
                self.told.push_front(turn);
            }
        }
    }

    /// Other replicas that were heard of lately.
    pub fn replicas(&self) -> usize {
        self.replicas.len()
    }

    /// Of these, how many have a lower id.
    pub fn replicas_below(&self, id: u64) -> usize {
        self.replicas.range(..id).count()
    }

    fn tell(&mut self, turn: Turn, now: Moment) {
        if self.told.len() >= TOLD_MAX {
            self.told.pop_front();
            self.lost += 1;
        }
        self.told.push_back((now, turn));
    }
}

impl Fleet {
    /// A turn has its first byte: others are told, if anybody is.
    pub(super) fn tell_turn(&mut self, ask: &Ask, holding: HoldingId, now: Moment) {
        if !self.elsewhere.tells {
            return;
        }
        let Some((pin, named)) = self.sessions.shared(ask) else { return };
        let holding = self.holding(holding);
        let Some(upstream) = self.upstreams.get(holding.upstream) else { return };
        let held = Held {
            model: hash_text(&holding.name),
            prompt_tokens: ask.prompt_tokens,
            links: told_links(ask).collect(),
        };
        self.elsewhere.tell(Turn { pin, named, node: upstream.name_hash, held: Some(held) }, now);
    }

    /// An answer handed out a `context`: see `Sessions::pin_context`.
    pub fn learn_context(&mut self, ask: &Ask, context: u64, upstream: UpstreamId, now: Moment) {
        let pin = self.sessions.pin_context(ask, context, upstream, now);
        self.tell_pin(pin, upstream, now);
    }

    /// An answer may be stored where it was made: see `Sessions::pin_response`.
    pub fn learn_response(&mut self, ask: &Ask, response: u64, upstream: UpstreamId, now: Moment) {
        let pin = self.sessions.pin_response(ask, response, upstream, now);
        self.tell_pin(pin, upstream, now);
    }

    fn tell_pin(&mut self, pin: SharedPin, upstream: UpstreamId, now: Moment) {
        let node = self.upstreams.get(upstream).map(|upstream| upstream.name_hash);
        if let Some(node) = node.filter(|_| self.elsewhere.tells) {
            self.elsewhere.tell(Turn { pin, named: None, node, held: None }, now);
        }
    }

    /// Keys under which others may know what nobody knows here of the conversation of `ask`, or knows only from
    /// before `sure_since`.
    pub fn asks_elsewhere(&self, ask: &Ask, sure_since: Moment, now: Moment) -> Option<Candidates> {
        if !ask.endpoint.is_conversation() {
            return None;
        }
        self.sessions.candidates(ask, sure_since, now)
    }

    /// A turn that another replica has had answered; false: that is known here, or better.
    pub fn learn_turn(&mut self, turn: &Turn, at: Moment, now: Moment) -> bool {
        let Some(upstream) = self.elsewhere.nodes.get(&turn.node).copied() else { return false };
        let is_new = self.sessions.learn(&turn.pin, upstream, at, now);
        if let Some(named) = turn.named {
            self.sessions.learn(&SharedPin { key: named, previous: 0, ..turn.pin }, upstream, at, now);
        }
        if let Some(held) = turn.held.as_ref().filter(|_| is_new)
            && let Some((id, capacity)) = self.held_at(upstream, held.model)
        {
            self.prefixes.learn(id, capacity, held.links_learnt(now.since(at)), held.prompt_tokens, now);
        }
        is_new
    }

    fn held_at(&self, id: UpstreamId, model: u64) -> Option<(HoldingId, super::prefix::Capacity)> {
        let upstream = self.upstreams.get(id)?;
        let (_, held) = upstream.holdings.iter().find(|(name, _)| hash_text(name) == model)?;
        Some((*held, upstream.capacity(self.holding(*held))))
    }
}

/// What is told of a prompt: the ends of its system text and first message, and its latest ends.
fn told_links(ask: &Ask) -> impl Iterator<Item = (u64, u32)> {
    let (domain, links, root) = (domain(ask), &ask.chain.links, ask.chain.root as usize);
    let ends: Vec<usize> = (0..links.len()).filter(|at| links[*at].ends_message).collect();
    let latest = ends.len().saturating_sub(LINKS_TOLD_MAX - 2);
    let of_the_beginning = move |at: usize| at == root || at + 1 == root;
    let told: Vec<usize> =
        ends.iter().enumerate().filter(|(n, at)| *n >= latest || of_the_beginning(**at)).map(|(_, at)| *at).collect();
    told.into_iter().map(move |at| (links[at].within(domain), links[at].tokens))
}

#[cfg(test)]
mod tests;
