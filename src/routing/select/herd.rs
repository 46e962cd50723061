//! What ranking one by one cannot see: that a herd would follow the same sum, and that a node which
//! nobody is sent to can never show that it works again.

use std::time::Duration;

use super::{Exclusion, Fleet, Moment, Row, UpstreamId};
use crate::routing::slow_start::SlowStart;

/// A conversation stays where its cache is for so long after a trial has become due; then it, too, may be
/// the one that tries the node.
const PINS_STAY: Duration = Duration::from_millis(500);

/// Excludes rising nodes that carry as much as they may, as long as others can serve.
pub fn hold_back(fleet: &Fleet, rows: &mut Vec<Row>, excluded: &mut Vec<(UpstreamId, Exclusion)>, now: Moment) {
    let length = fleet.rules.slow_start;
    let rising = rows.iter().filter(|row| row.marks.rises).count();
    let settled = rows.len() - rising;
    if settled == 0 || rising == 0 {
        return;
    }
    let depths = rows.iter().filter(|row| !row.marks.rises).map(|row| row.depth);
    let fair_depth = depths.sum::<f64>() / settled as f64;
    let is_full = |row: &Row| {
        let holding = fleet.holding(row.holding);
        let slots = fleet.upstream(row.upstream).map_or(1, |upstream| upstream.slots(holding).count);
        let fair = fair_depth * f64::from(slots);
        let most = starts(fleet, row).map(|start| start.most(fair, length, now));
        most.iter().flatten().any(|most| f64::from(holding.running) >= *most)
    };
    let full = rows.extract_if(.., |row| row.marks.rises && is_full(row));
    excluded.extend(full.map(|row| (row.upstream, Exclusion::SlowStart)));
}

/// Whether any of them may be sent a trial, whatever its rank.
pub fn may_try(rows: &[Row]) -> bool {
    rows.iter().any(|row| row.marks.trial_due.is_some())
}

/// Puts a node first whose trial is due, so that its way back does not depend on anybody wanting it. It
/// must have the model in memory: a trial is to show that it works, not to load anything. The one case in
/// which a node that failed is likelier than one that did not; it lasts for one request.
pub fn send_trial(rows: &mut [Row], pinned: Option<UpstreamId>, now: Moment) {
    let due = |row: &Row| {
        let stays = pinned.is_some_and(|pin| pin != row.upstream);
        let waits = if stays { PINS_STAY } else { Duration::ZERO };
        row.marks.trial_due.is_some_and(|since| since + waits <= now) && row.merits.weight > 0.0
    };
    if let Some(place) = rows.iter().position(due) {
        rows[..=place].rotate_right(1);
    }
}

/// The rise of the node, and that of the model on it.
fn starts<'a>(fleet: &'a Fleet, row: &Row) -> [&'a SlowStart; 2] {
    [&fleet.upstreams[row.upstream].slow_start, &fleet.holding(row.holding).slow_start]
}
