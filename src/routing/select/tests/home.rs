//! Replicas that hear nothing of each other choose alike.

use super::*;

/// A conversation at its n-th turn, of which n - 1 were answered.
fn nth(conversation: u64, n: u64) -> Query {
    let mut query = turn(conversation, n);
    query.ask.chain.answers = n as u32 - 1;
    query.ask.prompt_tokens = 2 * n as u32;
    query
}

/// Second turns have come whose first nobody here has seen.
fn alone(mut fleet: Fleet) -> Fleet {
    (0..10).for_each(|_| fleet.strays.second_turn(&Ask::plain(), true));
    fleet
}

fn serve(fleet: &mut Fleet, at: UpstreamId, query: &Query) {
    let lease = fleet.book(row(&decide(fleet, query, NOW), at), &query.ask, NOW);
    fleet.first_byte(lease, &query.ask, NOW);
    fleet.end(lease, Outcome::Done { output_tokens: None, cached: None }, NOW);
}

fn occupy(fleet: &mut Fleet, at: UpstreamId, requests: u64) {
    for n in 0..requests {
        let query = nth(mix(0xb0, n), 1);
        fleet.book(row(&decide(fleet, &query, NOW), at), &query.ask, NOW);
    }
}

/// What home leads by, with so many requests there, at which turn.
#[track_caller]
fn check_lead(n: u64, requests: u64, expected: f64) {
    let mut fleet = alone(fleet_of(&["a", "b"]));
    let home = decide(&fleet, &nth(1, n), NOW).home.expect("a home");
    occupy(&mut fleet, home, requests);
    let decision = decide(&fleet, &nth(1, n), NOW);
    let other = decision.rows.iter().find(|row| row.upstream != home).expect("another").score;
    let got = row(&decision, home).score - other;
    assert!((got - expected).abs() < 1e-9, "turn {n}, {requests} there: leads by {got}, not {expected}");
}

#[test]
fn a_stray_leads_by_what_home_likely_has_and_a_beginning_by_little() {
    check_lead(2, 0, 12.5);
    check_lead(2, 1, 12.5 / 1.5 - 6.0);
    check_lead(2, 2, 12.5 / 2.0 - 12.0);
    check_lead(8, 0, 14.375);
    check_lead(1, 0, 5.0);
    check_lead(1, 1, 5.0 / 1.5 - 6.0);
}

#[test]
fn without_strays_nothing_is_preferred() {
    let mut fleet = fleet_of(&["a", "b", "c"]);
    for n in 1..4 {
        let decision = decide(&fleet, &nth(5, n), NOW);
        assert_eq!(decision.home, None);
        assert!(decision.rows.iter().all(|row| row.score == decision.rows[0].score));
    }
    // Second turns that are known are no strays, nor are third ones that are not.
    for conversation in 0..20 {
        let at = decide(&fleet, &nth(conversation, 1), NOW).rows[0].upstream;
        (1..3).for_each(|n| serve(&mut fleet, at, &nth(conversation, n)));
        serve(&mut fleet, at, &nth(1000 + conversation, 3));
    }
    assert_eq!(fleet.strays.strength(MODEL), 0.0);
    // And these are.
    for conversation in 2000..2005 {
        let at = decide(&fleet, &nth(conversation, 2), NOW).rows[0].upstream;
        serve(&mut fleet, at, &nth(conversation, 2));
    }
    assert!(fleet.strays.strength(MODEL) > 0.0);
}

#[test]
fn an_excluded_home_falls_to_the_next_of_the_hash() {
    let fleet = alone(fleet_of(&["a", "b", "c", "d"]));
    for conversation in 0..20 {
        let mut query = nth(conversation, 2);
        let first = decide(&fleet, &query, NOW);
        let home = first.home.expect("a home");
        assert_eq!(first.rows[0].upstream, home);
        query.tried = vec![row(&first, home).holding];
        let second = decide(&fleet, &query, NOW);
        let rest: Vec<String> = names(&fleet, &second);
        let without = alone(fleet_of(&rest.iter().map(String::as_str).collect::<Vec<_>>()));
        let there = names(&without, &decide(&without, &nth(conversation, 2), NOW));
        assert_eq!(rest[0], there[0], "as if it had never been there");
        assert_eq!(second.home, Some(second.rows[0].upstream));
    }
}

#[test]
fn a_cold_node_is_home_only_among_cold_ones() {
    let mut fleet = Fleet::new(rules());
    let cold = ModelReport { resident: false, ..resident(MODEL) };
    join(&mut fleet, spec("cold 1"), std::slice::from_ref(&cold));
    join(&mut fleet, spec("cold 2"), &[cold]);
    let mut fleet = alone(fleet);
    let homes = |fleet: &Fleet| -> Vec<UpstreamId> {
        (0..20).filter_map(|conversation| decide(fleet, &nth(conversation, 2), NOW).home).collect()
    };
    assert_eq!(homes(&fleet).len(), 20);
    let warm = join(&mut fleet, spec("warm"), &[resident(MODEL)]);
    assert_eq!(homes(&fleet), [warm; 20]);
}

#[test]
fn nodes_with_more_slots_are_home_to_more() {
    let mut fleet = Fleet::new(rules());
    let small = join(&mut fleet, spec("small"), &[resident(MODEL)]);
    join(&mut fleet, Spec { slots: Some(3), ..spec("large") }, &[resident(MODEL)]);
    let mut fleet = alone(fleet);
    let at_small = |fleet: &Fleet| (0..1000).filter(|n| decide(fleet, &nth(*n, 1), NOW).home == Some(small)).count();
    assert!((200..300).contains(&at_small(&fleet)), "{}", at_small(&fleet));
    // Where one's are not known they say nothing.
    join(&mut fleet, Spec { slots: None, tier: 1, ..spec("unknown") }, &[resident(MODEL)]);
    assert!((200..300).contains(&at_small(&fleet)), "it is of another tier");
    fleet.upstreams[UpstreamId(2)].spec.tier = 0;
    assert!((280..390).contains(&at_small(&fleet)), "{}", at_small(&fleet));
}

#[test]
fn a_pin_that_others_have_overtaken_yields_to_home() {
    let mut fleet = alone(fleet_of(&["a", "b"]));
    let home = decide(&fleet, &nth(1, 1), NOW).home.expect("a home");
    let other = decide(&fleet, &nth(1, 1), NOW).rows[1].upstream;
    serve(&mut fleet, other, &nth(1, 1));
    let second = decide(&fleet, &nth(1, 2), NOW);
    assert_eq!((second.rows[0].upstream, second.pin, second.home), (other, Some(other), None), "it is the last");
    let third = decide(&fleet, &nth(1, 3), NOW);
    assert_eq!((third.rows[0].upstream, third.pin, third.home), (home, Some(other), Some(home)));
    fleet.strays = Default::default();
    assert_eq!(decide(&fleet, &nth(1, 3), NOW).rows[0].upstream, other, "it is the last that is known");
}

#[test]
fn by_time_home_is_worth_what_it_likely_saves() {
    let by_time = || {
        let mut fleet = fleet_of(&["a", "b"]);
        fleet.rules.policy = Policy::ExpectedTtft;
        alone(fleet)
    };
    let long = |n| {
        let mut query = nth(7, n);
        query.ask.chain.links.iter_mut().for_each(|link| link.tokens *= 1000);
        query.ask.prompt_tokens *= 1000;
        query
    };
    for n in [1, 2] {
        let mut fleet = by_time();
        let first = decide(&fleet, &long(n), NOW);
        let home = first.home.expect("a home");
        assert_eq!(first.rows[0].upstream, home);
        assert!(first.rows[0].score - first.rows[1].score > 0.1, "{:?}", first.rows);
        assert!(first.rows.iter().flat_map(|row| row.points).all(|seconds| seconds <= 0.0));
        let shown = first.rows[0].first_token.expect("a guess").prefill_s;
        assert_eq!(shown < first.rows[1].first_token.expect("a guess").prefill_s, n > 1, "less to read at home");
        assert_eq!(first.rows[0].covered_tokens, 0, "expected is not known");
        for other in 0..40 {
            let mut query = long(1);
            query.ask.chain = nth(100 + other, 1).ask.chain;
            fleet.book(row(&decide(&fleet, &query, NOW), home), &query.ask, NOW);
        }
        assert_ne!(decide(&fleet, &long(n), NOW).rows[0].upstream, home, "it is deep in its queue");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn l5_l6_two_that_count_otherwise_choose_alike(
        loads in proptest::collection::vec((0u64..4, 0u64..4), 2..8), conversation in any::<u64>(), n in 2u64..6,
    ) {
        let replica = |loads: Vec<(usize, u64)>| {
            let mut fleet = Fleet::new(rules());
            for (node, requests) in &loads {
                let id = join(&mut fleet, Spec { slots: Some(8), ..spec(&format!("n{node}")) }, &[resident(MODEL)]);
                occupy(&mut fleet, id, *requests);
            }
            let fleet = alone(fleet);
            let decision = decide(&fleet, &nth(conversation, n), NOW);
            prop_assert_eq!(&decision, &decide(&fleet, &nth(conversation, n), NOW), "L5");
            Ok(names(&fleet, &decision)[0].clone())
        };
        let one = replica(loads.iter().map(|(one, _)| *one).enumerate().collect())?;
        let other = replica(loads.iter().map(|(_, other)| *other).enumerate().rev().collect())?;
        prop_assert_eq!(one, other, "L6");
    }
}
