//! What failures, refusals and returns do to decisions.

use super::*;
use crate::routing::breaker::ONLY_HOLDER_PAUSE;

const A: UpstreamId = UpstreamId(0);
const B: UpstreamId = UpstreamId(1);

fn after(secs: u64) -> Moment {
    NOW + Duration::from_secs(secs)
}

fn holding_of(fleet: &Fleet, id: UpstreamId) -> HoldingId {
    *fleet.upstreams[id].holdings.values().next().expect("a model")
}

/// Sends a request to the upstream, whatever the decision, and lets it end so.
fn attempt(fleet: &mut Fleet, id: UpstreamId, outcome: Outcome, now: Moment) {
    let lease = send_to(fleet, id, now);
    if matches!(outcome, Outcome::Done { .. }) {
        fleet.first_byte(lease, &turn(7, 1).ask, now);
    }
    fleet.end(lease, outcome, now);
}

pub fn send_to(fleet: &mut Fleet, id: UpstreamId, now: Moment) -> LeaseId {
    let blank = decide(&fleet_of(&["x"]), &turn(7, 1), NOW).rows[0].clone();
    let row = Row { upstream: id, holding: holding_of(fleet, id), ..blank };
    fleet.book(&row, &turn(7, 1).ask, now)
}

fn chosen_at(fleet: &Fleet, conversation: u64, now: Moment) -> Option<UpstreamId> {
    decide(fleet, &turn(conversation, 1), now).rows.first().map(|row| row.upstream)
}

fn reason(fleet: &Fleet, id: UpstreamId, now: Moment) -> Option<Exclusion> {
    let excluded = decide(fleet, &turn(1, 1), now).excluded;
    excluded.iter().find(|(excluded, _)| *excluded == id).map(|(_, reason)| *reason)
}

const DONE: Outcome = Outcome::Done { output_tokens: None, cached: None };

#[test]
fn a_single_failure_moves_no_conversation() {
    let mut fleet = fleet_of(&["a", "b"]);
    let before: Vec<_> = (0..50).map(|n| chosen_at(&fleet, n, NOW)).collect();
    attempt(&mut fleet, A, Outcome::Failed, NOW);
    let after: Vec<_> = (0..50).map(|n| chosen_at(&fleet, n, NOW)).collect();
    assert_eq!(before, after);
}

#[test]
fn hlt_07_a_node_is_tried_once_when_its_time_has_come() {
    let mut fleet = fleet_of(&["a", "b"]);
    (0..3).for_each(|_| attempt(&mut fleet, A, Outcome::Failed, NOW));
    let decision = decide(&fleet, &turn(1, 1), after(5));
    assert_eq!((decision.rows.len(), decision.usable_at), (1, Some(after(10))));
    assert_eq!(reason(&fleet, A, after(5)), Some(Exclusion::BreakerOpen));

    assert!((0..20).all(|n| chosen_at(&fleet, n, after(10)) == Some(A)), "whoever comes first tries it");
    let trial = send_to(&mut fleet, A, after(10));
    assert_eq!(reason(&fleet, A, after(11)), Some(Exclusion::HalfOpen));
    fleet.first_byte(trial, &turn(7, 1).ask, after(12));
    fleet.end(trial, DONE, after(12));
    assert_eq!(reason(&fleet, A, after(12)), None);
}

#[test]
fn a_conversation_is_not_taken_from_its_cache_for_a_trial_at_once() {
    let mut fleet = fleet_of(&["a", "b"]);
    let lease = send_to(&mut fleet, B, NOW);
    fleet.first_byte(lease, &turn(7, 1).ask, NOW);
    fleet.end(lease, DONE, NOW);
    (0..3).for_each(|_| attempt(&mut fleet, A, Outcome::Failed, NOW));
    let next = |at| decide(&fleet, &turn(7, 2), at).rows[0].upstream;
    assert_eq!([next(after(10)), next(after(11))], [B, A]);
}

#[test]
fn hlt_05_one_refused_connection_takes_the_node_out_and_a_good_check_brings_it_back() {
    let mut fleet = fleet_of(&["a", "b"]);
    attempt(&mut fleet, A, Outcome::Unreachable, NOW);
    assert_eq!(reason(&fleet, A, NOW), Some(Exclusion::BreakerOpen));
    fleet.learn_health(A, true, after(1));
    assert_eq!(reason(&fleet, A, after(1)), None);
}

#[test]
fn hlt_09_all_busy_says_when_the_first_may_be_asked() {
    let mut fleet = fleet_of(&["a", "b"]);
    for (id, secs) in [(A, 9), (B, 2)] {
        fleet.learn_wait(holding_of(&fleet, id), Duration::from_secs(secs), NOW);
    }
    let decision = decide(&fleet, &turn(1, 1), NOW);
    assert_eq!(decision.excluded, [(A, Exclusion::Cooling), (B, Exclusion::Cooling)]);
    assert_eq!((decision.rows.len(), decision.usable_at), (0, Some(after(2))));
    assert_eq!(chosen_at(&fleet, 1, after(2)), Some(B));
}

#[test]
fn ret_11_a_busy_node_is_left_alone_and_without_another_it_is_asked() {
    let mut fleet = fleet_of(&["a", "b"]);
    attempt(&mut fleet, A, Outcome::Busy, NOW);
    assert_eq!(reason(&fleet, A, NOW), Some(Exclusion::Cooling));
    attempt(&mut fleet, B, Outcome::Busy, NOW);
    let decision = decide(&fleet, &turn(1, 1), NOW);
    assert!(decision.last_resort && decision.rows.len() == 2);
}

#[test]
fn hlt_10_the_only_holder_is_asked_again_after_a_moment() {
    let mut fleet = fleet_of(&["a"]);
    (0..10).for_each(|_| attempt(&mut fleet, A, Outcome::Failed, NOW));
    let decision = decide(&fleet, &turn(1, 1), NOW);
    assert_eq!((decision.rows.len(), decision.usable_at), (0, Some(NOW + ONLY_HOLDER_PAUSE)));
    assert_eq!(chosen_at(&fleet, 1, NOW + ONLY_HOLDER_PAUSE), Some(A));
}

#[test]
fn a_fallback_that_works_comes_before_a_model_that_is_broken() {
    let (mut fleet, [a, b, c]) = grouped(Policy::Fleet, |_, _| ());
    for id in [a, b] {
        (0..3).for_each(|_| attempt(&mut fleet, id, Outcome::Failed, NOW));
    }
    let chosen = |fleet: &Fleet| decide(fleet, &chat(1), after(5)).rows[0].upstream;
    assert_eq!(chosen(&fleet), c);
    (0..3).for_each(|_| attempt(&mut fleet, c, Outcome::Failed, after(4)));
    assert!(chosen(&fleet) != c, "all are broken, and these are the ones that were asked for");
}

#[test]
fn hlt_02_checks_alone_take_out_at_most_half() {
    let mut fleet = fleet_of(&["a", "b", "c"]);
    fleet.learn_health(A, false, NOW);
    assert_eq!(decide(&fleet, &turn(1, 1), NOW).rows.len(), 2, "one of three is out");
    fleet.learn_health(B, false, NOW);
    assert_eq!(decide(&fleet, &turn(1, 1), NOW).rows.len(), 3, "two would be too many");

    let lease = send_to(&mut fleet, A, after(1));
    assert_eq!(reason(&fleet, A, after(1)), Some(Exclusion::Unhealthy), "one request at a time tries it");
    fleet.first_byte(lease, &turn(7, 1).ask, after(2));
    assert_eq!(reason(&fleet, A, after(2)), None, "it answers requests");

    fleet.learn_health(UpstreamId(2), false, after(2));
    fleet.learn_reachable(B, false);
    let decision = decide(&fleet, &turn(1, 1), after(2));
    assert!(decision.last_resort && decision.rows.len() == 2, "all out: all are used to which connections open");
}

/// A node that hangs is no better than one that failed and answers its checks.
#[test]
fn as_a_last_resort_those_that_answer_their_checks_come_first() {
    let mut fleet = fleet_of(&["a", "b"]);
    (0..3).for_each(|_| attempt(&mut fleet, A, Outcome::Failed, NOW));
    fleet.learn_health(B, false, after(1));
    let rows = |fleet: &Fleet, query: &Query, at| -> Vec<UpstreamId> {
        decide(fleet, query, at).rows.iter().map(|row| row.upstream).collect()
    };
    assert_eq!(rows(&fleet, &turn(1, 1), after(2)), [A]);
    let failed_there = Query { tried: vec![holding_of(&fleet, A)], ..turn(1, 1) };
    assert_eq!(rows(&fleet, &failed_there, after(2)), [B], "rather than nobody");
    fleet.learn_health(A, false, after(3));
    assert_eq!(rows(&fleet, &turn(1, 1), after(3)).len(), 2);
}

#[test]
fn a_refused_connection_a_load_and_a_node_never_seen_are_not_overlooked() {
    let mut fleet = fleet_of(&["a", "b"]);
    fleet.learn_reachable(A, false);
    fleet.learn_health(A, false, NOW);
    fleet.learn_loading(B);
    let new = fleet.join(spec("new")).unwrap();
    fleet.learn_report(new, &Report { models: vec![resident(MODEL)], ..Report::default() }, fleet.asked(new, NOW), NOW);
    let decision = decide(&fleet, &turn(1, 1), after(1));
    assert_eq!((decision.rows.len(), decision.excluded.len()), (0, 3));
}

#[test]
fn hlt_12_a_node_that_joins_carries_little_at_first() {
    let mut fleet = fleet_of(&["a", "b"]);
    let c = join(&mut fleet, spec("c"), &[resident(MODEL)]);
    assert_eq!(fleet.upstreams[c].slow_start, Default::default(), "the whole fleet has just started");
    fleet.learn_health(c, false, NOW);
    for n in 0..60 {
        let query = turn(n, 1);
        let row = decide(&fleet, &query, NOW).rows[0].clone();
        fleet.book(&row, &query.ask, NOW);
    }
    fleet.learn_health(c, true, after(100));
    let fill = |fleet: &mut Fleet, at: Moment| {
        for n in 0..100 {
            let query = turn(1000 + n, 1);
            let decision = decide(fleet, &query, at);
            if decision.rows[0].upstream != c {
                break;
            }
            let lease = fleet.book(&decision.rows[0], &query.ask, at);
            fleet.first_byte(lease, &query.ask, at);
        }
        fleet.upstreams[c].in_flight
    };
    assert_eq!(fill(&mut fleet, after(101)), 1);
    assert_eq!(reason(&fleet, c, after(101)), Some(Exclusion::SlowStart));
    let grown = [fill(&mut fleet, after(105)), fill(&mut fleet, after(115)), fill(&mut fleet, after(131))];
    assert!(grown[0] <= 5 && grown[0] < grown[1] && grown[1] <= 15 && grown[2] >= 25, "{grown:?}");
}

#[test]
fn a_drain_lifted_is_a_return() {
    let mut fleet = fleet_of(&["a", "b"]);
    fleet.drain(A, true, after(50));
    assert_eq!(reason(&fleet, A, after(50)), Some(Exclusion::Draining));
    fleet.drain(A, false, after(60));
    assert_eq!(row(&decide(&fleet, &turn(1, 1), after(60)), A).points[5], 7.0);
    assert_eq!(row(&decide(&fleet, &turn(1, 1), after(90)), A).points[5], 10.0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever went wrong, with time and one answer each node serves again.
    #[test]
    fn there_is_a_way_back_from_every_state(
        steps in proptest::collection::vec((0u32..3, 0u8..9, 0u64..20), 1..80),
    ) {
        let mut fleet = fleet_of(&["a", "b", "c"]);
        let mut now = NOW;
        let mut leases = Vec::new();
        for (node, what, secs) in steps {
            now = now + Duration::from_secs(secs);
            let id = UpstreamId(node);
            match what {
                0 => attempt(&mut fleet, id, Outcome::Failed, now),
                1 => attempt(&mut fleet, id, Outcome::Busy, now),
                2 => attempt(&mut fleet, id, Outcome::Unreachable, now),
                3 => attempt(&mut fleet, id, Outcome::KeyRefused, now),
                4 => attempt(&mut fleet, id, DONE, now),
                5 => leases.push(send_to(&mut fleet, id, now)),
                6 => fleet.learn_health(id, secs % 2 == 0, now),
                7 => fleet.learn_wait(holding_of(&fleet, id), Duration::from_secs(secs * 10), now),
                _ => drop(fleet.sweep(now)),
            }
            let decision = decide(&fleet, &turn(1, 1), now);
            prop_assert!(!decision.rows.is_empty() || decision.usable_at.is_some() || decision.excluded.iter().all(|(_, why)| *why == Exclusion::Unhealthy), "L11 {:?}", decision);
        }
        for lease in leases {
            fleet.end(lease, Outcome::Void, now);
        }
        fleet.sweep(now);
        let later = now + Duration::from_secs(1200);
        for id in (0..3).map(UpstreamId) {
            fleet.learn_health(id, true, now);
            prop_assert_eq!(reason(&fleet, id, later), None, "by time alone");
            attempt(&mut fleet, id, DONE, later);
        }
        let much_later = later + Duration::from_secs(60);
        for row in decide(&fleet, &turn(1, 1), much_later).rows {
            prop_assert_eq!(row.points[5], 10.0);
        }
    }
}
