//! Upstreams that leave while requests run.

use super::*;

/// Of two nodes alike, the one with a conversation on it, the other, and the conversation's lease.
fn underway() -> (Fleet, UpstreamId, UpstreamId, crate::routing::fleet::LeaseId) {
    let mut fleet = fleet_of(&["a", "b"]);
    let decision = decide(&fleet, &turn(1, 1), NOW);
    let lease = fleet.book(&decision.rows[0], &turn(1, 1).ask, NOW);
    fleet.first_byte(lease, &turn(1, 1).ask, NOW);
    (fleet, decision.rows[0].upstream, decision.rows[1].upstream, lease)
}

#[test]
fn no_new_work_at_once_and_what_runs_finishes() {
    let (mut fleet, home, other, lease) = underway();
    fleet.leave(home);
    for n in 0..50 {
        let decision = decide(&fleet, &turn(n, 1), NOW);
        assert_eq!(decision.rows.iter().map(|row| row.upstream).collect::<Vec<_>>(), [other]);
        assert_eq!(decision.excluded, [], "it is no holder any more");
    }
    assert_eq!(fleet.upstream(home).unwrap().in_flight, 1, "L1");
    fleet.end(lease, Outcome::Done { output_tokens: Some(1), cached: None }, NOW);
    assert!(fleet.upstream(home).is_none(), "forgotten with its last request");
    assert_eq!(fleet.live_leases(), 0);
}

#[test]
fn its_pins_and_prefixes_lead_nowhere_and_the_conversation_moves() {
    let (mut fleet, home, other, lease) = underway();
    fleet.end(lease, Outcome::Done { output_tokens: Some(1), cached: None }, NOW);
    fleet.leave(home);
    let back = join(&mut fleet, spec("a"), &[resident(MODEL)]);
    assert_ne!(back, home, "an id is never used again");
    let decision = decide(&fleet, &turn(1, 2), NOW);
    assert_eq!(decision.pin, Some(home), "which the client is told as moved");
    for id in [back, other] {
        let row = row(&decision, id);
        assert_eq!((row.points.last(), row.covered_tokens), (Some(&0.0), 0), "no warmth anywhere");
    }
}

#[test]
fn nothing_is_learnt_of_one_that_has_left() {
    let (mut fleet, home, _, lease) = underway();
    let asked = fleet.asked(home, NOW);
    fleet.leave(home);
    let report = Report { models: vec![resident(MODEL), resident("another")], ..Report::default() };
    let after = |fleet: &mut Fleet| {
        fleet.learn_report(home, &report, asked, NOW);
        fleet.learn_health(home, true, NOW);
        fleet.learn_engine(home, OLLAMA);
        decide(fleet, &turn(1, 2), NOW).rows.len()
    };
    assert_eq!(after(&mut fleet), 1, "while a request still runs there");
    fleet.end(lease, Outcome::Failed, NOW);
    assert_eq!(after(&mut fleet), 1, "and when it is over");
    assert!(fleet.is_known_whole());
}

#[test]
fn a_new_configuration_keeps_what_was_learnt() {
    let mut fleet = fleet_of(&["a", "b"]);
    let id = fleet.upstreams().next().unwrap().0;
    fleet.configure(id, Spec { engine: None, drain: true, ..spec("a") }, NOW);
    let decision = decide(&fleet, &turn(1, 1), NOW);
    assert_eq!(decision.excluded, [(id, Exclusion::Draining)]);
    assert_eq!(fleet.holdings_of(id).count(), 1);
    fleet.configure(id, Spec { engine: None, ..spec("a") }, NOW);
    assert_eq!(decide(&fleet, &turn(1, 1), NOW).rows.len(), 2);
}

#[test]
fn other_rules_hold_at_once_and_what_was_learnt_stays() {
    let (mut fleet, home, ..) = underway();
    fleet.set_rules(Rules { max_sessions: 50, option_guard: OptionGuard::Pin, ..rules() });
    assert_eq!(decide(&fleet, &turn(1, 2), NOW).pin, Some(home));
    assert_eq!((fleet.rules.option_guard, fleet.sessions.max_pins()), (OptionGuard::Pin, 150));
    fleet.set_rules(Rules { session_ttl: Duration::ZERO, ..rules() });
    assert_eq!(decide(&fleet, &turn(1, 2), NOW).pin, None, "for pins that are there already too");
}

#[test]
fn a_new_key_makes_good_what_the_old_one_spoilt_and_nothing_else() {
    let mut fleet = fleet_of(&["a"]);
    let id = fleet.upstreams().next().unwrap().0;
    for (outcome, bars_after) in [(Outcome::KeyRefused, false), (Outcome::Unreachable, true)] {
        for _ in 0..3 {
            let query = turn(1, 1);
            let Some(row) = decide(&fleet, &query, NOW).rows.first().cloned() else { break };
            let lease = fleet.book(&row, &query.ask, NOW);
            fleet.end(lease, outcome, NOW);
        }
        assert!(fleet.upstream(id).unwrap().breaker.opening().is_some(), "{outcome:?}");
        fleet.learn_new_key(id, NOW);
        assert_eq!(fleet.upstream(id).unwrap().breaker.opening().is_some(), bars_after, "{outcome:?}");
    }
}
