//! Who is let in, who waits where, and who goes next: the queue driven as the product drives it.

use std::time::Duration;

use super::*;
use crate::routing::ask::{Ask, Dialect};
use crate::routing::candidate::FirstToken;
use crate::routing::chain::{Chain, Link, mix};
use crate::routing::fleet::{LeaseId, Outcome, Rules, UpstreamId};
use crate::routing::name::Naming;
use crate::routing::prefix::CacheKind;
use crate::routing::report::{ModelReport, Report};
use crate::routing::select::{Decision, decide};
use crate::routing::upstream::{Spec, Traits};

const OLLAMA: Traits = Traits {
    dialects: &[Dialect::Ollama, Dialect::OpenAi],
    naming: Naming::Ollama,
    fixed_models: false,
    lacks: &[],
    unsalted: &[],
    stores_responses: false,
    busy_statuses: &[503],
    default_slots: 1,
    cache: CacheKind::PerSlot,
};
const MODEL: &str = "moss:7b";
const NOW: Moment = Moment(1_000_000);

struct Rig {
    fleet: Fleet,
    now: Moment,
    requests: u64,
}

impl Rig {
    /// Nodes with these slots (0: not known), the model resident on all.
    fn over(slots: &[u32], admission: Admission) -> Rig {
        let mut fleet = Fleet::new(Rules { admission, ..Rules::default() });
        for (index, slots) in slots.iter().enumerate() {
            let id = fleet.join(Spec {
                engine: Some(OLLAMA),
                slots: Some(*slots).filter(|slots| *slots > 0),
                ..Spec::named(format!("n{index}"))
            });
            let id = id.expect("room for a few");
            fleet.learn_health(id, true, NOW);
            let model = ModelReport { name: MODEL.into(), resident: true, ..ModelReport::default() };
            let report = Report { models: vec![model], ..Report::default() };
            let asked = fleet.asked(id, NOW);
            fleet.learn_report(id, &report, asked, NOW);
        }
        Rig { fleet, now: NOW, requests: 0 }
    }

    fn stranger(&mut self) -> Query {
        self.requests += 1;
        Query { ask: Ask { model: MODEL.into(), ..Ask::plain() }, tried: Vec::new(), request: self.requests }
    }

    fn batch(&mut self) -> Query {
        let mut query = self.stranger();
        query.ask.priority = Priority::Batch;
        query
    }

    /// As the edge does it: books, or lets it wait.
    fn enter(&mut self, query: Query) -> Result<(UpstreamId, LeaseId), WaiterId> {
        let decision = decide(&self.fleet, &query, self.now);
        match self.book(&query, &decision) {
            Some(booked) => Ok(booked),
            None => {
                Err(self.fleet.wait(Arc::new(query), Some(decision.rows[0].holding), self.now).expect("room to wait"))
            }
        }
    }

    fn book(&mut self, query: &Query, decision: &Decision) -> Option<(UpstreamId, LeaseId)> {
        let row = decision.rows.iter().find(|row| Some(row.holding) == decision.admitted)?;
        Some((row.upstream, self.fleet.book(row, &query.ask, self.now)))
    }

    fn sweep(&mut self) -> Vec<(WaiterId, UpstreamId)> {
        let mut gone = Vec::new();
        let mut sweep = self.fleet.sweep_queue();
        while let Some((id, query)) = sweep.next(&mut self.fleet) {
            let decision = decide(&self.fleet, &query, self.now);
            match self.book(&query, &decision) {
                Some((upstream, _)) => {
                    self.fleet.bound(id);
                    gone.push((id, upstream));
                }
                None => self.fleet.place(id, decision.rows.first().map(|row| row.holding)),
            }
        }
        assert_eq!(laws::broken(&self.fleet), Ok(()));
        gone
    }

    fn end(&mut self, lease: LeaseId) {
        self.fleet.end(lease, Outcome::Void, self.now);
    }

    fn running(&self) -> Vec<u32> {
        self.fleet.upstreams().map(|(_, upstream)| upstream.in_flight).collect()
    }

    fn waiting(&self) -> Vec<u32> {
        let ids = self.fleet.upstreams().map(|(id, _)| id);
        ids.flat_map(|id| self.fleet.holdings_of(id)).map(|holding| holding.waiting).collect()
    }
}

fn none_at_engines() -> Admission {
    Admission { engine_queue: 0.0, ..Admission::default() }
}

/// Requests at once over nodes with these slots: what runs where, and how many wait.
#[track_caller]
fn check(slots: &[u32], admission: Admission, requests: usize, running: &[u32], waiting: u32) {
    let mut rig = Rig::over(slots, admission);
    for _ in 0..requests {
        let query = rig.stranger();
        let _ = rig.enter(query);
    }
    assert_eq!((rig.running().as_slice(), rig.waiting().iter().sum()), (running, waiting));
}

#[test]
fn que_02_every_slot_is_filled_at_once_and_no_more() {
    check(&[5, 3], none_at_engines(), 8, &[5, 3], 0);
    check(&[5, 3], none_at_engines(), 20, &[5, 3], 12);
    check(&[3], Admission::default(), 11, &[6], 5);
    check(&[2], Admission { engine_queue: 0.5, ..Admission::default() }, 11, &[3], 8);
}

#[test]
fn slots_that_are_only_assumed_limit_nobody() {
    check(&[0], none_at_engines(), 20, &[20], 0);
}

#[test]
fn who_waits_counts_in_the_depth_where_it_waits() {
    let mut rig = Rig::over(&[1, 1], none_at_engines());
    for _ in 0..6 {
        let query = rig.stranger();
        let _ = rig.enter(query);
    }
    assert_eq!(rig.waiting(), [2, 2]);
    let query = rig.stranger();
    let decision = decide(&rig.fleet, &query, rig.now);
    assert_eq!(decision.rows[0].depth, 3.0);
}

#[test]
fn the_first_node_that_comes_free_is_taken() {
    let mut rig = Rig::over(&[1, 1], none_at_engines());
    let running: Vec<_> = (0..2).map(|_| rig.stranger()).collect();
    let leases: Vec<_> = running.into_iter().map(|query| rig.enter(query).expect("room")).collect();
    let query = rig.stranger();
    let waiter = rig.enter(query).expect_err("both are full");
    let where_it_waits =
        rig.fleet.queue.get(waiter).and_then(|waiter| waiter.at).map(|at| rig.fleet.holding(at).upstream);
    let (other, lease) = *leases.iter().find(|(upstream, _)| Some(*upstream) != where_it_waits).expect("two nodes");
    rig.end(lease);
    assert_eq!(rig.sweep(), [(waiter, other)]);
    assert!(rig.fleet.queue.is_empty() && rig.waiting() == [0, 0]);
}

#[test]
fn half_of_the_slots_are_kept_from_batch() {
    let mut rig = Rig::over(&[4], Admission { reserve_for_interactive: 0.5, ..none_at_engines() });
    for _ in 0..4 {
        let query = rig.batch();
        let _ = rig.enter(query);
    }
    assert_eq!((rig.running(), rig.waiting()), (vec![2], vec![2]));
    for _ in 0..2 {
        let query = rig.stranger();
        rig.enter(query).expect("its own half");
    }
    assert_eq!(rig.sweep(), [], "what is kept from batch is kept");
}

/// Three interactive requests run on one of two nodes, batch fills its half of both, and much more of it waits,
/// counted where there is less: where the next interactive request goes, and how deep it finds that node.
#[track_caller]
fn check_beside_batch(busy: UpstreamId, expected: (UpstreamId, f64)) {
    let mut rig = Rig::over(&[8, 8], Admission { reserve_for_interactive: 0.5, ..none_at_engines() });
    let rows = |rig: &Rig, query: &Query| decide(&rig.fleet, query, rig.now).rows;
    for _ in 0..3 {
        let query = rig.stranger();
        let row = rows(&rig, &query).into_iter().find(|row| row.upstream == busy).expect("both have the model");
        rig.fleet.book(&row, &query.ask, rig.now);
    }
    for _ in 0..28 {
        let query = rig.batch();
        let _ = rig.enter(query);
    }
    let query = rig.stranger();
    let row = &rows(&rig, &query)[0];
    assert_eq!((row.upstream, row.depth), expected);
}

#[test]
fn batch_that_waits_hides_from_nobody_which_node_is_free() {
    let (one, other) = (UpstreamId(0), UpstreamId(1));
    check_beside_batch(one, (other, 0.5));
    check_beside_batch(other, (one, 0.5));
}

#[test]
fn batch_takes_no_place_at_an_engine_that_interactive_requests_fill() {
    let mut rig = Rig::over(&[4], Admission { reserve_for_interactive: 0.5, ..Admission::default() });
    let enter = |rig: &mut Rig, batch: bool| {
        let query = if batch { rig.batch() } else { rig.stranger() };
        rig.enter(query).is_ok()
    };
    assert!((0..3).all(|_| enter(&mut rig, false)), "three of four slots");
    assert!(enter(&mut rig, true), "the fourth");
    assert!(!enter(&mut rig, true), "not even what it may have, since it would wait there");
    assert!(enter(&mut rig, false), "who is interactive waits there as ever");
}

#[test]
fn a_queue_full_of_batch_has_places_for_interactive_requests() {
    let rules = Admission { reserve_for_interactive: 0.5, max_queue: 4, ..none_at_engines() };
    let mut rig = Rig::over(&[1], rules);
    let query = rig.stranger();
    rig.enter(query).expect("the slot");
    let mut wait = |batch: bool| {
        let query = if batch { rig.batch() } else { rig.stranger() };
        rig.fleet.wait(Arc::new(query), None, NOW).is_ok()
    };
    assert_eq!([true, true, true, false, false, false].map(&mut wait), [true, true, false, true, true, false]);
}

#[test]
fn a_node_of_one_slot_takes_batch_all_the_same() {
    let mut rig = Rig::over(&[1], Admission { reserve_for_interactive: 0.9, ..none_at_engines() });
    let query = rig.batch();
    rig.enter(query).expect("batch never starves");
}

#[test]
fn que_03_the_queue_has_an_end() {
    let mut rig = Rig::over(&[1], Admission { max_queue: 2, ..none_at_engines() });
    for _ in 0..3 {
        let query = rig.stranger();
        let _ = rig.enter(query);
    }
    let query = Arc::new(rig.stranger());
    assert_eq!(rig.fleet.wait(query, None, NOW), Err(QueueFull));
}

#[test]
fn whoever_leaves_the_queue_leaves_the_depth() {
    let mut rig = Rig::over(&[1], none_at_engines());
    let [first, second] = [rig.stranger(), rig.stranger()];
    rig.enter(first).expect("room");
    let waiter = rig.enter(second).expect_err("full");
    rig.fleet.stop_waiting(waiter);
    rig.fleet.stop_waiting(waiter);
    assert_eq!(rig.waiting(), [0]);
}

/// A request that the first node serves: `prefill_s` to its first byte, two seconds more to its end.
fn serve_at_home(rig: &mut Rig, query: &Query, prefill_s: f64) {
    let decision = decide(&rig.fleet, query, rig.now);
    let row = decision.rows.iter().find(|row| row.upstream == UpstreamId(0)).expect("the first node").clone();
    let lease = rig.fleet.book(&row, &query.ask, rig.now);
    rig.now = rig.now + Duration::from_secs_f64(prefill_s);
    rig.fleet.first_byte(lease, &query.ask, rig.now);
    rig.now = rig.now + Duration::from_secs(2);
    rig.fleet.end(lease, Outcome::Done { output_tokens: Some(100), cached: None }, rig.now);
}

/// A conversation of so many tokens that the first node has served, and its next turn.
fn at_home(rig: &mut Rig, tokens: u32) -> Query {
    let link = |n: u64, tokens| Link { hash: mix(9, n), tokens, ends_message: true };
    let chain = |links| Chain { root: 0, links, answers: 0 };
    let mut query = rig.stranger();
    query.ask.chain = chain(vec![link(1, tokens)]);
    query.ask.prompt_tokens = tokens;
    serve_at_home(rig, &query, f64::from(tokens) / 1000.0);
    query.ask.chain = chain(vec![link(1, tokens), link(2, tokens + 50)]);
    query.ask.prompt_tokens = tokens + 50;
    query
}

/// The next turn of a conversation, with a request of two seconds before it at home and the other node
/// idle: whether it waits. Load weighs nothing in this score, which alone would wait for ever.
#[track_caller]
fn check_pinned(tokens: u32, waits: bool) {
    let mut rig = Rig::over(&[1, 1], none_at_engines());
    rig.fleet.rules.signals.queue_depth.per_depth = 0.0;
    rig.fleet.rules.signals.session.per_depth = 0.0;
    for _ in 0..50 {
        let quick = rig.stranger();
        serve_at_home(&mut rig, &quick, 0.001);
    }
    // The last one there: nobody has taken its slot.
    let next = at_home(&mut rig, tokens);
    assert_eq!(rig.enter(next.clone()).expect("room at home").0, UpstreamId(0));
    let entered = rig.enter(next);
    assert_eq!(entered.is_err(), waits, "{tokens} tokens, {entered:?}");
}

#[test]
fn a_pinned_conversation_waits_only_while_that_is_cheaper_than_the_prefill_elsewhere() {
    check_pinned(40_000, true);
    check_pinned(200, false);
}

#[test]
fn whoever_waits_for_a_model_that_nobody_has_any_more_is_looked_at() {
    let mut rig = Rig::over(&[1], none_at_engines());
    let [first, second] = [rig.stranger(), rig.stranger()];
    rig.enter(first).expect("room");
    let waiter = rig.enter(second).expect_err("full");
    rig.fleet.leave(UpstreamId(0));
    let mut sweep = rig.fleet.sweep_queue();
    assert_eq!(sweep.next(&mut rig.fleet).map(|(id, _)| id), Some(waiter));
}

/// A node with its wait and the prefill there.
fn row(id: u32, wait_s: f64, prefill_s: f64) -> Row {
    let query = Query { ask: Ask { model: MODEL.into(), ..Ask::plain() }, tried: Vec::new(), request: 1 };
    let rig = Rig::over(&[0], Admission::default());
    let mut row = decide(&rig.fleet, &query, NOW).rows.remove(0);
    row.first_token = Some(FirstToken { wait_s, load_s: 0.0, prefill_s });
    Row { upstream: UpstreamId(id), holding: HoldingId(id), ..row }
}

/// Seconds of wait and prefill on the best node and on another; whether the other one gets the request.
#[track_caller]
fn check_instead(best: (f64, f64), other: (f64, f64), moves: bool) {
    let mut rows = [row(0, best.0, best.1), row(1, other.0, other.1)];
    let chosen = |rows: &[Row]| admit(Policy::Fleet, rows, Duration::ZERO).map(|holding| holding.0);
    assert_eq!(chosen(&rows), Some(u32::from(moves)));
    rows[1].is_ready = false;
    assert_eq!(chosen(&rows), Some(0), "one that is not ready gets nothing");
    (rows[1].is_ready, rows[1].first_token) = (true, None);
    assert_eq!(chosen(&rows), Some(0), "nobody knows its time");
}

#[test]
fn nobody_queues_at_its_best_node_for_much_longer_than_another_would_compute() {
    check_instead((0.0, 0.5), (0.0, 2.0), false);
    check_instead((60.0, 0.5), (0.0, 2.0), true);
    // A wait is worth the work that it spares, several times over.
    check_instead((5.0, 0.5), (0.0, 2.0), false);
    check_instead((5.0, 0.5), (0.0, 1.0), true);
    check_instead((0.9, 0.5), (0.0, 0.5), false);
    check_instead((60.0, 0.5), (59.0, 0.5), false);
    // That another is quicker is the score's affair.
    check_instead((0.0, 60.0), (0.0, 1.0), false);
}
