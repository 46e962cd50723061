//! What a load makes leave a node's memory: how long it has to wait for that, and what others will miss.
//!
//! Engines load one model at a time and make room as Ollama does: models that nobody uses leave first, the longest
//! unused before the others; where that is not enough, busy ones take nothing new and leave when their answers
//! are done. Which these are follows from what is believed of memory; where that is unknown nothing leaves.

use super::forecast::{is_loading, last_end_s};
use super::{Fleet, Holding, Moment, Upstream};

/// What a load of one model on one node would displace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Eviction {
    /// Until what has to leave has answered whom it serves.
    pub drain_s: f64,
    /// Seconds that those who ask for what leaves wait until it is back.
    pub missed_s: f64,
}

/// What leaves for a model that needs so many `bytes`; `load_s` is what loading it takes.
pub fn eviction(fleet: &Fleet, holding: &Holding, upstream: &Upstream, load_s: f64, now: Moment) -> Eviction {
    let mut eviction = Eviction::default();
    let Some(need) = holding.need_bytes() else { return eviction };
    for gone in displaced(fleet, holding, upstream, need) {
        eviction.drain_s = eviction.drain_s.max(last_end_s(gone, now));
        // A load reads the weights: what is half as large is back in half the time.
        let by_size = || load_s * gone.need_bytes().unwrap_or(need) as f64 / need.max(1) as f64;
        let back_s = gone.speed.load_s().unwrap_or_else(by_size);
        // Somebody asks for it within the minute and waits for all of it, and those who come meanwhile for half.
        let a_minute = gone.usage.last_minute(now).requests;
        let missed = 1.0 - (-a_minute).exp() + a_minute / MINUTE_S * back_s / 2.0;
        eviction.missed_s += missed * back_s;
    }
    eviction
}

/// Whether a model in memory is about to leave it, since one that is being loaded needs its room.
pub fn leaves(fleet: &Fleet, holding: &Holding, upstream: &Upstream) -> bool {
    let alone = upstream.in_flight <= holding.running;
    if alone || !holding.resident || holding.loading_since.is_some() {
        return false;
    }
    let loading = fleet.holdings_of(holding.upstream).filter(|other| is_loading(other));
    let need = loading.filter_map(Holding::need_bytes).fold(0, u64::saturating_add);
    need > 0 && displaced(fleet, holding, upstream, need).iter().any(|gone| gone.name == holding.name)
}

const MINUTE_S: f64 = 60.0;

/// Those that leave for so many bytes more, in the order in which they do. What is being loaded stays.
fn displaced<'a>(fleet: &'a Fleet, holding: &Holding, upstream: &Upstream, need: u64) -> Vec<&'a Holding> {
    let Some(total) = upstream.spec.memory_bytes else { return Vec::new() };
    let mut there: Vec<&Holding> = fleet.holdings_of(holding.upstream).filter(|held| held.resident).collect();
    let bytes = |held: &&Holding| held.need_bytes().unwrap_or(0);
    let mut used = there.iter().map(bytes).fold(0, u64::saturating_add);
    there.sort_by_key(|held| (held.running > 0, held.progress_at));
    let mut gone = Vec::new();
    for held in there {
        if used.saturating_add(need) <= total {
            break;
        }
        used = used.saturating_sub(bytes(&held));
        gone.push(held);
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::fleet::Rules;
    use crate::routing::policy::Policy;
    use crate::routing::report::{ModelReport, Report};
    use crate::routing::select::tests::OLLAMA;
    use crate::routing::select::{Query, decide};
    use crate::routing::upstream::Spec;
    use crate::routing::{ask::Ask, fleet::UpstreamId};

    const NOW: Moment = Moment(1_000_000);

    fn query(model: &str) -> Query {
        Query { ask: Ask { model: model.into(), prompt_tokens: 1000, ..Ask::plain() }, tried: vec![], request: 1 }
    }

    /// A node of ten GB with a model of six in memory and one of eight on disk.
    fn node() -> (Fleet, UpstreamId) {
        let mut fleet = Fleet::new(Rules { policy: Policy::ExpectedTtft, ..Rules::default() });
        let spec = Spec { engine: Some(OLLAMA), slots: Some(4), memory_bytes: Some(10), ..Spec::named("node") };
        let id = fleet.join(spec).expect("room");
        fleet.learn_health(id, true, NOW);
        report(&mut fleet, id, true, NOW);
        (fleet, id)
    }

    fn report(fleet: &mut Fleet, id: UpstreamId, resident: bool, now: Moment) {
        let model = |name: &str, bytes, resident| ModelReport {
            name: name.into(),
            size_bytes: Some(bytes),
            resident,
            ..ModelReport::default()
        };
        let models = vec![model("six", 6, resident), model("eight", 8, !resident)];
        fleet.learn_report(id, &Report { models, ..Report::default() }, fleet.asked(id, now), now);
    }

    fn load_s(fleet: &Fleet, model: &str, now: Moment) -> f64 {
        decide(fleet, &query(model), now).rows[0].first_token.expect("predicted").load_s
    }

    fn send(fleet: &mut Fleet, model: &str, now: Moment) -> crate::routing::fleet::LeaseId {
        let query = query(model);
        let row = decide(fleet, &query, now).rows[0].clone();
        fleet.book(&row, &query.ask, now)
    }

    #[test]
    fn what_gives_way_to_a_load_is_loaded_again_after_it() {
        let (mut fleet, id) = node();
        assert_eq!((load_s(&fleet, "six", NOW), load_s(&fleet, "eight", NOW)), (0.0, 10.0));
        send(&mut fleet, "eight", NOW);
        assert_eq!((load_s(&fleet, "six", NOW), load_s(&fleet, "eight", NOW)), (20.0, 10.0));
        // A request for what gives way has it loaded again; that it still drains changes nothing.
        let later = NOW + std::time::Duration::from_secs(4);
        send(&mut fleet, "six", later);
        report(&mut fleet, id, true, later);
        assert_eq!((load_s(&fleet, "six", later), load_s(&fleet, "eight", later)), (16.0, 6.0));
    }

    #[test]
    fn what_nobody_asks_for_is_not_missed() {
        let (mut fleet, _) = node();
        let missed = |fleet: &Fleet| -decide(fleet, &query("eight"), NOW).rows[0].points[1];
        assert_eq!(missed(&fleet), 0.0);
        let lease = send(&mut fleet, "six", NOW);
        fleet.first_byte(lease, &query("six").ask, NOW);
        let once = missed(&fleet);
        // Back in 7.5 s: six of eight parts of what a load is taken for.
        assert!(once > 0.6 * 7.5 && once < 7.5, "{once}");
        send(&mut fleet, "six", NOW);
        assert!(missed(&fleet) > once);
    }
}
