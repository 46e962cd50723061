//! Two replicas that tell each other everything, and one that hears nothing.

use std::time::Duration;

use super::*;
use crate::routing::chain::{Chain, Link, mix};
use crate::routing::fleet::{Outcome, Rules};
use crate::routing::moment::Moment;
use crate::routing::report::{Load, ModelReport, Report};
use crate::routing::select::tests::OLLAMA;
use crate::routing::select::{Decision, Query, decide};
use crate::routing::upstream::Spec;

const LIFE: Duration = Duration::from_secs(1);

fn at(secs: u64) -> Moment {
    Moment::from_secs(secs)
}

/// A chat whose messages are the characters of `text`; the first is the system prompt.
fn chat(text: &str) -> Ask {
    let mut hash = 0;
    let links = text.chars().zip(1..).map(|(c, n)| {
        hash = mix(hash, u64::from(c));
        Link { hash, tokens: 100 * n, ends_message: true }
    });
    Ask {
        chain: Chain { links: links.collect(), root: 1, answers: 0 },
        prompt_tokens: 100 * text.len() as u32,
        ..Ask::plain()
    }
}

/// A replica over nodes of two slots, in this order.
fn replica(names: &[&str]) -> Fleet {
    let mut fleet = Fleet::new(Rules::default());
    fleet.elsewhere.tells = true;
    for name in names {
        let id = fleet.join(Spec { engine: Some(OLLAMA), slots: Some(2), ..Spec::named(*name) }).expect("room");
        let models = vec![ModelReport { name: Ask::plain().model, resident: true, ..ModelReport::default() }];
        fleet.learn_health(id, true, at(1));
        let asked = fleet.asked(id, at(1));
        fleet.learn_report(id, &Report { models, ..Report::default() }, asked, at(1));
    }
    fleet
}

fn decided(fleet: &Fleet, ask: &Ask, now: Moment) -> Decision {
    decide(fleet, &Query { ask: ask.clone(), tried: Vec::new(), request: 7 }, now)
}

fn name(fleet: &Fleet, id: UpstreamId) -> String {
    fleet.upstream(id).expect("an upstream").spec.name.clone()
}

/// Serves a turn; the lease and the node.
fn serve(fleet: &mut Fleet, ask: &Ask, now: Moment) -> (super::super::fleet::LeaseId, String) {
    let row = decided(fleet, ask, now).rows.first().expect("a node").clone();
    let lease = fleet.book(&row, ask, now);
    fleet.first_byte(lease, ask, now);
    (lease, name(fleet, row.upstream))
}

fn tell(from: &mut Fleet, to: &mut Fleet, now: Moment) -> usize {
    let (turns, _) = from.elsewhere.take_told(100);
    turns.iter().filter(|(then, turn)| to.learn_turn(turn, *then, now)).count()
}

fn tell_loads(from: &Fleet, to: &mut Fleet, now: Moment) -> LoadsLearnt {
    to.learn_loads(1, &whole(from.loads(now)), LIFE, now)
}

fn whole(nodes: Vec<NodeLoad>) -> Loads {
    Loads { only_changes: false, nodes }
}

#[test]
fn a_turn_served_elsewhere_is_warm_here() {
    let (mut a, mut b) = (replica(&["n1", "n2", "n3"]), replica(&["n3", "n2", "n1"]));
    let (lease, home) = serve(&mut a, &chat("su"), at(10));
    a.end(lease, Outcome::Done { output_tokens: None, cached: None }, at(11));

    assert_eq!(tell(&mut a, &mut b, at(12)), 1);

    let decision = decided(&b, &chat("suav"), at(12));
    let best = &decision.rows[0];
    assert_eq!((name(&b, best.upstream), decision.pin), (home, Some(best.upstream)));
    assert_eq!(best.covered_tokens, 200, "what it holds is known, too");
    assert_eq!(b.sessions.find(&chat("suav"), at(12)).map(|pin| (pin.at, pin.turns)), Some((at(10), 1)));
    assert_eq!(tell(&mut b, &mut a, at(12)), 0, "what was heard is not told again");
}

/// What is known of the prompt where it goes first, if the first turn of "su" is heard of so long after.
#[track_caller]
fn check_heard_after(age: Duration, text: &str, expected_tokens: u32) {
    let (mut a, mut b) = (replica(&["n1", "n2"]), replica(&["n1", "n2"]));
    serve(&mut a, &chat("su"), at(10));
    let now = at(10) + age;
    assert_eq!(tell(&mut a, &mut b, now), 1);
    assert_eq!(decided(&b, &chat(text), now).rows[0].covered_tokens, expected_tokens, "{text:?} after {age:?}");
}

#[test]
fn what_is_heard_late_makes_no_beginning_follow_another() {
    let late = tempo::LIFE;
    check_heard_after(late / 2, "sx", 100);
    check_heard_after(late, "sx", 0);
    check_heard_after(late, "su", 200);
    check_heard_after(late, "suav", 200);
}

#[test]
fn a_conversation_that_moved_elsewhere_has_moved_here() {
    let (mut a, mut b) = (replica(&["n1", "n2"]), replica(&["n1", "n2"]));
    let (_, home) = serve(&mut a, &chat("su"), at(10));
    tell(&mut a, &mut b, at(10));
    let gone = b.upstreams().find(|(_, upstream)| upstream.spec.name == home).map(|(id, _)| id).expect("home");
    b.learn_health(gone, false, at(11));
    let (_, away) = serve(&mut b, &chat("suav"), at(12));
    assert_ne!(away, home);
    tell(&mut b, &mut a, at(12));
    let pin = a.sessions.find(&chat("suavbw"), at(13)).expect("a pin");
    assert_eq!((name(&a, pin.upstream), pin.turns), (away, 2));
}

#[test]
fn of_two_pins_the_later_wins_whichever_is_heard_first() {
    let named = |text| Ask { session_name: Some(9), ..chat(text) };
    let (mut a, mut b) = (replica(&["n1", "n2"]), replica(&["n1", "n2"]));
    serve(&mut a, &named("su"), at(10));
    let (early, _) = a.elsewhere.take_told(9);
    serve(&mut a, &named("suav"), at(10));
    let (late, _) = a.elsewhere.take_told(9);
    let turns = |b: &Fleet| b.sessions.find(&named("suXX"), at(11)).map(|pin| pin.turns);
    for (then, turn) in late.iter().chain(&early) {
        b.learn_turn(turn, *then, at(11));
    }
    assert_eq!(turns(&b), Some(2), "of the same moment, that with more turns");
    // Long after, counted anew by a replica that knew nothing.
    let (then, turn) = &early[0];
    assert!(b.learn_turn(turn, *then + Duration::from_secs(30), at(41)));
    assert_eq!(turns(&b), Some(1));
    let expired = Rules::default().session_ttl + Duration::from_secs(50);
    assert!(!b.learn_turn(turn, *then, at(10) + expired), "expired");
}

#[test]
fn what_nobody_knows_here_is_asked_for() {
    let mut a = replica(&["n1"]);
    let asks = |a: &Fleet, text: &str, since: u64| a.asks_elsewhere(&chat(text), at(since), at(20)).is_some();
    assert!(!asks(&a, "su", 0), "a conversation that begins has no pin");
    assert!(asks(&a, "suav", 0));
    serve(&mut a, &chat("su"), at(10));
    assert!(!asks(&a, "suav", 10));
    assert!(asks(&a, "suav", 11), "others may have moved it since");
    let wanted = a.asks_elsewhere(&chat("suav"), at(11), at(20)).expect("keys");
    let key = |n: usize| chat("suav").chain.links[n].within(domain(&chat("suav")));
    assert_eq!((wanted.root, wanted.keys), (key(1), vec![key(3), key(2), key(1)]));
    let response = Ask { previous_response: Some(5), ..chat("su") };
    assert!(a.asks_elsewhere(&response, at(0), at(20)).is_some_and(|wanted| wanted.response.is_some()));
}

#[test]
fn requests_elsewhere_count_in_the_depth_and_are_not_foreign() {
    let (mut a, mut b) = (replica(&["n1"]), replica(&["n1"]));
    serve(&mut a, &chat("su"), at(10));
    assert_eq!(tell_loads(&a, &mut b, at(10)), LoadsLearnt::default());
    assert_eq!(decided(&b, &chat("tu"), at(10)).rows[0].depth, 0.5);

    // The engine tells of one request: that is the other replica's.
    let (id, _) = b.upstreams().next().expect("n1");
    let models = vec![ModelReport { name: Ask::plain().model, resident: true, ..ModelReport::default() }];
    let load = Some(Load { running: 1, ..Load::default() });
    let report = Report { models, load, ..Report::default() };
    let asked = b.asked(id, at(10));
    b.learn_report(id, &report, asked, at(10));
    assert_eq!(decided(&b, &chat("tu"), at(10)).rows[0].depth, 0.5);

    assert!(!b.forget_silent(at(10)));
    assert!(b.forget_silent(at(11)), "a replica that fell silent");
    assert_eq!(decided(&b, &chat("tu"), at(11)).rows[0].depth, 0.0);
}

#[test]
fn each_replica_has_its_share_of_a_busy_node() {
    let (mut a, mut b) = (replica(&["n1"]), replica(&["n1"]));
    // Two slots and as many again may wait there: four in all.
    for text in ["au", "bu", "cu", "du"] {
        serve(&mut a, &chat(text), at(10));
    }
    assert!(decided(&a, &chat("eu"), at(10)).admitted.is_none());
    tell_loads(&a, &mut b, at(10));
    for text in ["fu", "gu"] {
        assert!(decided(&b, &chat(text), at(10)).admitted.is_some(), "half of it is its own");
        serve(&mut b, &chat(text), at(10));
    }
    assert!(decided(&b, &chat("hu"), at(10)).admitted.is_none());
    tell_loads(&b, &mut a, at(10));
    let waits = std::sync::Arc::new(Query { ask: chat("hu"), tried: Vec::new(), request: 1 });
    let holding = decided(&b, &chat("hu"), at(10)).rows[0].holding;
    b.wait(waits, Some(holding), at(10)).expect("room to wait");
    tell_loads(&b, &mut a, at(10));
    assert!(!a.has_room(holding, crate::routing::ask::Priority::Interactive), "who has more than its share yields");
}

#[test]
fn what_has_changed_at_a_node_takes_the_place_of_what_was_there() {
    let mut fleet = replica(&["n1", "n2"]);
    let model = hash_text(&Ask::plain().model);
    let load = |node: &str, running: u32| {
        let models = vec![ModelLoad { model, running, ..ModelLoad::default() }];
        NodeLoad { node: hash_text(node), broken: false, models }
    };
    let nothing = |node: &str| NodeLoad { node: hash_text(node), ..NodeLoad::default() };
    let changes = |nodes: Vec<NodeLoad>| Loads { only_changes: true, nodes };
    let mut after = |loads: Loads| {
        let has_less = fleet.learn_loads(1, &loads, LIFE, at(10)).has_less;
        let running: Vec<u32> = fleet.upstreams().map(|(_, upstream)| upstream.others.running).collect();
        (running, has_less)
    };
    assert_eq!(after(changes(vec![load("n1", 2)])), (vec![2, 0], false), "who has missed all of it knows that");
    assert_eq!(after(whole(vec![load("n1", 3)])), (vec![3, 0], false));
    assert_eq!(after(changes(vec![load("n2", 2)])), (vec![3, 2], false));
    assert_eq!(after(changes(vec![load("n1", 1)])), (vec![1, 2], true));
    assert_eq!(after(changes(vec![nothing("n2"), load("nowhere", 4)])), (vec![1, 0], true));
    assert_eq!(after(changes(vec![])), (vec![1, 0], false), "a heartbeat");
    assert_eq!(after(whole(vec![])), (vec![0, 0], true));
    assert_eq!(fleet.elsewhere.replicas(), 1);
    assert!(fleet.forget_silent(at(11)));
}

#[test]
fn hearsay_of_a_broken_node_makes_it_less_likely_and_never_excludes_it() {
    let (mut a, mut b) = (replica(&["n1"]), replica(&["n1"]));
    for _ in 0..3 {
        let row = decided(&a, &chat("su"), at(10)).rows[0].clone();
        let lease = a.book(&row, &chat("su"), at(10));
        a.end(lease, Outcome::Failed, at(10));
    }
    let score = |b: &Fleet| decided(b, &chat("tu"), at(10)).rows.first().map(|row| row.score);
    let before = score(&b).expect("eligible");
    assert!(tell_loads(&a, &mut b, at(10)).new_doubt);
    assert!(score(&b).expect("still eligible") < before);
    // It answers here: what others say is no news then.
    let row = decided(&b, &chat("tu"), at(11)).rows[0].clone();
    let lease = b.book(&row, &chat("tu"), at(11));
    b.first_byte(lease, &chat("tu"), at(11));
    b.end(lease, Outcome::Done { output_tokens: None, cached: None }, at(11));
    assert!(decided(&b, &chat("tw"), at(11)).rows[0].score >= before);
}

#[test]
fn every_table_is_bounded_and_strangers_change_nothing() {
    let mut a = replica(&["n1"]);
    for n in 0..TOLD_MAX + 10 {
        let turn = Turn {
            pin: SharedPin { key: n as u64, root: 1, previous: 0, turns: 1 },
            named: None,
            node: hash_text("n1"),
            held: None,
        };
        a.elsewhere.tell(turn, at(1));
    }
    assert_eq!(a.elsewhere.untold(), TOLD_MAX);
    let (told, lost) = a.elsewhere.take_told(usize::MAX);
    assert_eq!((told.len(), lost, told[0].1.pin.key), (TOLD_MAX, 10, 10), "the oldest go");
    a.elsewhere.give_back(told);
    assert_eq!(a.elsewhere.untold(), TOLD_MAX);

    let stranger = Turn {
        pin: SharedPin { key: 1, root: 1, previous: 0, turns: 1 },
        named: None,
        node: hash_text("nobody"),
        held: None,
    };
    assert!(!a.learn_turn(&stranger, at(1), at(1)));
    let load = NodeLoad { node: hash_text("nobody"), broken: true, models: vec![ModelLoad::default()] };
    for replica in 0..REPLICAS_MAX as u64 + 10 {
        a.learn_loads(replica, &whole(vec![load.clone()]), LIFE, at(1));
    }
    assert_eq!(a.elsewhere.replicas(), REPLICAS_MAX);
}

#[test]
fn no_count_that_another_tells_is_followed_one_by_one() {
    let mut fleet = replica(&["n1", "n2"]);
    // It has served before, so that waits are known.
    let (lease, home) = serve(&mut fleet, &chat("su"), at(10));
    fleet.end(lease, Outcome::Done { output_tokens: Some(100), cached: None }, at(12));
    let model = hash_text(&Ask::plain().model);
    let all = ModelLoad { model, running: u32::MAX, waiting: u32::MAX, broken: false };
    let load = NodeLoad { node: hash_text(&home), broken: false, models: vec![all] };
    fleet.learn_loads(1, &whole(vec![load]), LIFE, at(13));

    // Each at a step would take minutes.
    let decision = decided(&fleet, &chat("suav"), at(13));

    assert!(decision.rows.iter().all(|row| row.score.is_finite()));
    assert_ne!(name(&fleet, decision.rows[0].upstream), home);
    fleet.learn_loads(1, &whole(vec![]), LIFE, at(14));
    assert_eq!(name(&fleet, decided(&fleet, &chat("suav"), at(14)).rows[0].upstream), home, "nothing of it is left");
}
