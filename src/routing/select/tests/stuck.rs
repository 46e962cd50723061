//! Nodes that hang are found, and slow ones are left alone.

use super::failure::send_to;
use super::*;

const N1: UpstreamId = UpstreamId(0);
const N2: UpstreamId = UpstreamId(1);

fn after(secs: u64) -> Moment {
    NOW + Duration::from_secs(secs)
}

fn is_out(fleet: &Fleet, now: Moment) -> bool {
    !decide(fleet, &turn(1, 1), now).rows.iter().any(|row| row.upstream == N1)
}

/// The other node answers something then.
fn other_answers(fleet: &mut Fleet, at: Moment) {
    let lease = send_to(fleet, N2, at);
    fleet.first_byte(lease, &turn(7, 1).ask, at);
    fleet.end(lease, Outcome::Done { output_tokens: None, cached: None }, at);
}

#[test]
fn hlt_01_three_silent_requests_take_the_node_out_and_move() {
    let mut fleet = fleet_of(&["n1", "n2"]);
    let silent: Vec<_> = (0..3).map(|_| send_to(&mut fleet, N1, NOW)).collect();
    other_answers(&mut fleet, after(20));
    assert_eq!(fleet.sweep(after(25)), [], "not yet");
    assert_eq!(fleet.sweep(after(40)), silent);
    assert!(is_out(&fleet, after(40)));
    fleet.learn_health(N1, true, after(41));
    assert!(is_out(&fleet, after(41)), "green checks do not clear it");

    silent.into_iter().for_each(|lease| fleet.end(lease, Outcome::Void, after(41)));
    let trial = send_to(&mut fleet, N1, after(51));
    assert!(is_out(&fleet, after(60)), "one at a time");
    assert_eq!(fleet.sweep(after(90)), [trial], "alone, and without the others' answers");
    fleet.end(trial, Outcome::Void, after(90));
    assert!(is_out(&fleet, after(100)), "the cooldown has doubled");
    let trial = send_to(&mut fleet, N1, after(111));
    fleet.first_byte(trial, &turn(7, 1).ask, after(112));
    fleet.end(trial, Outcome::Done { output_tokens: None, cached: None }, after(112));
    assert!(!is_out(&fleet, after(112)), "one good one");
}

/// Requests at the node, each a time; whether they are held against it at `at`.
#[track_caller]
fn check_left_alone(case: &str, prepare: impl Fn(&mut Fleet), at: u64) {
    let mut fleet = fleet_of(&["n1", "n2"]);
    prepare(&mut fleet);
    other_answers(&mut fleet, after(at - 1));
    assert_eq!((fleet.sweep(after(at)), is_out(&fleet, after(at))), (vec![], false), "{case}");
}

fn two_wait(fleet: &mut Fleet) {
    for _ in 0..2 {
        send_to(fleet, N1, NOW);
    }
}

#[test]
fn few_requests_weigh_more_the_longer_they_wait() {
    let mut fleet = fleet_of(&["n1", "n2"]);
    let alone = send_to(&mut fleet, N1, NOW);
    other_answers(&mut fleet, after(1));
    assert_eq!(fleet.sweep(after(80)), []);
    assert_eq!(fleet.sweep(after(120)), [alone], "three times what can be right");
}

#[test]
fn slow_is_not_stuck() {
    check_left_alone("only two", two_wait, 40);
    check_left_alone(
        "somebody is served there",
        |fleet| {
            let streams = send_to(fleet, N1, NOW);
            fleet.first_byte(streams, &turn(7, 1).ask, NOW);
            for _ in 0..5 {
                send_to(fleet, N1, NOW);
            }
            fleet.heard(streams, after(590));
        },
        600,
    );
    check_left_alone(
        "another model is loaded there",
        |fleet| {
            for _ in 0..5 {
                send_to(fleet, N1, NOW);
            }
            let cold = ModelReport { resident: false, ..resident("other:7b") };
            let report = Report { models: vec![resident(MODEL), cold], ..Report::default() };
            fleet.learn_report(N1, &report, fleet.asked(N1, NOW), NOW);
            let query = Query { ask: Ask { model: "other:7b".into(), ..Ask::plain() }, ..turn(3, 1) };
            let row = decide(fleet, &query, NOW).rows[0].clone();
            fleet.book(&row, &query.ask, NOW);
        },
        120,
    );
}

#[test]
fn hlt_19_long_prompts_may_take_long() {
    let mut fleet = fleet_of(&["n1", "n2"]);
    let long = Query { ask: Ask { prompt_tokens: 100_000, ..turn(7, 1).ask }, ..turn(7, 1) };
    let book = |fleet: &mut Fleet, now| {
        let rows = decide(fleet, &long, now).rows;
        fleet.book(row_of(&rows, N1), &long.ask, now)
    };
    let mut now = NOW;
    for round in 0..3 {
        let leases: Vec<_> = (0..5).map(|_| book(&mut fleet, now)).collect();
        for secs in 1..70 {
            let at = now + Duration::from_secs(secs);
            other_answers(&mut fleet, at);
            assert_eq!(fleet.sweep(at), [], "round {round}, after {secs} s");
        }
        now = now + Duration::from_secs(70);
        for lease in leases {
            fleet.first_byte(lease, &long.ask, now);
            fleet.end(lease, Outcome::Done { output_tokens: Some(5), cached: None }, now);
        }
    }
    assert!(!is_out(&fleet, now));
    assert_eq!(row_of(&decide(&fleet, &turn(1, 1), now).rows, N1).points[5], 10.0, "no mark");
}

#[test]
fn a_hung_fleet_or_our_own_network_is_nobodys_fault() {
    let mut fleet = fleet_of(&["n1", "n2"]);
    for id in [N1, N2] {
        for _ in 0..5 {
            send_to(&mut fleet, id, NOW);
        }
    }
    assert_eq!(fleet.sweep(after(600)), []);
    assert!(!is_out(&fleet, after(600)));
    assert_eq!(row_of(&decide(&fleet, &turn(1, 1), after(600)).rows, N1).points[5], 5.0, "in doubt");
}

#[test]
fn a_node_that_fails_its_checks_loses_what_waits_there() {
    let mut fleet = fleet_of(&["n1", "n2"]);
    let answered = send_to(&mut fleet, N1, NOW);
    fleet.first_byte(answered, &turn(7, 1).ask, NOW);
    let waiting = send_to(&mut fleet, N1, NOW);
    fleet.learn_health(N1, false, after(10));
    let later = send_to(&mut fleet, N1, after(11));
    assert_eq!(fleet.sweep(after(12)), [waiting], "not what was sent there since, as a last resort");
    fleet.end(later, Outcome::Void, after(12));
    let place = fleet.bookings[&waiting].holding;
    assert_eq!(elsewhere(&fleet, &turn(7, 1), place, after(12)), Elsewhere::Somewhere);
    fleet.learn_health(N2, false, after(13));
    assert_eq!(elsewhere(&fleet, &turn(7, 1), place, after(13)), Elsewhere::LastResort);
    fleet.learn_loading(N2);
    assert_eq!(elsewhere(&fleet, &turn(7, 1), place, after(13)), Elsewhere::Nowhere);
}

/// A node that hangs while most others do, too, gets a request to prove itself by.
#[test]
fn who_proves_a_node_that_is_out_waits_for_one_check_and_proves_no_other() {
    let mut fleet = fleet_of(&["n1", "n2", "n3"]);
    for id in [N1, N2] {
        fleet.learn_health(id, false, after(10));
    }
    let decided = |fleet: &Fleet, query: &Query| decide(fleet, query, after(11)).rows.len();
    assert_eq!(decided(&fleet, &turn(1, 1)), 3, "two of three may not be out by checks alone");
    let proof = send_to(&mut fleet, N1, after(11));
    fleet.learn_no_answer(N1, after(9));
    assert_eq!(fleet.sweep(after(14)), [], "the check was under way");
    fleet.learn_no_answer(N1, after(14));
    assert_eq!(fleet.sweep(after(19)), [proof]);
    let moved = Query { tried: vec![fleet.bookings[&proof].holding], ..turn(1, 1) };
    assert_eq!(decided(&fleet, &moved), 1, "it goes where answers come from");
    fleet.end(proof, Outcome::Void, after(19));
    assert_eq!(decided(&fleet, &turn(1, 1)), 3, "another may prove it");
}

fn row_of(rows: &[Row], id: UpstreamId) -> &Row {
    rows.iter().find(|row| row.upstream == id).expect("eligible")
}
