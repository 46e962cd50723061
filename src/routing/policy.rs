//! By what the eligible upstreams are ranked.
//!
//! `fleet` and `expected_ttft` are Warmgate's own; the others are the ones people know from LiteLLM. Whatever the policy,
//! the eight signals are worked out and shown. What ties goes where no model has to be loaded anew for its
//! options, and then by the rendezvous hash.

use serde::Serialize;

use super::chain::mix;
use super::select::Row;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The sum of the eight signals.
    #[default]
    Fleet,
    /// The least expected cost in time, own and others'; the same signals, in seconds.
    ExpectedTtft,
    /// Weighted chance.
    Shuffle,
    /// The fewest requests for its slots.
    LeastBusy,
    /// The soonest expected first token; a node of unknown speed is tried first.
    Latency,
    /// The most left of its requests and tokens a minute.
    Usage,
    /// The cheapest; among the equally cheap the least busy.
    Cost,
}

/// What policies other than `fleet` and `expected_ttft` go by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Merits {
    pub weight: f64,
    /// `None`: not told, which comes after any that was.
    pub cost: Option<f64>,
    pub first_token_s: f64,
    /// Share of its limits used in the last minute; without limits the tokens used, in millions. Worked out for
    /// `usage` only.
    pub used: f64,
}

/// Scores this close to the best are a tie: points, or seconds.
const TIE: f64 = 0.05;

impl Policy {
    /// As they are written in a configuration.
    pub const NAMES: [(&'static str, Policy); 7] = [
        ("fleet", Policy::Fleet),
        ("expected_ttft", Policy::ExpectedTtft),
        ("shuffle", Policy::Shuffle),
        ("least_busy", Policy::LeastBusy),
        ("latency", Policy::Latency),
        ("usage", Policy::Usage),
        ("cost", Policy::Cost),
    ];

    pub fn name(self) -> &'static str {
        Policy::NAMES.iter().find(|(_, policy)| *policy == self).map_or("", |(name, _)| name)
    }

    /// Puts the best `count` first, in order; the rest come after in no order that says anything. `tie` is the
    /// conversation's or the request's, `chance` the request's own.
    pub fn rank(self, rows: &mut [Row], count: usize, tie: u64, chance: u64) {
        let best = rows.iter().map(|row| row.score).fold(f64::NEG_INFINITY, f64::max);
        // Where each comes among the others, worked out once and not at every comparison.
        let place = |(at, row): (usize, &Row)| {
            // As good as a tie, but whoever uses the model as it is would lose it: such a node comes last.
            let gently = u128::from(row.reloads()) << 63 | u128::from(!mix(tie, row.name_hash) >> 1);
            (u128::from(ascending(self.merit(row, best, chance))) << 64 | gently, at)
        };
        let mut order: Vec<(u128, usize)> = rows.iter().enumerate().map(place).collect();
        let price = |at: usize| match self {
            Policy::Cost => ascending(rows[at].merits.cost.unwrap_or(f64::INFINITY)),
            _ => 0,
        };
        let by = |(by, at): &(u128, usize)| (price(*at), *by);
        if count < order.len() {
            order.select_nth_unstable_by_key(count, by);
            order.truncate(count);
        }
        order.sort_unstable_by_key(by);
        put_in(order.into_iter().map(|(_, at)| at).collect(), rows);
    }

    /// What it goes by, the least first; by `cost`, what equally dear ones go by.
    fn merit(self, row: &Row, best: f64, chance: u64) -> f64 {
        match self {
            Policy::Fleet | Policy::ExpectedTtft => -level(row, best),
            Policy::Shuffle => ticket(row, chance),
            Policy::LeastBusy | Policy::Cost => row.depth,
            Policy::Latency => row.merits.first_token_s,
            Policy::Usage => row.merits.used,
        }
    }
}

/// A whole number that is the larger the larger the value, as `f64::total_cmp` has it.
fn ascending(value: f64) -> u64 {
    let bits = value.to_bits();
    if value.is_sign_negative() { !bits } else { bits | 1 << 63 }
}

/// Rows are large: each is moved once, and not once for every comparison.
fn put_in(mut order: Vec<usize>, rows: &mut [Row]) {
    for place in 0..order.len() {
        let mut from = order[place];
        // What stood there has been moved on.
        while from < place {
            from = order[from];
        }
        rows.swap(place, from);
        order[place] = from;
    }
}

/// Whether a score is as good as the best.
pub(super) fn is_tie(score: f64, best: f64) -> bool {
    score >= best - TIE
}

fn level(row: &Row, best: f64) -> f64 {
    if is_tie(row.score, best) { f64::INFINITY } else { row.score }
}

/// The smallest ticket wins, in proportion to the weights (exponential races; Efraimidis and Spirakis,
/// 2006).
fn ticket(row: &Row, chance: u64) -> f64 {
    let uniform = ((mix(chance, row.name_hash) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    if row.merits.weight > 0.0 { -uniform.ln() / row.merits.weight } else { f64::INFINITY }
}
