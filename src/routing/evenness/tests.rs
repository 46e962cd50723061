//! Sums worked by hand, and what evenness may cost as a property over random histories.

use proptest::prelude::*;

use super::*;
use crate::routing::ask::Endpoint;
use crate::routing::fleet::{LeaseId, Outcome, Rules};
use crate::routing::report::{ModelReport, Report};
use crate::routing::select::tests::OLLAMA;
use crate::routing::select::{Query, decide};
use crate::routing::upstream::Spec;

const NOW: Moment = Moment(1_000_000);

/// Nodes of so many slots and GB a second, all with the model in memory.
fn fleet_of(policy: Policy, nodes: &[(u32, f64)]) -> (Fleet, Vec<UpstreamId>) {
    let mut fleet = Fleet::new(Rules { policy, ..Rules::default() });
    let join = |(n, (slots, gb_s)): (usize, &(u32, f64))| {
        let bandwidth_bytes_s = Some(gb_s * 1e9).filter(|bandwidth| *bandwidth > 0.0);
        let (engine, slots) = (Some(OLLAMA), Some(*slots));
        let id = fleet.join(Spec { engine, slots, bandwidth_bytes_s, ..Spec::named(format!("n{n}")) }).expect("room");
        fleet.learn_health(id, true, NOW);
        let models = vec![ModelReport { name: "m".into(), resident: true, ..ModelReport::default() }];
        fleet.learn_report(id, &Report { models, ..Report::default() }, fleet.asked(id, NOW), NOW);
        id
    };
    let ids = nodes.iter().enumerate().map(join).collect();
    (fleet, ids)
}

fn query(request: u64) -> Query {
    Query { ask: Ask { model: "m".into(), prompt_tokens: 1000, ..Ask::plain() }, tried: vec![], request }
}

fn tallies(fleet: &Fleet) -> Vec<(f64, f64)> {
    fleet.upstreams().map(|(_, upstream)| (upstream.tally.got, upstream.tally.due)).collect()
}

/// Decides, and books where it was decided.
fn serve(fleet: &mut Fleet, request: u64, now: Moment) -> LeaseId {
    let query = query(request);
    let decision = decide(fleet, &query, now);
    let best = decision.rows[0].clone();
    fleet.share_out(&decision, best.upstream, &query.ask, now);
    fleet.book(&best, &query.ask, now)
}

#[test]
fn ahead_is_what_is_beyond_the_due_of_a_busy_node() {
    for (got, due, depth, expected) in [
        (0.0, 0.0, 1.0, 0.0),
        (5.0, 9.0, 1.0, 0.0),
        (9.0, 9.0, 9.0, 0.0),
        (33.0, 27.0, 0.5, 0.2),
        (33.0, 27.0, 4.0, 0.2),
        (33.0, 27.0, 0.25, 0.1),
        (33.0, 27.0, 0.0, 0.0),
        (1.0, 0.0, 1.0, 1.0 / 3.0),
    ] {
        let ahead = Tally { got, due }.ahead(depth, 1.0);
        assert!((ahead - expected).abs() < 1e-12, "{got} of {due} at {depth}: {ahead}");
        // As long after as it takes, all weigh the same against each other.
        let later = Tally { got: 8.0 * got, due: 8.0 * due }.ahead(depth, 8.0);
        assert!((later - expected).abs() < 1e-12);
    }
    assert_eq!(Tally { got: 1.0, due: 0.0 }.ahead(1.0, f64::INFINITY), 0.0, "after weeks without a request");
}

#[track_caller]
fn check_due(nodes: &[(u32, f64)], expected: &[f64]) {
    let (mut fleet, _) = fleet_of(Policy::ExpectedTtft, nodes);
    serve(&mut fleet, 1, Moment(0));
    let due: Vec<f64> = tallies(&fleet).into_iter().map(|(_, due)| due).collect();
    assert!(due.iter().zip(expected).all(|(due, expected)| (due - expected).abs() < 1e-9), "{nodes:?}: {due:?}");
    assert_eq!(tallies(&fleet).iter().map(|(got, _)| got).sum::<f64>(), 1.0, "one has it");
}

#[test]
fn each_is_due_its_share_of_the_speed() {
    check_due(&[(1, 100.0), (1, 300.0)], &[0.25, 0.75]);
    check_due(&[(3, 100.0), (1, 300.0)], &[0.5, 0.5]);
    // Nothing is known of the bandwidth: as any other's.
    check_due(&[(1, 0.0), (1, 400.0), (2, 0.0)], &[0.25, 0.25, 0.5]);
}

#[test]
fn what_was_seen_goes_before_what_was_configured() {
    let (mut fleet, ids) = fleet_of(Policy::ExpectedTtft, &[(1, 100.0), (1, 900.0), (1, 450.0)]);
    for (id, seconds) in ids.iter().zip([3, 1]) {
        let query = query(1);
        let row = decide(&fleet, &query, NOW).rows.into_iter().find(|row| row.upstream == *id).expect("eligible");
        let lease = fleet.book(&row, &query.ask, NOW);
        let first = NOW + Duration::from_secs(seconds);
        fleet.first_byte(lease, &query.ask, first);
        let done = Outcome::Done { output_tokens: Some(10), cached: None };
        fleet.end(lease, done, first + Duration::from_secs(seconds));
    }
    let query = query(2);
    let decision = decide(&fleet, &query, NOW);
    let paces = fleet.paces(&decision.rows, &query.ask);
    let pace = |id| decision.rows.iter().zip(&paces).find(|(row, _)| row.upstream == id).map(|(_, pace)| *pace);
    let [slow, quick, unseen] = [0, 1, 2].map(|n| pace(ids[n]).expect("eligible"));
    // The ridge of the fit keeps it from being three exactly.
    assert!((quick / slow - 3.0).abs() < 0.1, "{quick} {slow}");
    let by_bandwidth = (quick + slow) / 1000.0 * 450.0;
    assert!((unseen / by_bandwidth - 1.0).abs() < 1e-9, "{unseen}, not {by_bandwidth}");
}

#[test]
fn only_what_is_decided_by_it_and_runs_a_model_counts() {
    let (mut fleet, _) = fleet_of(Policy::Fleet, &[(1, 100.0), (1, 100.0)]);
    serve(&mut fleet, 1, NOW);
    assert_eq!(tallies(&fleet), [(0.0, 0.0); 2]);
    let (mut fleet, ids) = fleet_of(Policy::ExpectedTtft, &[(1, 100.0), (1, 100.0)]);
    let lists = Ask { endpoint: Endpoint::AnthropicCountTokens, ..query(1).ask };
    let decision = decide(&fleet, &query(1), NOW);
    fleet.share_out(&decision, ids[0], &lists, NOW);
    assert_eq!(tallies(&fleet), [(0.0, 0.0); 2]);
}

#[test]
fn what_is_past_fades_and_the_sums_stay_small() {
    let (mut fleet, _) = fleet_of(Policy::ExpectedTtft, &[(1, 100.0), (1, 100.0)]);
    let share = |fleet: &Fleet, now: Moment| {
        let weight = fleet.weights.at(now);
        tallies(fleet).into_iter().map(|(got, _)| got / weight).sum::<f64>()
    };
    let mut now = Moment(0);
    serve(&mut fleet, 1, now);
    assert!((share(&fleet, now + HALF_LIFE) - 0.5).abs() < 1e-9);
    for request in 0..200 {
        now = now + HALF_LIFE;
        let lease = serve(&mut fleet, request, now);
        fleet.end(lease, Outcome::Void, now);
        let all: f64 = tallies(&fleet).into_iter().map(|(got, due)| got + due).sum();
        assert!(all < 2.0 * (SPAN + 2.0).exp2(), "{all}");
    }
    assert!((share(&fleet, now) - 2.0).abs() < 1e-6, "1 and 1/2 and 1/4 and so on");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn evenness_costs_no_more_than_its_price_and_nothing_where_nodes_are_idle(
        nodes in proptest::collection::vec((1u32..6, 50.0..1500.0f64), 2..6),
        served in proptest::collection::vec(any::<bool>(), 1..60),
        idle in any::<bool>(),
    ) {
        let (mut fleet, _) = fleet_of(Policy::ExpectedTtft, &nodes);
        for (request, stays) in served.into_iter().enumerate() {
            let lease = serve(&mut fleet, request as u64, NOW);
            if idle || !stays {
                fleet.end(lease, Outcome::Void, NOW);
            }
        }
        let query = query(1000);
        let priced = decide(&fleet, &query, NOW);
        fleet.rules.signals.queue_depth.per_due_s = 0.0;
        let free = decide(&fleet, &query, NOW);
        if idle {
            prop_assert_eq!(&priced, &free);
        }
        let score = |decision: &Decision, id| decision.rows.iter().find(|row| row.upstream == id).map(|row| row.score);
        let (chosen, best) = (priced.rows[0].upstream, free.rows[0].upstream);
        let given_up_s = score(&free, best).zip(score(&free, chosen)).map(|(best, chosen)| best - chosen);
        let price_s = score(&free, best).zip(score(&priced, best)).map(|(free, priced)| free - priced);
        // Scores within 0.05 are a tie.
        prop_assert!(given_up_s <= price_s.map(|price_s| price_s + 0.1), "{:?} for {:?}", given_up_s, price_s);
    }
}
