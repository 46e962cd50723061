//! Whose turn it is, written as names: a class, a tenant, a session and a number each.

use super::*;
use crate::routing::ask::Ask;

const WEIGHTS: Weights = [3.0, 1.0];

/// Lines up requests like `i:a:s` (class i or b, tenant, session), then serves them all in turn.
#[track_caller]
fn check(arrivals: &str, expected: &str) {
    let mut queue = Queue::default();
    let names: BTreeMap<WaiterId, &str> =
        arrivals.split(' ').map(|name| (queue.enter(query(name), None, WEIGHTS, Moment(0)), name)).collect();
    let mut served = Vec::new();
    while let Some(first) = queue.order().first().copied() {
        served.push(names[&first]);
        queue.serve(first);
    }
    assert_eq!(served.join(" "), expected);
    assert!(queue.tenants.is_empty() && queue.sessions.is_empty(), "turns of nobody are remembered");
}

fn query(name: &str) -> Arc<Query> {
    let parts: Vec<u64> = name.split(':').map(|part| u64::from(part.as_bytes()[0])).collect();
    let mut ask = Ask::plain();
    ask.priority = if parts[0] == u64::from(b'b') { Priority::Batch } else { Priority::Interactive };
    ask.tenant = parts[1];
    Arc::new(Query { ask, tried: Vec::new(), request: parts[2] })
}

#[test]
fn one_line_goes_as_it_came() {
    check("i:a:1 i:a:1 i:a:1", "i:a:1 i:a:1 i:a:1");
    check("i:a:3 i:a:1 i:a:2", "i:a:3 i:a:1 i:a:2");
}

#[test]
fn que_09_a_tenant_that_floods_holds_nobody_up() {
    check("i:a:1 i:a:2 i:a:3 i:a:4 i:b:1", "i:a:1 i:b:1 i:a:2 i:a:3 i:a:4");
    check("i:a:1 i:a:2 i:a:3 i:b:1 i:b:2", "i:a:1 i:b:1 i:a:2 i:b:2 i:a:3");
}

#[test]
fn in_a_tenant_sessions_take_turns() {
    check("i:a:1 i:a:1 i:a:1 i:a:2", "i:a:1 i:a:2 i:a:1 i:a:1");
}

#[test]
fn batch_gets_one_of_four_turns_and_never_starves() {
    check("b:a:1 b:a:2 i:a:1 i:a:2 i:a:3 i:a:4 i:a:5", "i:a:1 i:a:2 b:a:1 i:a:3 i:a:4 i:a:5 b:a:2");
    check("b:a:1 b:a:2", "b:a:1 b:a:2");
}

#[test]
fn a_line_that_was_served_waits_for_the_others_turns() {
    let mut queue = Queue::default();
    for name in ["i:a:1", "i:a:2", "i:b:1", "i:b:2"] {
        queue.enter(query(name), None, WEIGHTS, Moment(0));
    }
    let first = queue.order()[0];
    queue.serve(first);
    let late = queue.enter(query("i:a:3"), None, WEIGHTS, Moment(0));
    let order = queue.order();
    assert_eq!(queue.get(order[0]).map(|waiter| waiter.query.ask.tenant), Some(u64::from(b'b')));
    assert_eq!(order.last(), Some(&late));
}

#[test]
fn whoever_leaves_is_gone_at_once() {
    let mut queue = Queue::default();
    let ids = ["i:a:1", "i:b:1"].map(|name| queue.enter(query(name), None, WEIGHTS, Moment(0)));
    assert!(queue.leave(ids[0]).is_some() && queue.leave(ids[0]).is_none());
    assert_eq!(queue.order(), [ids[1]]);
}
