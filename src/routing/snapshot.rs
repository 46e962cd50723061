//! What outlives the process: which node served a conversation last, and how fast the nodes are.
//!
//! Moments of one run mean nothing to another, so pins carry their age, and ids of upstreams neither: whoever
//! restores says which upstream is meant. What is known already, being younger, is never overwritten.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::estimate::Pace;
use super::fleet::{Fleet, UpstreamId};
use super::moment::Moment;
use super::session::PinRecord;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// From the oldest to the youngest, as far as that is known.
    pub pins: Vec<PinRecord>,
    pub paces: Vec<PaceRecord>,
}

/// How fast a model is on an upstream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PaceRecord {
    pub upstream: UpstreamId,
    /// The upstream's own spelling.
    pub model: String,
    pub pace: Pace,
}

/// What came of restoring a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    pub pins: usize,
    pub paces: usize,
}

/// Of the latest pins; about 20 MB.
pub const PINS_MAX: usize = 1 << 19;

impl Fleet {
    pub fn snapshot(&self, now: Moment) -> Snapshot {
        let mut paces = Vec::new();
        for (id, _) in self.upstreams().filter(|(_, upstream)| !upstream.leaving) {
            let known = self.holdings_of(id).filter_map(|holding| Some((holding, holding.speed.pace()?)));
            paces.extend(known.map(|(holding, pace)| PaceRecord { upstream: id, model: holding.name.clone(), pace }));
        }
        Snapshot { pins: self.sessions.records(now, PINS_MAX), paces }
    }

    /// Takes over what was known `away` ago. `known` gives the upstream of that name now, if there is one.
    pub fn restore(
        &mut self,
        snapshot: &Snapshot,
        known: impl Fn(UpstreamId) -> Option<UpstreamId>,
        away: Duration,
        now: Moment,
    ) -> Restored {
        let mut restored = Restored::default();
        for record in snapshot.pins.iter().take(PINS_MAX) {
            let is_new = known(record.upstream).is_some_and(|id| self.sessions.recall(record, id, away, now));
            restored.pins += usize::from(is_new);
        }
        for record in &snapshot.paces {
            let Some(id) = known(record.upstream) else { continue };
            let held = self.upstream(id).and_then(|upstream| upstream.holdings.get(&record.model).copied());
            let holding = held.and_then(|held| self.holdings.get_mut(held.0 as usize));
            if let Some(holding) = holding.filter(|holding| holding.speed.pace().is_none()) {
                holding.speed.recall(&record.pace, now);
                restored.paces += 1;
            }
        }
        restored
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::ask::{Ask, Dialect};
    use crate::routing::chain::{Chain, Link};
    use crate::routing::fleet::Rules;
    use crate::routing::name::Naming;
    use crate::routing::prefix::CacheKind;
    use crate::routing::report::{ModelReport, Report};
    use crate::routing::upstream::{Spec, Traits};

    const OLLAMA: Traits = Traits {
        dialects: &[Dialect::Ollama],
        naming: Naming::Ollama,
        fixed_models: false,
        lacks: &[],
        unsalted: &[],
        stores_responses: false,
        default_slots: 1,
        cache: CacheKind::PerSlot,
        busy_statuses: &[],
    };

    /// Upstreams of these names, each with the model `m`.
    fn fleet(names: &[&str]) -> (Fleet, Vec<UpstreamId>) {
        let mut fleet = Fleet::new(Rules::default());
        let at = Moment::from_secs(1);
        let ids = names.iter().filter_map(|name| fleet.join(Spec { engine: Some(OLLAMA), ..Spec::named(*name) }));
        let ids: Vec<UpstreamId> = ids.collect();
        for id in &ids {
            let models = vec![ModelReport { name: "m".into(), ..ModelReport::default() }];
            let asked = fleet.asked(*id, at);
            fleet.learn_report(*id, &Report { models, ..Report::default() }, asked, at);
        }
        (fleet, ids)
    }

    fn chat(hash: u64) -> Ask {
        let link = Link { hash, tokens: 1, ends_message: true };
        Ask { chain: Chain { links: vec![link], root: 1, answers: 0 }, ..Ask::plain() }
    }

    #[test]
    fn another_run_knows_the_nodes_by_their_names() {
        let (mut before, ids) = fleet(&["a", "b", "gone"]);
        let now = Moment::from_secs(1000);
        for (ask, id) in (1..).map(chat).zip(&ids) {
            before.sessions.pin(&ask, *id, now);
        }
        for holding in &mut before.holdings {
            holding.speed.learn_service(f64::from(holding.upstream.0) + 1.0);
        }
        let snapshot = before.snapshot(now);
        assert_eq!((snapshot.pins.len(), snapshot.paces.len()), (3, 3));

        // In another order, without one of them, and with one that has learnt since.
        let (mut after, here) = fleet(&["new", "b", "a"]);
        let known = |then: UpstreamId| [Some(here[2]), Some(here[1]), None][then.0 as usize];
        let own = after.upstream(here[1]).map(|upstream| upstream.holdings["m"]).unwrap();
        after.holdings[own.0 as usize].speed.learn_service(7.0);
        let restored = after.restore(&snapshot, known, Duration::from_secs(1), Moment::from_secs(5000));

        assert_eq!(restored, Restored { pins: 2, paces: 1 });
        let pinned = |ask: Ask| after.sessions.find(&ask, Moment::from_secs(5000)).map(|pin| pin.upstream);
        assert_eq!([pinned(chat(1)), pinned(chat(2)), pinned(chat(3))], [Some(here[2]), Some(here[1]), None]);
        let service = |id| after.holdings_of(id).next().and_then(|holding| holding.speed.service_s());
        assert_eq!([service(here[0]), service(here[1]), service(here[2])], [None, Some(7.0), Some(1.0)]);
    }
}
