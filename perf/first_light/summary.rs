//! What the rows of one run say, and whether the targets are met.

use serde::Serialize;

use crate::conversation::Row;
use crate::numbers::{mean, percentile};
use crate::results::Target;

/// Cached tokens may fall short of the ideal by this share of all prompt tokens.
const SHARE_SHORT_MAX: f64 = 0.03;
/// The follow-ups' mean first-token time, as a share of shuffle's.
const FIRST_TOKEN_RATIO_MAX: f64 = 1.0 / 3.0;
/// Requests by which the depth of a decision and the depth at arrival may differ: others come and
/// go in between.
const DEPTH_APART_MAX: f64 = 1.0;
const DEPTHS_AGREEING_MIN: f64 = 0.95;

/// One run's numbers.
#[derive(Serialize)]
pub struct Summary {
    pub policy: &'static str,
    pub turns: usize,
    /// Follow-ups on the node of the turn before.
    pub stayed: f64,
    /// Those, and the ones for which the receipt shows a better score elsewhere.
    pub stayed_or_better: f64,
    /// Of all prompt tokens, by the nodes' count.
    pub cached_share: f64,
    /// The same, had every earlier token of every conversation been cached.
    pub ideal_share: f64,
    pub follow_up_mean_s: f64,
    pub follow_up_p50_s: f64,
    pub follow_up_p95_s: f64,
    pub opening_mean_s: f64,
    /// Decisions whose depth the node confirms, to one request.
    pub depths_agreeing: f64,
    pub depth_apart_mean: f64,
    pub depth_apart_max: f64,
    #[serde(skip)]
    pub rows: Vec<Row>,
}

impl Summary {
    pub fn of(policy: &'static str, rows: Vec<Row>) -> Summary {
        let follow_ups = follow_ups(&rows);
        let stayed = |(before, row): &(&Row, &Row)| before.node == row.node;
        let fine = |pair: &(&Row, &Row)| stayed(pair) || pair.1.better_elsewhere;
        let prompt = sum(rows.iter().map(|r| r.prompt_tokens));
        let ideal = sum(follow_ups.iter().map(|(before, row)| held_by(before, row)));
        let seconds = |row: &Row| row.first_token.as_secs_f64();
        let later: Vec<f64> = follow_ups.iter().map(|(_, row)| seconds(row)).collect();
        let openings: Vec<f64> = rows.iter().filter(|r| r.turn == 0).map(seconds).collect();
        let apart: Vec<f64> = rows.iter().map(depth_apart).collect();
        Summary {
            policy,
            turns: rows.len(),
            stayed: share(&follow_ups, stayed),
            stayed_or_better: share(&follow_ups, fine),
            cached_share: sum(rows.iter().map(|r| r.cached_tokens)) / prompt,
            ideal_share: ideal / prompt,
            follow_up_mean_s: mean(&later),
            follow_up_p50_s: percentile(&later, 0.50),
            follow_up_p95_s: percentile(&later, 0.95),
            opening_mean_s: mean(&openings),
            depths_agreeing: share(&apart, |apart| *apart <= DEPTH_APART_MAX),
            depth_apart_mean: mean(&apart),
            depth_apart_max: percentile(&apart, 1.0),
            rows,
        }
    }
}

pub fn targets(fleet: &Summary, shuffle: &Summary) -> Vec<Target> {
    let target = |met, what: String| Target::new(met, what);
    let short = fleet.ideal_share - fleet.cached_share;
    let ratio = fleet.follow_up_mean_s / shuffle.follow_up_mean_s;
    vec![
        target(
            fleet.stayed_or_better == 1.0,
            format!("follow-ups at home or better elsewhere: {:.3} of all", fleet.stayed_or_better),
        ),
        target(short <= SHARE_SHORT_MAX, format!("cached share {short:.3} below the ideal, at most {SHARE_SHORT_MAX}")),
        target(
            ratio <= FIRST_TOKEN_RATIO_MAX,
            format!("mean first-token time {ratio:.3} of shuffle's, at most a third"),
        ),
        target(
            fleet.depths_agreeing >= DEPTHS_AGREEING_MIN,
            format!(
                "{:.3} of the depths confirmed to {DEPTH_APART_MAX} request, at least {DEPTHS_AGREEING_MIN}",
                fleet.depths_agreeing
            ),
        ),
    ]
}

/// Each follow-up with the turn before it; rows are in order.
fn follow_ups(rows: &[Row]) -> Vec<(&Row, &Row)> {
    let pairs = rows.iter().zip(rows.iter().skip(1));
    pairs.filter(|(_, row)| row.turn > 0).collect()
}

/// Tokens of a follow-up's prompt that its conversation had been through before.
fn held_by(before: &Row, row: &Row) -> u32 {
    row.prompt_tokens.min(before.prompt_tokens + before.output_tokens)
}

fn depth_apart(row: &Row) -> f64 {
    (row.decided_at_depth - row.arrived_at_depth as f64).abs()
}

fn sum(counts: impl Iterator<Item = u32>) -> f64 {
    counts.map(f64::from).sum()
}

fn share<T>(all: &[T], is_so: impl Fn(&T) -> bool) -> f64 {
    all.iter().filter(|item| is_so(item)).count() as f64 / all.len().max(1) as f64
}
