//! Which upstreams have seen which beginnings of prompts.
//!
//! For a conversation without a pin the longest known prefix says where part of its prompt is likely
//! cached: a shared system prompt, a branch, a retried tool call. It is a belief about what was sent,
//! not about what an engine still holds.

use std::time::Duration;

use super::aged::Aged;
use super::ask::Ask;
use super::chain::Link;
use super::fleet::UpstreamId;
use super::moment::Moment;
use super::session::domain;

pub struct Prefixes {
    owners: Aged<Owners>,
    ttl: Duration,
}

/// Beginnings remembered in all: about 40 bytes each.
const MAX_LINKS: usize = 1 << 18;

/// Links of one prompt that are learnt from each of its two sides; a prompt of megabytes must not push out everybody
/// else's.
const MAX_LINKS_A_SIDE: usize = 512;

/// Upstreams remembered for one beginning; what more nodes than these hold is everywhere anyway.
const OWNERS_PER_LINK: usize = 4;

#[derive(Clone, Copy, Default)]
struct Owners([Option<Owner>; OWNERS_PER_LINK]);

#[derive(Clone, Copy)]
struct Owner {
    upstream: UpstreamId,
    at: Moment,
}

impl Prefixes {
    pub fn new(ttl: Duration) -> Prefixes {
        Prefixes { owners: Aged::new(MAX_LINKS), ttl }
    }

    /// How long a beginning is believed from now on.
    pub fn keep_for(&mut self, ttl: Duration) {
        self.ttl = ttl;
    }

    /// For each upstream that knows any of it: how many tokens of the prompt, at most, it has seen.
    pub fn covered(&self, ask: &Ask, now: Moment) -> Vec<(UpstreamId, u32)> {
        let domain = domain(ask);
        let mut covered: Vec<(UpstreamId, u32)> = Vec::new();
        for link in learnt_links(ask).rev() {
            for owner in self.owners.get(link.within(domain)).into_iter().flat_map(|owners| owners.0).flatten() {
                let known = covered.iter().any(|(upstream, _)| *upstream == owner.upstream);
                if !known && now.since(owner.at) < self.ttl {
                    covered.push((owner.upstream, link.tokens));
                }
            }
        }
        covered
    }

    /// Remembers that `upstream` began to answer `ask`, and so has read its prompt.
    pub fn learn(&mut self, ask: &Ask, upstream: UpstreamId, now: Moment) {
        let domain = domain(ask);
        for link in learnt_links(ask) {
            let key = link.within(domain);
            let mut owners = self.owners.remove(key).unwrap_or_default();
            owners.add(Owner { upstream, at: now });
            self.owners.insert(key, owners);
        }
    }

    pub fn len(&self) -> usize {
        self.owners.len()
    }

    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    pub fn max_links(&self) -> usize {
        self.owners.max_entries()
    }
}

impl Owners {
    /// Puts `owner` in the place of its older self, else of nobody, else of the longest unseen.
    fn add(&mut self, owner: Owner) {
        let same = self.0.iter().position(|held| held.is_some_and(|held| held.upstream == owner.upstream));
        let place = same.or_else(|| (0..OWNERS_PER_LINK).min_by_key(|place| self.0[*place].map(|held| held.at)));
        if let Some(place) = place {
            self.0[place] = Some(owner);
        }
    }
}

fn learnt_links(ask: &Ask) -> impl DoubleEndedIterator<Item = &Link> {
    let links = &ask.chain.links;
    let head = links.len().min(MAX_LINKS_A_SIDE);
    let tail = links.len().saturating_sub(MAX_LINKS_A_SIDE).max(head);
    links[..head].iter().chain(&links[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::chain::Chain;

    fn ask(hashes: &[u64]) -> Ask {
        let links = hashes.iter().zip(1..).map(|(hash, n)| Link { hash: *hash, tokens: 100 * n, ends_message: true });
        Ask { chain: Chain { links: links.collect(), root: 0 }, ..Ask::plain() }
    }

    #[test]
    fn the_longest_known_beginning_counts() {
        let mut prefixes = Prefixes::new(Duration::from_secs(60));
        prefixes.learn(&ask(&[1, 2, 3]), UpstreamId(0), Moment(0));
        prefixes.learn(&ask(&[1, 9]), UpstreamId(1), Moment(0));
        let mut covered = prefixes.covered(&ask(&[1, 2, 7, 8]), Moment(1));
        covered.sort();
        assert_eq!(covered, [(UpstreamId(0), 200), (UpstreamId(1), 100)]);
        assert_eq!(prefixes.covered(&ask(&[4]), Moment(1)), []);
        assert_eq!(prefixes.covered(&ask(&[1]), Moment::from_secs(60)), []);
    }

    #[test]
    fn a_fifth_owner_takes_the_place_of_the_longest_unseen() {
        let mut prefixes = Prefixes::new(Duration::from_secs(60));
        for n in 0..5 {
            prefixes.learn(&ask(&[1]), UpstreamId(n), Moment(u64::from(n)));
        }
        let mut owners: Vec<u32> = prefixes.covered(&ask(&[1]), Moment(9)).iter().map(|(id, _)| id.0).collect();
        owners.sort();
        assert_eq!(owners, [1, 2, 3, 4]);
    }

    #[test]
    fn bal_06_the_index_has_an_end_whatever_comes() {
        let mut prefixes = Prefixes::new(Duration::from_secs(60));
        let most = prefixes.max_links() as u64;
        for n in 0..most + 10_000 {
            prefixes.learn(&ask(&[n]), UpstreamId((n % 4) as u32), Moment(n));
        }
        assert!(prefixes.len() <= prefixes.max_links(), "{}", prefixes.len());
        assert_eq!(prefixes.covered(&ask(&[0]), Moment(most)), [], "the oldest made room");
        assert_eq!(prefixes.covered(&ask(&[most + 9_999]), Moment(most + 10_000)).len(), 1);
    }

    #[test]
    fn a_huge_prompt_is_learnt_at_both_ends() {
        let links: Vec<u64> = (0..100_000).collect();
        let mut prefixes = Prefixes::new(Duration::from_secs(60));
        prefixes.learn(&ask(&links), UpstreamId(0), Moment(0));
        assert_eq!(prefixes.len(), 2 * MAX_LINKS_A_SIDE);
        assert_eq!(prefixes.covered(&ask(&links), Moment(1)), [(UpstreamId(0), 10_000_000)]);
    }
}
