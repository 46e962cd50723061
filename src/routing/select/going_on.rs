//! Where an answer that one upstream has begun can be brought to its end.

use super::{Query, is_translated, names, offers};
use crate::routing::fleet::{Fleet, HoldingId, UpstreamId};

/// Where an answer that was begun at `from` cannot go on: with another model, at upstreams that do not go on
/// with answers, and in another dialect.
pub fn unable_to_go_on(
    fleet: &Fleet,
    query: &Query,
    from: HoldingId,
    goes_on: impl Fn(UpstreamId) -> bool,
) -> Vec<HoldingId> {
    let mut unable = Vec::new();
    for model in names(fleet, &query.ask.model) {
        let offers = offers(fleet, model);
        let other_model = !offers.iter().any(|offer| offer.holding == from);
        let held = offers.iter().filter(|offer| {
            let translated = is_translated(fleet, offer.holding, query.ask.endpoint);
            other_model || !goes_on(offer.model.upstream) || translated
        });
        unable.extend(held.map(|offer| offer.holding));
    }
    unable
}
