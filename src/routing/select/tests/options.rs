//! Requests whose options the model in memory was not loaded with, and those that only some models can meet.

use super::*;
use crate::routing::runner::RunnerOptions;

#[test]
fn bal_14_an_option_that_reloads_the_model_counts_as_not_resident() {
    let mut fleet = Fleet::new(rules());
    let small = join(&mut fleet, spec("small"), &[ModelReport { context_tokens: Some(4096), ..resident(MODEL) }]);
    let large = join(&mut fleet, spec("large"), &[ModelReport { context_tokens: Some(32768), ..resident(MODEL) }]);
    for (num_ctx, chosen) in [(4096, small), (32768, large)] {
        let mut query = turn(1, 1);
        query.ask.runner = RunnerOptions::with_num_ctx(num_ctx);
        assert_eq!(decide(&fleet, &query, NOW).rows[0].upstream, chosen);
    }
}

/// A request that asks for that window, or for none.
fn with_window(conversation: u64, tokens: Option<u32>) -> Query {
    let mut query = turn(conversation, 1);
    query.ask.runner = tokens.map_or_else(RunnerOptions::default, RunnerOptions::with_num_ctx);
    query
}

/// Serves a request where it belongs; later the node is asked for its window.
fn serve(fleet: &mut Fleet, query: &Query, window: u32, now: Moment) -> (UpstreamId, bool) {
    let row = decide(fleet, query, now).rows.remove(0);
    let loads = row.reloads() || !fleet.holding(row.holding).resident;
    let lease = fleet.book(&row, &query.ask, now);
    fleet.first_byte(lease, &query.ask, now);
    fleet.end(lease, Outcome::Done { output_tokens: None, cached: None }, now);
    let later = Moment(now.0 + 1);
    let told = ModelReport { context_tokens: Some(window), ..resident(MODEL) };
    let report = Report { models: vec![told], ..Report::default() };
    fleet.learn_report(row.upstream, &report, fleet.asked(row.upstream, later), later);
    (row.upstream, loads)
}

#[test]
fn bal_14_clients_that_ask_for_different_windows_get_a_node_each() {
    for conversation in 0..16 {
        let mut fleet = Fleet::new(rules());
        for name in ["a", "b"] {
            join(&mut fleet, spec(name), &[ModelReport { resident: false, ..resident(MODEL) }]);
        }
        let turns = (0..6).map(|n| if n % 2 == 0 { (Some(32_768), 32_768) } else { (None, 4096) });
        let served = turns.enumerate().map(|(n, (asked, window))| {
            let query = with_window(conversation * 2 + n as u64 % 2, asked);
            serve(&mut fleet, &query, window, Moment(NOW.0 + 10 * n as u64))
        });
        let served: Vec<(UpstreamId, bool)> = served.collect();
        let loads: Vec<bool> = served.iter().map(|(_, loads)| *loads).collect();
        assert_eq!(loads, [true, true, false, false, false, false], "{served:?}");
    }
}

#[test]
fn a_burst_with_other_options_has_the_model_loaded_once() {
    let mut fleet = Fleet::new(rules());
    for name in ["a", "b"] {
        join(&mut fleet, spec(name), &[ModelReport { context_tokens: Some(4096), ..resident(MODEL) }]);
    }
    let first = with_window(1, Some(2048));
    let row = decide(&fleet, &first, NOW).rows.remove(0);
    let lease = fleet.book(&row, &first.ask, NOW);
    let second = decide(&fleet, &with_window(2, Some(2048)), NOW).rows.remove(0);
    assert_eq!((second.upstream, second.reloads()), (row.upstream, false));
    // It never came to that: the next reading tells.
    fleet.end(lease, Outcome::Void, NOW);
    let told = ModelReport { context_tokens: Some(4096), ..resident(MODEL) };
    let later = Moment(NOW.0 + 1);
    fleet.learn_report(
        row.upstream,
        &Report { models: vec![told], ..Report::default() },
        fleet.asked(row.upstream, later),
        later,
    );
    assert!(decide(&fleet, &with_window(2, Some(2048)), later).rows.iter().all(Row::reloads));
}

#[test]
fn pinned_options_count_as_those_in_memory_and_stale_ones_as_unknown() {
    let pinned = Rules { option_guard: OptionGuard::Pin, ..rules() };
    for (rules, after_s, reloads) in [(rules(), 0, true), (pinned, 0, false), (rules(), 60, false)] {
        let mut fleet = Fleet::new(rules);
        let told = ModelReport { context_tokens: Some(4096), ..resident(MODEL) };
        join(&mut fleet, spec("a"), &[told]);
        let now = Moment(NOW.0 + Moment::from_secs(after_s).0);
        let row = decide(&fleet, &with_window(1, Some(8192)), now).rows.remove(0);
        assert_eq!(row.reloads(), reloads, "{after_s} s later");
        assert_eq!(row.points[0], if reloads { 10.0 } else { 50.0 });
    }
}

#[test]
fn who_is_known_not_to_think_makes_way_for_who_may() {
    let mut fleet = Fleet::new(rules());
    let with =
        |thinking| ModelReport { abilities: Some(Abilities { thinking, ..Abilities::default() }), ..resident(MODEL) };
    let plain = join(&mut fleet, spec("plain"), &[with(false)]);
    let mut query = turn(1, 1);
    query.ask.needs.thinking = true;
    assert_eq!(decide(&fleet, &query, NOW).rows[0].upstream, plain, "the engine has the word");
    let thinker = join(&mut fleet, spec("thinker"), &[with(true)]);
    let untold = join(&mut fleet, spec("untold"), &[resident(MODEL)]);
    let decision = decide(&fleet, &query, NOW);
    let mut able: Vec<UpstreamId> = decision.rows.iter().map(|row| row.upstream).collect();
    able.sort();
    assert_eq!(able, [thinker, untold]);
    assert_eq!(decision.excluded, [(plain, Exclusion::LacksAbility)]);
    query.ask.needs.thinking = false;
    assert_eq!(decide(&fleet, &query, NOW).rows.len(), 3);
}
