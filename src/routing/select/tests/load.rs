//! Load by our own counts, and that of others by what engines tell.

use super::*;
use crate::routing::fleet::Cached;
use crate::routing::report::Load;

/// A reading that differs from the last in the load alone, asked for and come at `at`.
pub fn tell(fleet: &mut Fleet, id: UpstreamId, requests: u32, at: Moment) {
    let asked = fleet.asked(id, at);
    tell_asked(fleet, id, requests, asked, at);
}

fn tell_asked(fleet: &mut Fleet, id: UpstreamId, requests: u32, asked: Asked, now: Moment) {
    let listed: Vec<String> = fleet.holdings_of(id).map(|holding| holding.name.clone()).collect();
    let resident_before = |name: &str| fleet.holdings_of(id).any(|held| held.name == name && held.resident);
    let models = listed.iter().map(|name| ModelReport { resident: resident_before(name), ..resident(name) });
    let models = models.collect();
    let load = Some(Load { running: requests.min(1), waiting: requests.saturating_sub(1) });
    fleet.learn_report(id, &Report { models, load, ..Report::default() }, asked, now);
}

/// Books the best for a new conversation.
fn send(fleet: &mut Fleet, conversation: u64, now: Moment) -> UpstreamId {
    let query = turn(conversation, 1);
    let decision = decide(fleet, &query, now);
    fleet.book(&decision.rows[0], &query.ask, now);
    decision.rows[0].upstream
}

fn depth(fleet: &Fleet, id: UpstreamId, now: Moment) -> f64 {
    row(&decide(fleet, &turn(1, 1), now), id).depth
}

#[test]
fn hlt_18_between_polls_our_own_counts_are_the_base() {
    let mut fleet = fleet_of(&["n1", "n2"]);
    let [n1, n2] = [UpstreamId(0), UpstreamId(1)];
    tell(&mut fleet, n1, 0, NOW);
    tell(&mut fleet, n2, 1, NOW);
    let mut counts = [0, 0];
    for conversation in 0..40 {
        counts[send(&mut fleet, conversation, NOW).0 as usize] += 1;
    }
    assert!(counts.iter().all(|count| *count <= 24), "{counts:?}");
}

#[test]
fn work_of_others_makes_a_node_lose() {
    let mut fleet = fleet_of(&["busy", "idle"]);
    let [busy, idle] = [UpstreamId(0), UpstreamId(1)];
    tell(&mut fleet, busy, 3, NOW);
    let decision = decide(&fleet, &turn(1, 1), NOW);
    assert_eq!((decision.rows[0].upstream, row(&decision, busy).depth), (idle, 3.0));
    let lead = row(&decision, idle).score - row(&decision, busy).score;
    assert!((lead - 18.0).abs() < 1e-9, "three times six points, not {lead}");
}

#[test]
fn l10_a_stale_load_is_neutral() {
    let mut fleet = fleet_of(&["n1"]);
    let id = UpstreamId(0);
    tell(&mut fleet, id, 3, NOW);
    let stale_after = rules().stale_after;
    assert_eq!(depth(&fleet, id, NOW + (stale_after - Duration::from_millis(1))), 3.0);
    assert_eq!(depth(&fleet, id, NOW + stale_after), 0.0);

    let silent = Report { models: vec![resident(MODEL)], ..Report::default() };
    fleet.learn_report(id, &silent, fleet.asked(id, NOW), NOW);
    assert_eq!(depth(&fleet, id, NOW), 3.0, "metrics that do not come once unsay nothing");
}

#[track_caller]
fn check_foreign(when_asked: u32, when_read: u32, told: u32, expected: u32) {
    let mut fleet = fleet_of(&["n1"]);
    let id = UpstreamId(0);
    let query = turn(1, 1);
    let book = |fleet: &mut Fleet| {
        let decision = decide(fleet, &query, NOW);
        fleet.book(&decision.rows[0], &query.ask, NOW)
    };
    let mut leases: Vec<_> = (0..when_asked).map(|_| book(&mut fleet)).collect();
    let asked = fleet.asked(id, NOW);
    while leases.len() < when_read as usize {
        leases.push(book(&mut fleet));
    }
    for lease in leases.drain(when_read as usize..) {
        fleet.end(lease, Outcome::Void, NOW);
    }
    tell_asked(&mut fleet, id, told, asked, NOW);
    assert_eq!(fleet.upstream(id).map(|upstream| upstream.foreign_requests(NOW, rules().stale_after)), Some(expected));
}

#[test]
fn what_may_be_ours_is_not_foreign() {
    check_foreign(0, 0, 5, 5);
    check_foreign(3, 3, 5, 2);
    check_foreign(3, 0, 5, 2);
    check_foreign(0, 3, 5, 2);
    check_foreign(4, 4, 1, 0);
}

#[test]
fn a_reading_that_was_overtaken_says_nothing() {
    let mut fleet = fleet_of(&["n1"]);
    let id = UpstreamId(0);
    let early = fleet.asked(id, NOW);
    let later = Moment(NOW.0 + 1);
    tell(&mut fleet, id, 0, later);
    tell_asked(&mut fleet, id, 9, early, later);
    assert_eq!(depth(&fleet, id, later), 0.0);
}

#[test]
fn a_load_in_progress_draws_the_others() {
    let mut fleet = Fleet::new(rules());
    let cold = ModelReport { resident: false, ..resident(MODEL) };
    for name in ["a", "b", "c"] {
        join(&mut fleet, Spec { slots: Some(4), ..spec(name) }, std::slice::from_ref(&cold));
    }
    let mut chosen = std::collections::BTreeSet::new();
    for n in 0..12 {
        let query = turn(n, 1);
        let decision = decide(&fleet, &query, NOW);
        chosen.insert(decision.rows[0].upstream);
        fleet.book(&decision.rows[0], &query.ask, NOW);
    }
    assert_eq!(chosen.len(), 1, "a burst for a cold model must load it once");
}

/// Serves prompts of 2,000 tokens in a second each, of which the engine tells so many to have been cached; gives
/// the tokens a second that this teaches. The first, before anything was told, is read in `first_s`.
fn taught(cached_tokens: Option<u32>, first_s: u64) -> f64 {
    let mut fleet = fleet_of(&["n1"]);
    for n in 0..20 {
        let mut query = turn(n, 1);
        query.ask.prompt_tokens = 2000;
        let (sent, read) =
            (Moment::from_secs(10 * n + 10), Moment::from_secs(10 * n + 10 + if n == 0 { first_s } else { 1 }));
        let decision = decide(&fleet, &query, sent);
        let lease = fleet.book(&decision.rows[0], &query.ask, sent);
        fleet.first_byte(lease, &query.ask, read);
        // By another count of tokens.
        let cached = cached_tokens.map(|cached| Cached { prompt_tokens: 4000, cached_tokens: 2 * cached });
        fleet.end(lease, Outcome::Done { output_tokens: Some(1), cached }, read);
    }
    1.0 / fleet.holdings_of(UpstreamId(0)).next().and_then(|held| held.speed.prefill_s_per_token()).expect("learnt")
}

#[test]
fn what_the_engine_tells_to_be_cached_was_no_work() {
    let [untold, none, half] = [taught(None, 1), taught(Some(0), 1), taught(Some(1000), 2)];
    assert!((untold / 2000.0 - 1.0).abs() < 0.1 && (none / 2000.0 - 1.0).abs() < 0.1, "{untold} {none}");
    assert!((900.0..1300.0).contains(&half), "{half}");
}
