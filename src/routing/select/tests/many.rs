//! Of very many nodes only the best are put in order: nobody is to notice.

use super::*;

const NODES: u64 = 3 * RANKED as u64;

/// Nodes of all sorts: idle, busy and full ones, some that hold conversations, some that failed.
fn fleet(policy: Policy, seed: u64) -> Fleet {
    let mut fleet = Fleet::new(Rules { policy, ..rules() });
    let chance = |n: u64, of: u64| mix(seed, n) % of;
    for n in 0..NODES {
        let weight = chance(n, 3) as f64;
        let spec = Spec { slots: Some(1 + chance(n, 4) as u32), weight, ..spec(&format!("n{n}")) };
        let resident = chance(NODES + n, 5) > 0;
        join(&mut fleet, spec, &[ModelReport { name: MODEL.into(), resident, ..ModelReport::default() }]);
    }
    // The fuller the fleet, the further down is the first that has room.
    let full = [0, 60, 98, 100][seed as usize % 4];
    for row in decide_in_full(&fleet, &turn(0, 1), NOW).rows {
        let slots = u64::from(fleet.upstream(row.upstream).and_then(|node| node.spec.slots).unwrap_or(1));
        let node = u64::from(row.upstream.0);
        let is_full = chance(500 + node, 100) < full;
        for k in 0..if is_full { 2 * slots } else { chance(900 + node, 2 * slots) } {
            let query = turn(10 * node + k, 1);
            let lease = fleet.book(&row, &query.ask, NOW);
            if k % 2 == 0 {
                fleet.first_byte(lease, &query.ask, after(1 + chance(node, 9)));
            }
            if k % 2 == 0 && !is_full {
                fleet.end(lease, Outcome::Done { output_tokens: Some(50), cached: None }, after(12));
            }
        }
    }
    for n in 0..chance(8, 3) {
        let id = UpstreamId(chance(n, NODES) as u32);
        (0..3).for_each(|_| fail(&mut fleet, id, after(1)));
    }
    fleet
}

fn after(secs: u64) -> Moment {
    NOW + Duration::from_secs(secs)
}

#[test]
fn what_is_not_put_in_order_changes_no_decision() {
    let (mut beyond, mut waits) = (0, 0);
    for (_, policy) in Policy::NAMES {
        for seed in 0..8 {
            let fleet = fleet(policy, seed);
            for n in 0..4 {
                let query = turn(n, 2);
                let at = after(13 + n);
                let (some, all) = (decide(&fleet, &query, at), decide_in_full(&fleet, &query, at));
                assert_eq!(some.rows[..RANKED], all.rows[..RANKED], "{policy:?} {seed} {n}");
                let ids = |decision: &Decision| {
                    let mut ids: Vec<HoldingId> = decision.rows.iter().map(|row| row.holding).collect();
                    ids.sort();
                    ids
                };
                assert_eq!(ids(&some), ids(&all));
                let rest = |decision: Decision| Decision { rows: Vec::new(), ..decision };
                let place = all.rows.iter().position(|row| all.admitted == Some(row.holding));
                beyond += usize::from(place.is_some_and(|place| place >= RANKED));
                waits += usize::from(place.is_none());
                assert_eq!(rest(some), rest(all), "{policy:?} {seed} {n}");
            }
        }
    }
    assert!(beyond > 0 && waits > 0, "{beyond} admitted beyond those in order, {waits} nowhere");
}
