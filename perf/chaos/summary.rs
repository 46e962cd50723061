//! What the rows and samples of a run say, and whether the targets are met.

use std::time::Duration;

use serde::Serialize;

use crate::chat::End;
use crate::conversation::Row;
use crate::disturber::{Event, State};
use crate::numbers::{mean, percentile};
use crate::results::Target;
use crate::usage::Cores;
use crate::watcher::{Left, Passage, Sample, Watcher};

/// The defaults of `health`, which the run uses.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
const UNHEALTHY_AFTER: u32 = 2;

/// What a request may take beyond the time in which a node that hangs is noticed.
const WAIT_BEYOND: Duration = Duration::from_secs(5);

/// By so much the mean of the last minute may be above that of the first: what allocators keep for the
/// busiest moment. Whatever has a limit has reached it before the run.
const GROWTH_MAX_MIB: f64 = 8.0;

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Serialize)]
pub struct Summary {
    pub requests: usize,
    pub whole: usize,
    pub failed_before_first_byte: usize,
    pub cut: usize,
    pub cut_marked: usize,
    pub cut_connection_broken: usize,
    pub cut_looks_whole: usize,
    pub first_token_p50_s: f64,
    pub first_token_p95_s: f64,
    pub first_token_p99_s: f64,
    pub first_token_max_s: f64,
    /// By configuration: the interval of checks until one meets the hang, then so many time-outs.
    pub ejection_s: f64,
    /// As seen, of engines that were stopped: to being out in `/fleet/status`.
    pub stopped_noticed_after_max_s: f64,
    pub waited_longer_than_ejection: usize,
    pub waited_too_long: usize,
    pub more_than_one_attempt: usize,
    pub waited_in_queue: usize,
    pub queue_longest: u64,
    pub killed: usize,
    pub stopped: usize,
    pub slowed: usize,
    pub left: Left,
    pub resident_first_minute_mib: f64,
    pub resident_last_minute_mib: f64,
    pub resident_max_mib: f64,
    /// Means of each minute.
    pub resident_mib: Vec<f64>,
    pub cores: Cores,
    pub events: Vec<String>,
    pub passages: Vec<Passage>,
}

impl Summary {
    pub fn of(rows: &[Row], watcher: &Watcher, events: &[Event], left: Left) -> Summary {
        let (samples, passages) = (watcher.samples(), watcher.passages());
        let count = |is_it: &dyn Fn(&Row) -> bool| rows.iter().filter(|row| is_it(row)).count();
        let ended = |end: End| count(&|row| row.outcome.end == end);
        let befell = |is_it: fn(State) -> bool| events.iter().filter(|event| is_it(event.state)).count();
        let waits: Vec<f64> = rows.iter().map(|row| row.waited().as_secs_f64()).collect();
        let minutes = by_minute(&samples);
        let stops = passages.iter().filter(|passage| passage.truth == State::Stopped.name());
        Summary {
            requests: rows.len(),
            whole: ended(End::Whole),
            failed_before_first_byte: count(&Row::failed),
            cut: count(&Row::was_cut),
            cut_marked: ended(End::Marked),
            cut_connection_broken: ended(End::Broken),
            cut_looks_whole: ended(End::LooksWhole),
            first_token_p50_s: percentile(&waits, 0.50),
            first_token_p95_s: percentile(&waits, 0.95),
            first_token_p99_s: percentile(&waits, 0.99),
            first_token_max_s: percentile(&waits, 1.0),
            ejection_s: ejection().as_secs_f64(),
            stopped_noticed_after_max_s: stops.filter_map(|stop| stop.noticed_after_s).fold(0.0, f64::max),
            waited_longer_than_ejection: count(&|row| row.waited() > ejection()),
            waited_too_long: count(&|row| row.waited() > ejection() + WAIT_BEYOND),
            more_than_one_attempt: count(&|row| row.outcome.attempts.parse().is_ok_and(|attempts: u32| attempts > 1)),
            waited_in_queue: count(&|row| row.outcome.queue_ms.parse().is_ok_and(|ms: f64| ms > 0.0)),
            queue_longest: samples.iter().map(|sample| sample.waiting).max().unwrap_or_default(),
            killed: befell(|state| state == State::Killed),
            stopped: befell(|state| state == State::Stopped),
            slowed: befell(|state| matches!(state, State::Slow { .. })),
            left,
            resident_first_minute_mib: minutes.first().copied().unwrap_or_default(),
            resident_last_minute_mib: minutes.last().copied().unwrap_or_default(),
            resident_max_mib: samples.iter().map(mib).fold(0.0, f64::max),
            resident_mib: minutes,
            cores: watcher.cores(),
            events: events.iter().map(told).collect(),
            passages,
        }
    }
}

pub fn targets(summary: &Summary) -> Vec<Target> {
    let longest_s = summary.ejection_s + WAIT_BEYOND.as_secs_f64();
    let growth_mib = summary.resident_last_minute_mib - summary.resident_first_minute_mib;
    vec![
        Target::new(
            summary.failed_before_first_byte == 0,
            format!("{} requests failed before their first byte, none may", summary.failed_before_first_byte),
        ),
        Target::new(
            summary.waited_too_long == 0,
            format!("longest wait {:.2} s, at most {longest_s:.2}", summary.first_token_max_s),
        ),
        Target::new(
            summary.cut == summary.cut_marked,
            format!("{} of {} answers that were cut end with an error frame", summary.cut_marked, summary.cut),
        ),
        Target::new(summary.left.nothing(), format!("nothing booked or waiting at the end: {:?}", summary.left)),
        Target::new(
            growth_mib <= GROWTH_MAX_MIB,
            format!("memory {growth_mib:+.1} MiB from the first minute to the last, at most {GROWTH_MAX_MIB}"),
        ),
    ]
}

/// The longest that it takes until a node that hangs is out.
fn ejection() -> Duration {
    CHECK_INTERVAL + UNHEALTHY_AFTER * CHECK_TIMEOUT
}

fn by_minute(samples: &[Sample]) -> Vec<f64> {
    let minutes = samples.chunk_by(|a, b| minute(a) == minute(b));
    // A minute that has just begun says nothing.
    let long = minutes.filter(|minute| minute.len() >= 30 || samples.len() < 30);
    long.map(|minute| mean(&minute.iter().map(mib).collect::<Vec<_>>())).collect()
}

fn minute(sample: &Sample) -> u64 {
    sample.at.as_secs() / MINUTE.as_secs()
}

fn mib(sample: &Sample) -> f64 {
    sample.resident_kib as f64 / 1024.0
}

fn told(event: &Event) -> String {
    format!("{:.1} s: {} {}", event.at.as_secs_f64(), event.engine, event.state.name())
}
