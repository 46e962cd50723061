//! Where new conversations go, and how many move when nodes come and go.

use super::*;

const SESSIONS: u64 = 1000;

/// Serves a turn at the best node, first byte and all.
fn serve(fleet: &mut Fleet, query: &Query) -> UpstreamId {
    let decision = decide(fleet, query, NOW);
    let best = &decision.rows[0];
    let lease = fleet.book(best, &query.ask, NOW);
    fleet.first_byte(lease, &query.ask, NOW);
    fleet.end(lease, Outcome::Done { output_tokens: None, cached: None }, NOW);
    best.upstream
}

fn homes(fleet: &Fleet, turn_of: impl Fn(u64) -> Query) -> Vec<UpstreamId> {
    (0..SESSIONS).map(|n| decide(fleet, &turn_of(n), NOW).rows[0].upstream).collect()
}

fn moved(before: &[UpstreamId], after: &[UpstreamId]) -> usize {
    before.iter().zip(after).filter(|(before, after)| before != after).count()
}

#[test]
fn bal_02_a_miss_goes_to_the_idle_node_however_much_that_remembers() {
    let mut fleet = fleet_of(&["n1"]);
    // All that was ever served is remembered of the second node, and the first is busy.
    let n1 = UpstreamId(0);
    for n in 0..10 {
        let query = turn(10_000 + n, 1);
        fleet.book(row(&decide(&fleet, &query, NOW), n1), &query.ask, NOW);
    }
    let n2 = join(&mut fleet, spec("n2"), &[resident(MODEL)]);
    for n in 0..500 {
        assert_eq!(serve(&mut fleet, &turn(20_000 + n, 1)), n2);
    }
    let mut taken = 0;
    for n in 0..20 {
        let query = turn(n, 1);
        let best = decide(&fleet, &query, NOW).rows[0].clone();
        fleet.book(&best, &query.ask, NOW);
        taken += usize::from(best.upstream == n2);
        assert!(best.upstream == n2 || taken >= 9, "request {n} went to the busier one");
    }
    // Ten each are even; the other ten are shared.
    assert!((14..=16).contains(&taken), "{taken} of 20");
}

#[test]
fn bal_08_a_node_that_joins_moves_only_its_share_and_none_that_is_warm() {
    let five = ["a", "b", "c", "d", "e"];
    let (mut before, after) = (fleet_of(&five[..4]), fleet_of(&five));
    let (at_four, at_five) = (homes(&before, |n| turn(n, 1)), homes(&after, |n| turn(n, 1)));
    let moves = moved(&at_four, &at_five);
    assert!((100..=300).contains(&moves), "{moves} of {SESSIONS} new conversations");
    let to_others = at_four.iter().zip(&at_five).filter(|(b, a)| b != a && a.0 != 4).count();
    assert_eq!(to_others, 0, "those that move go to the new one");

    // Whoever is warm stays, and goes on staying when the new one has left again.
    let sessions: Vec<UpstreamId> = (0..100).map(|n| serve(&mut before, &turn(n, 1))).collect();
    let next = |fleet: &Fleet| -> Vec<UpstreamId> {
        (0..100).map(|n| decide(fleet, &turn(n, 2), NOW).rows[0].upstream).collect()
    };
    let joined = join(&mut before, spec("e"), &[resident(MODEL)]);
    assert_eq!(moved(&sessions, &next(&before)), 0, "no pin moves for a node that joins");
    before.leave(joined);
    assert_eq!(moved(&sessions, &next(&before)), 0);
}

#[test]
fn bal_08_only_the_sessions_of_a_lost_node_move() {
    let mut fleet = fleet_of(&["a", "b", "c", "d"]);
    let at_first = homes(&fleet, |n| turn(n, 1));
    let lost = UpstreamId(1);
    fleet.learn_health(lost, false, NOW);
    let after = homes(&fleet, |n| turn(n, 1));
    for (before, after) in at_first.iter().zip(&after) {
        assert!(after != &lost && (before == &lost || before == after));
    }
}
