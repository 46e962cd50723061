//! What the rows of each phase say, and whether the targets are met.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::chat::End;
use crate::load::{Class, Load, Row};
use crate::numbers::percentile;
use crate::results::Target;
use crate::rig::{ANSWER_TOKENS, QUEUE_TIMEOUT, Rig, capacity_per_s};
use crate::usage::{self, Cores};
use crate::{Arguments, WARM_UP};

/// What is answered at too much, as a share of what is at capacity.
const GOODPUT_SHARE_MIN: f64 = 0.95;

/// Interactive first tokens beside batch, as a multiple of those without.
const FIRST_TOKEN_RATIO_MAX: f64 = 1.5;

/// Beyond `queue_timeout`: for the timer, and for a machine of two cores.
const LATE_MAX: Duration = Duration::from_millis(500);

/// To a refusal for want of a place in the queue.
const REFUSAL_P99_MAX_MS: f64 = 50.0;

/// Later than that the load generator does not send what was planned.
const SENT_LATE_P99_MAX_MS: f64 = 50.0;

#[derive(Serialize)]
pub struct Phase {
    pub name: &'static str,
    pub asked_per_s: f64,
    pub answers_per_s: f64,
    pub tokens_per_s: f64,
    pub interactive: Figures,
    pub batch: Figures,
    pub refused_at_once: usize,
    pub refused_at_once_p99_ms: f64,
    pub refused_at_once_max_ms: f64,
    pub refused_after_waiting: usize,
    /// Of the served by what they were told, of the others from request to refusal.
    pub queue_longest_ms: f64,
    /// Refusals that are not a 503 with `Retry-After`, and answers that broke off.
    pub otherwise: usize,
    pub retry_after_s_min: u64,
    pub retry_after_s_max: u64,
    /// By so much later than planned requests were sent.
    pub sent_late_p99_ms: f64,
    pub cores: Cores,
    #[serde(skip)]
    pub rows: Vec<Row>,
}

/// Of one class, over the time that is measured.
#[derive(Serialize)]
pub struct Figures {
    pub asked: usize,
    pub answered: usize,
    pub refused: usize,
    pub first_token_p50_ms: f64,
    pub first_token_p95_ms: f64,
    pub first_token_max_ms: f64,
}

impl Figures {
    fn of(rows: &[&Row], class: Class) -> Figures {
        let of_class: Vec<&&Row> = rows.iter().filter(|row| row.class == class).collect();
        let answered = of_class.iter().filter(|row| row.outcome.end == End::Whole);
        let times: Vec<f64> = answered.filter_map(|row| row.outcome.first_token).map(millis).collect();
        Figures {
            asked: of_class.len(),
            answered: times.len(),
            refused: of_class.iter().filter(|row| row.outcome.end == End::Refused).count(),
            first_token_p50_ms: percentile(&times, 0.50),
            first_token_p95_ms: percentile(&times, 0.95),
            first_token_max_ms: percentile(&times, 1.0),
        }
    }
}

impl Phase {
    pub async fn run(name: &'static str, loads: &[Load], rig: &Rig, arguments: &Arguments) -> Phase {
        let measured = Duration::from_secs(arguments.seconds);
        let length = WARM_UP + measured;
        let (gate, seed) = (rig.gate.address, arguments.seed);
        let sending = loads.iter().map(|load| tokio::spawn(load.send(gate, seed, length)));
        let sending: Vec<_> = sending.collect();
        let began = Instant::now();
        tokio::time::sleep_until(began + WARM_UP).await;
        let before = cpu(rig);
        tokio::time::sleep_until(began + length).await;
        let after = cpu(rig);
        let mut rows = Vec::new();
        for load in sending {
            rows.extend(load.await.expect("the requests"));
        }
        rows.sort_by_key(|row| row.at);
        let share = |part: usize| (after[part] - before[part]).as_secs_f64() / measured.as_secs_f64();
        let cores = Cores { warmgate: share(0), engines: share(1), load_generator: share(2) };
        Phase::of(name, loads, rows, length, cores)
    }

    fn of(name: &'static str, loads: &[Load], rows: Vec<Row>, length: Duration, cores: Cores) -> Phase {
        let window = WARM_UP..length;
        let ended = |row: &&Row| row.outcome.end == End::Whole && window.contains(&row.ended_at());
        let (answers, tokens) =
            rows.iter().filter(ended).fold((0, 0), |(answers, tokens), row| (answers + 1, tokens + row.outcome.tokens));
        let measured_s = (length - WARM_UP).as_secs_f64();
        let of_window: Vec<&Row> = rows.iter().filter(|row| window.contains(&row.at)).collect();
        let refused = |is_it: fn(&Row) -> bool| {
            let refused = rows.iter().filter(move |row| row.outcome.end == End::Refused && is_it(row));
            refused.map(|row| millis(row.outcome.total)).collect::<Vec<f64>>()
        };
        let (at_once, after_waiting) = (refused(is_full), refused(|row| !is_full(row)));
        let waited = rows.iter().filter_map(|row| row.outcome.queue_ms.parse::<f64>().ok());
        let as_it_should = |row: &&Row| match row.outcome.end {
            End::Whole => true,
            End::Refused => row.outcome.status == 503 && row.outcome.retry_after_s.is_some_and(|s| s > 0),
            _ => false,
        };
        let retry_after = || rows.iter().filter_map(|row| row.outcome.retry_after_s);
        let late: Vec<f64> = rows.iter().map(|row| millis(row.late)).collect();
        Phase {
            name,
            asked_per_s: loads.iter().map(|load| load.share).sum::<f64>() * capacity_per_s(),
            answers_per_s: f64::from(answers) / measured_s,
            tokens_per_s: tokens as f64 / measured_s,
            interactive: Figures::of(&of_window, Class::Interactive),
            batch: Figures::of(&of_window, Class::Batch),
            refused_at_once: at_once.len(),
            refused_at_once_p99_ms: percentile(&at_once, 0.99),
            refused_at_once_max_ms: percentile(&at_once, 1.0),
            refused_after_waiting: after_waiting.len(),
            queue_longest_ms: waited.chain(after_waiting).fold(0.0, f64::max),
            otherwise: rows.iter().filter(|row| !as_it_should(row)).count(),
            retry_after_s_min: retry_after().min().unwrap_or_default(),
            retry_after_s_max: retry_after().max().unwrap_or_default(),
            sent_late_p99_ms: percentile(&late, 0.99),
            cores,
            rows,
        }
    }
}

pub fn targets(phases: &[Phase]) -> Vec<Target> {
    let [capacity, overload, alone, mixed] = phases else { panic!("four phases") };
    let share = |much: f64, all: f64| much / all.max(f64::MIN_POSITIVE);
    // Arrivals at random may leave slots free; the peak is what the engines can do, or what was seen if more.
    let peak = capacity.answers_per_s.max(capacity_per_s());
    let answers = share(overload.answers_per_s, peak);
    let tokens = share(overload.tokens_per_s, peak * f64::from(ANSWER_TOKENS));
    let ratio = share(mixed.interactive.first_token_p95_ms, alone.interactive.first_token_p95_ms);
    let longest_ms = phases.iter().map(|phase| phase.queue_longest_ms).fold(0.0, f64::max);
    let refusal_ms = phases.iter().map(|phase| phase.refused_at_once_p99_ms).fold(0.0, f64::max);
    let late_ms = phases.iter().map(|phase| phase.sent_late_p99_ms).fold(0.0, f64::max);
    let otherwise: usize = phases.iter().map(|phase| phase.otherwise).sum();
    let refused = mixed.interactive.refused;
    vec![
        Target::new(
            answers >= GOODPUT_SHARE_MIN,
            format!("answers a second at too much {answers:.3} of those at capacity, at least {GOODPUT_SHARE_MIN}"),
        ),
        Target::new(
            tokens >= GOODPUT_SHARE_MIN,
            format!("tokens a second at too much {tokens:.3} of those at capacity, at least {GOODPUT_SHARE_MIN}"),
        ),
        Target::new(
            ratio <= FIRST_TOKEN_RATIO_MAX,
            format!("interactive first token p95 {ratio:.2} of that without batch, at most {FIRST_TOKEN_RATIO_MAX}"),
        ),
        Target::new(refused == 0, format!("{refused} interactive requests refused beside batch, none may")),
        Target::new(mixed.batch.answered > 0, format!("{} batch requests answered beside", mixed.batch.answered)),
        Target::new(
            longest_ms <= millis(QUEUE_TIMEOUT + LATE_MAX),
            format!("longest wait in the queue {longest_ms:.0} ms, `queue_timeout` is {QUEUE_TIMEOUT:?}"),
        ),
        Target::new(
            overload.refused_at_once > 0 && refusal_ms <= REFUSAL_P99_MAX_MS,
            format!("refusals by a full queue within {refusal_ms:.1} ms (p99), at most {REFUSAL_P99_MAX_MS}"),
        ),
        Target::new(
            otherwise == 0,
            format!("{otherwise} requests ended otherwise than whole or by a 503 with Retry-After, none may"),
        ),
        Target::new(
            late_ms <= SENT_LATE_P99_MAX_MS,
            format!("requests sent {late_ms:.1} ms late (p99), at most {SENT_LATE_P99_MAX_MS}: the load is as planned"),
        ),
    ]
}

/// Of warmgate, the engines together, and this process.
fn cpu(rig: &Rig) -> [Duration; 3] {
    let engines = rig.engines.iter().map(|engine| usage::cpu(engine.pid())).sum();
    [usage::cpu(rig.gate.process.id().unwrap_or_default()), engines, usage::cpu(std::process::id())]
}

/// Refused for want of a place in the queue.
fn is_full(row: &Row) -> bool {
    row.outcome.message.contains("the queue is full")
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
