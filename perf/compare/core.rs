//! What the routing core costs by itself: a decision's time, and the memory of many conversations.

use std::hint::black_box;
use std::time::{Duration, Instant};

use warmgate::routing::ask::Endpoint;
use warmgate::routing::fleet::{Fleet, Outcome};
use warmgate::routing::moment::Moment;
use warmgate::routing::policy::Policy;
use warmgate::routing::select::{Query, decide};
use warmgate::wire::peek::peek;

use crate::fleet::{body, fleet, holders, query};
use crate::measure::Rows;
use crate::numbers::percentile;
use crate::usage;

/// Nodes that hold the model, and nodes in all.
pub const FLEETS: [(usize, usize); 4] = [(4, 4), (64, 64), (64, 1_000), (1_000, 1_000)];
const DECISIONS: usize = 2_000;

/// Turns of each conversation, of which the last asks with so many bytes.
const TURNS: usize = 6;
const CHARS_A_MESSAGE: usize = 8 * 1024 / (2 * TURNS - 1);

impl Rows<'_> {
    /// Times of decisions, by the default policy over nodes that run Ollama.
    pub fn decisions(&mut self) {
        for (holding, nodes) in FLEETS {
            let (fleet, query) = (holders(holding, nodes, "ollama", Policy::Fleet), query(7));
            let times: Vec<f64> = (0..DECISIONS)
                .map(|_| {
                    let began = Instant::now();
                    black_box(decide(&fleet, black_box(&query), Moment::from_secs(5)));
                    began.elapsed().as_secs_f64() * 1e6
                })
                .collect();
            for (figure, share) in [("p50", 0.5), ("p99", 0.99)] {
                self.add(format!("decide/{holding}_of_{nodes}/{figure}"), "us", percentile(&times, share));
            }
        }
    }

    /// What is remembered of so many conversations, each of six turns.
    pub fn remembered(&mut self, sessions: usize) {
        let mut fleet = fleet(4, "ollama", Policy::Fleet);
        let before = usage::resident_kib(std::process::id());
        for session in 0..sessions {
            let now = Moment::from_secs(10) + Duration::from_millis(session as u64);
            for turn in 0..TURNS {
                serve(&mut fleet, session, 2 * turn + 1, now);
            }
        }
        let grown = usage::resident_kib(std::process::id()).saturating_sub(before);
        self.add(format!("remembered/{sessions}/grown"), "KiB", grown as f64);
        black_box(&fleet);
    }
}

fn serve(fleet: &mut Fleet, session: usize, messages: usize, now: Moment) {
    let body = body(session, messages, CHARS_A_MESSAGE);
    let ask = peek(body.as_bytes(), Endpoint::OpenAiChat).expect("an ask").ask;
    let query = Query { ask, tried: Vec::new(), request: session as u64 };
    let decision = decide(fleet, &query, now);
    let row = decision.rows.first().expect("all are up").clone();
    let lease = fleet.book(&row, &query.ask, now);
    fleet.first_byte(lease, &query.ask, now);
    fleet.end(lease, Outcome::Done { output_tokens: Some(100), cached: None }, now);
}
