//! What is known of nodes whose caches are small, by hand.

use super::*;
use crate::routing::chain::Chain;

const TTL: Duration = Duration::from_secs(600);
const NODE: HoldingId = HoldingId(0);
const OTHER: HoldingId = HoldingId(1);

/// A prompt of one link a number, each of 100 tokens.
fn ask(hashes: &[u64]) -> Ask {
    let links = hashes.iter().zip(1..).map(|(hash, n)| Link { hash: *hash, tokens: 100 * n, ends_message: true });
    let links: Vec<Link> = links.collect();
    let prompt_tokens = links.last().map_or(1, |link| link.tokens);
    Ask { chain: Chain { links, root: 0, answers: 0 }, prompt_tokens, ..Ask::plain() }
}

fn slots(count: u32) -> Capacity {
    Capacity::Slots { count, known: true }
}

fn at(secs: u64) -> Moment {
    Moment::from_secs(secs)
}

struct Rig {
    prefixes: Prefixes,
    capacity: Capacity,
    leases: u64,
}

impl Rig {
    fn of(capacity: Capacity) -> Rig {
        Rig { prefixes: Prefixes::new(TTL), capacity, leases: 0 }
    }

    fn book(&mut self, node: HoldingId, hashes: &[u64], now: Moment) -> LeaseId {
        self.leases += 1;
        self.prefixes.book(LeaseId(self.leases), node, self.capacity, &ask(hashes), now);
        LeaseId(self.leases)
    }

    fn serve(&mut self, node: HoldingId, hashes: &[u64], now: Moment) -> u32 {
        let lease = self.book(node, hashes, now);
        let found = self.prefixes.placed(lease).map_or(0, |placed| placed.found);
        self.prefixes.first_byte(lease, now);
        self.prefixes.end(lease, Left::default(), now);
        found
    }

    fn prospect(&self, node: HoldingId, hashes: &[u64], now: Moment) -> Prospect {
        self.prefixes.prospects(&ask(hashes), now).at(node, self.capacity)
    }

    #[track_caller]
    fn check(&self, hashes: &[u64], found: u32, displaced: u32) {
        let prospect = self.prospect(NODE, hashes, at(10));
        assert_eq!((prospect.found, prospect.displaced), (found, displaced));
    }
}

#[test]
fn what_is_on_its_way_is_held_from_the_booking_on() {
    let mut rig = Rig::of(Capacity::Tokens(None));
    rig.book(NODE, &[1, 2, 3], at(1));
    rig.check(&[1, 2, 7, 8], 200, 0);
    assert_eq!(rig.prospect(OTHER, &[1, 2, 7], at(1)), Prospect::default());
    rig.check(&[4], 0, 0);
    assert_eq!(rig.prospect(NODE, &[1], at(1) + TTL).found, 0, "and no longer than pins are");
}

#[test]
fn a_node_has_as_many_conversations_as_slots_and_the_longest_idle_goes() {
    let mut rig = Rig::of(slots(2));
    rig.serve(NODE, &[1, 2], at(1));
    rig.serve(NODE, &[8, 9], at(2));
    assert_eq!(rig.serve(NODE, &[1, 2, 3], at(3)), 200);
    rig.check(&[8, 9, 10], 200, 0);
    rig.check(&[5, 6], 0, 200);
    rig.serve(NODE, &[5, 6], at(4));
    rig.check(&[8, 9, 10], 0, 300);
    rig.check(&[1, 2, 3, 4], 300, 0);
}

#[test]
fn a_short_common_beginning_takes_nobody_s_slot_while_one_is_empty() {
    let long: Vec<u64> = (1..=20).collect();
    let other: Vec<u64> = (1..=1).chain(100..=118).collect();
    let mut rig = Rig::of(slots(2));
    rig.serve(NODE, &long, at(1));
    rig.check(&other, 0, 0);
    rig.serve(NODE, &other, at(2));
    rig.check(&long, 2000, 0);
}

#[test]
fn a_common_system_prompt_takes_the_slot_of_who_has_it() {
    let mut rig = Rig::of(slots(2));
    rig.serve(NODE, &[1, 2, 3], at(1));
    rig.check(&[1, 2, 9], 200, 100);
}

#[test]
fn who_waits_for_a_slot_gets_the_one_that_comes_free() {
    let mut rig = Rig::of(slots(1));
    let first = rig.book(NODE, &[1, 2], at(1));
    let second = rig.book(NODE, &[5, 6], at(1));
    assert_eq!(rig.prefixes.placed(second), None);
    rig.prefixes.first_byte(first, at(2));
    rig.prefixes.end(first, Left::default(), at(3));
    assert_eq!(rig.prefixes.placed(second).map(|placed| placed.at), Some(at(3)));
    rig.check(&[1, 2, 3], 0, 200);
    rig.check(&[5, 6, 7], 200, 0);
}

#[test]
fn who_fails_before_a_first_byte_leaves_nothing_but_what_was_there() {
    for (capacity, held) in [(slots(1), 100), (Capacity::Tokens(None), 100)] {
        let mut rig = Rig::of(capacity);
        rig.serve(NODE, &[1], at(1));
        let lease = rig.book(NODE, &[1, 2, 3], at(2));
        rig.prefixes.end(lease, Left::default(), at(3));
        assert_eq!(rig.prospect(NODE, &[1, 2, 3], at(4)).found, held, "{capacity:?}");
    }
}

#[test]
fn an_answer_is_held_as_well() {
    let mut rig = Rig::of(slots(1));
    let lease = rig.book(NODE, &[1, 2], at(1));
    rig.prefixes.first_byte(lease, at(2));
    rig.prefixes.end(lease, Left { output_tokens: Some(70), cached: None }, at(3));
    rig.check(&[1, 2, 3, 4], 270, 0);
    rig.check(&[1, 2], 200, 0);
}

#[test]
fn blocks_leave_by_age_and_beginnings_last() {
    let mut rig = Rig::of(Capacity::Tokens(Some(400)));
    rig.serve(NODE, &[1, 2], at(1));
    rig.serve(NODE, &[8, 9], at(2));
    rig.serve(NODE, &[5], at(3));
    rig.check(&[1, 2, 3], 100, 0);
    rig.check(&[8, 9, 10], 200, 0);
    rig.serve(NODE, &[20, 21, 22, 23, 24, 25], at(4));
    rig.check(&[20, 21, 22, 23, 24, 25, 26], 400, 0);
    rig.check(&[8, 9], 0, 0);
}

#[test]
fn engines_that_count_correct_the_size() {
    let cached =
        |cached_tokens| Left { output_tokens: None, cached: Some(Cached { prompt_tokens: 777, cached_tokens }) };
    let mut rig = Rig::of(Capacity::Tokens(None));
    let size = |rig: &Rig| rig.prefixes.caches[0].tokens(None);
    rig.serve(NODE, &[1, 2, 3, 4], at(1));
    let before = size(&rig);
    for (told, expected) in [(777, std::cmp::Ordering::Equal), (0, std::cmp::Ordering::Less)] {
        let lease = rig.book(NODE, &[1, 2, 3, 4], at(2));
        rig.prefixes.first_byte(lease, at(2));
        rig.prefixes.end(lease, cached(told), at(2));
        assert_eq!(size(&rig).cmp(&before), expected, "told {told}");
    }
    let lease = rig.book(NODE, &[70, 71], at(3));
    rig.prefixes.first_byte(lease, at(3));
    let before = size(&rig);
    rig.prefixes.end(lease, cached(700), at(3));
    assert!(size(&rig) > before, "it had what was thought gone");
}

/// Answered, with none of it found by the engine.
fn had_nothing(rig: &mut Rig, lease: LeaseId, now: Moment) {
    rig.prefixes.first_byte(lease, now);
    let cached = Some(Cached { prompt_tokens: 777, cached_tokens: 0 });
    rig.prefixes.end(lease, Left { output_tokens: None, cached }, now);
}

#[test]
fn what_was_used_no_later_than_what_is_missing_has_left_too() {
    let mut rig = Rig::of(Capacity::Tokens(Some(u64::MAX)));
    for (n, hashes) in [[1, 2], [10, 11], [20, 21]].iter().enumerate() {
        rig.serve(NODE, hashes, at(n as u64));
    }
    let lease = rig.book(NODE, &[10, 11], at(5));
    had_nothing(&mut rig, lease, at(6));
    rig.check(&[1, 2], 0, 0);
    rig.check(&[10, 11], 200, 0);
    rig.check(&[20, 21], 200, 0);
}

#[test]
fn a_prompt_that_is_still_being_read_is_not_missing() {
    let mut rig = Rig::of(Capacity::Tokens(Some(u64::MAX)));
    rig.serve(NODE, &[1, 2], at(1));
    let [first, second] = [2, 3].map(|secs| rig.book(NODE, &[10, 11], at(secs)));
    had_nothing(&mut rig, first, at(5));
    had_nothing(&mut rig, second, at(5));
    rig.check(&[1, 2], 200, 0);
}

#[test]
fn a_store_larger_than_told_is_found_out() {
    let mut rig = Rig::of(Capacity::Tokens(Some(200_000)));
    let lease = rig.book(NODE, &[1, 2], at(1));
    rig.prefixes.first_byte(lease, at(1));
    let cached = Some(Cached { prompt_tokens: 200, cached_tokens: 200 });
    rig.prefixes.end(lease, Left { output_tokens: None, cached }, at(1));
    let tokens = |rig: &Rig| rig.prefixes.caches[0].tokens(Some(200_000));
    assert!(tokens(&rig) > 200_000, "it had what was thought gone");
    for n in 2..9 {
        let lease = rig.book(NODE, &[1, 2], at(n));
        had_nothing(&mut rig, lease, at(n));
    }
    assert_eq!(tokens(&rig), 200_000, "and is never thought smaller than it says");
}

#[test]
fn a_model_that_leaves_memory_takes_its_cache_along() {
    let mut rig = Rig::of(slots(2));
    rig.serve(NODE, &[1, 2], at(1));
    rig.serve(OTHER, &[1, 2], at(1));
    rig.prefixes.clear(NODE);
    rig.check(&[1, 2], 0, 0);
    assert_eq!(rig.prospect(OTHER, &[1, 2], at(2)).found, 200);
    rig.prefixes.forget(OTHER);
    assert!(rig.prefixes.is_empty());
}

#[test]
fn bal_06_the_index_has_an_end_whatever_comes() {
    let mut rig = Rig::of(Capacity::Tokens(Some(u64::MAX)));
    let most = rig.prefixes.max_links() as u64;
    for n in 1..most + 10_000 {
        rig.serve(HoldingId((n % 4) as u32), &[n], Moment(n));
    }
    assert_eq!(rig.prefixes.len(), rig.prefixes.max_links());
    assert_eq!(rig.prospect(HoldingId(1), &[1], Moment(most)).found, 0, "the oldest made room");
    let last = most + 9_999;
    assert_eq!(rig.prospect(HoldingId((last % 4) as u32), &[last], Moment(last)).found, 100);
}

#[test]
fn a_huge_prompt_is_learnt_at_both_ends() {
    let links: Vec<u64> = (1..=100_000).collect();
    let mut rig = Rig::of(Capacity::Tokens(Some(u64::MAX)));
    rig.serve(NODE, &links, at(1));
    assert_eq!(rig.prefixes.len(), 2 * MAX_LINKS_A_SIDE);
    rig.check(&links, 10_000_000, 0);
}

/// Six turns of 8 KB in all: a system prompt, eleven messages, and a piece now and then.
#[test]
fn a_hundred_thousand_conversations_fit_in_64_mib() {
    let turn = |conversation: u64, links: u64| {
        let hashes: Vec<u64> = (0..links).map(|link| crate::routing::chain::mix(conversation + 1, link)).collect();
        ask(&hashes)
    };
    let remember = || {
        let mut prefixes = Prefixes::new(TTL);
        let mut sessions = crate::routing::session::Sessions::new(100_000, TTL);
        for conversation in 0..100_000 {
            let node = HoldingId((conversation % 64) as u32);
            for links in [16, 18] {
                let (ask, lease) = (turn(conversation, links), LeaseId(2 * conversation + links / 18));
                prefixes.book(lease, node, Capacity::Tokens(Some(1 << 30)), &ask, at(1));
                prefixes.first_byte(lease, at(1));
                prefixes.end(lease, Left::default(), at(1));
                sessions.pin(&ask, crate::routing::fleet::UpstreamId(node.0), at(1));
            }
        }
        assert_eq!(prefixes.len(), prefixes.max_links());
        assert!(sessions.len() >= 100_000);
    };
    let bytes = allocation_counter::measure(remember).bytes_max;
    assert!(bytes <= 64 << 20, "{} MiB", bytes >> 20);
}
